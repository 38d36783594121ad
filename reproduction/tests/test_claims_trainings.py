"""Each sentence is judged on made-up runs in which it holds, holds in part, or fails."""

from dataclasses import replace

import numpy as np
import pytest

from fabricated import curves, like_the_paper, pilots, record, results, rising
from fewjoules_reproduction.claims_energy import energy_claims, prediction_claims
from fewjoules_reproduction.claims_trainings import convergence_claims
from fewjoules_reproduction.tables_trainings import rounds_by

SIMILAR_RATE, SIMILAR_ACCURACY = "in terms of convergence rate", "in terms of final accuracy"
UNDER, TEMPORAL, SLOW = "slightly underperform", "Temporal sparsity", "slow down the convergence"
KEPT, SAVES, DENSE = "without sacrificing", "1.5 to 100 times", "Dense SGD"
POWER_LAW, PAPER, PLANS = "the fitted power law", "the paper's form, fitted", "planned by the power law"


def claim_of(given, sentence):
    claims = convergence_claims(given, "2") + energy_claims(given, "2") + prediction_claims(given, "2")
    (claim,) = [claim for claim in claims if sentence in claim.sentence]
    return claim


def steeper_in_steps(given):
    """The same runs with a pilot grid in which H matters more than sparsity."""
    laws = given.pilots
    runs = laws.runs
    return replace(given, pilots=replace(laws, runs=replace(runs, rounds=runs.rounds * runs.local_steps**0.5)))


@pytest.mark.parametrize("sentence", [SIMILAR_RATE, SIMILAR_ACCURACY, UNDER, SLOW, KEPT, SAVES, DENSE, PLANS])
def test_runs_like_the_papers_reproduce_its_sentences(sentence):
    assert claim_of(like_the_paper(), sentence).verdict == "reproduced"


@pytest.mark.parametrize(
    ("sentence", "changed", "verdict"),
    [
        (SIMILAR_RATE, {"unified": {"epochs": 6.0}}, "not reproduced"),
        (SIMILAR_ACCURACY, {"unified": {"final": 0.98}}, "not reproduced"),
        (UNDER, {"synchronous": {"epochs": 6.0, "final": 0.9901}}, "not reproduced"),
        (UNDER, {"synchronous": {"epochs": 3.35}}, "partly"),  # by 31 %, which is not slightly
        (UNDER, {"flexible": {"epochs": 2.0, "final": 0.995}}, "partly"),
        (SLOW, {"flexible": {"epochs": 3.0}, "unified": {"epochs": 3.0}}, "not reproduced"),
        (SLOW, {"unified": {"epochs": 3.0}}, "partly"),
        (SLOW, {name: {"epochs": 5.0, "final": 0.6} for name in ("flexible", "unified")}, "partly"),  # slower still
        (KEPT, {"flexible": {"final": 0.98}}, "not reproduced"),
        (KEPT, {"flexible": {"final": 0.991}}, "partly"),
        (SAVES, {"unified": {"joules": 1.2}}, "partly"),
        (SAVES, {"flexible": {"joules": 100.0}}, "not reproduced"),
        (DENSE, {"greedy": {"joules": 60.0}}, "not reproduced"),
        (DENSE, {"greedy": {"epochs": 3.95, "joules": 50.0 / 1.005}}, "not reproduced"),  # not visibly
        (DENSE, {"greedy": {"epochs": 3.95, "joules": 50.0 / 1.02}}, "reproduced"),
        (PLANS, {"flexible_paper": {"final": 0.9, "joules": 1e-3}}, "reproduced"),  # cheap, but in vain
        (PLANS, {"flexible_paper": {"joules": 0.1}}, "partly"),
        (PLANS, {"flexible": {"joules": 100.0}}, "not reproduced"),
    ],
)
def test_a_sentence_falls_with_the_scheme_it_speaks_of(sentence, changed, verdict):
    assert claim_of(like_the_paper(**changed), sentence).verdict == verdict


@pytest.mark.parametrize(
    ("changed", "steep", "verdict"),
    [
        ({}, True, "reproduced"),
        ({}, False, "partly"),
        ({"dense": {"epochs": 2.0}}, False, "not reproduced"),
    ],
)
def test_local_steps_and_sparsity_are_compared_by_schemes_and_on_the_grid(changed, steep, verdict):
    given = like_the_paper(**changed)
    assert claim_of(steeper_in_steps(given) if steep else given, TEMPORAL).verdict == verdict


def test_a_plan_that_synchronises_at_every_step_tells_nothing_of_local_steps():
    given = like_the_paper()
    flexible = given.curves["flexible"]
    same = replace(flexible, setting=replace(flexible.setting, local_steps=1))
    claim = claim_of(replace(given, curves=dict(given.curves) | {"flexible": same}), TEMPORAL)
    assert claim.verdict == "not reproduced"  # the grid alone
    assert claim.number.startswith("pilot grid")
    assert claim.why == "FlexibleSpar's plan has H = 1 here, which makes it SynSgdSpar. The pilot grid alone decides."


@pytest.mark.parametrize(
    ("missing", "verdict", "text"),
    [
        ("flexible", "reproduced", "to 99 %: H infinite, sparsity x"),
        ("dense", "reproduced", "sparsity x0.00"),
        ("synchronous", "partly", "to 99 %: H x0.00, sparsity infinite"),
    ],
)
def test_a_level_that_a_scheme_misses_takes_it_infinitely_many_epochs(missing, verdict, text):
    given = like_the_paper(study="mnist-dirichlet", **{missing: {"final": 0.9899}})
    claim = claim_of(given, TEMPORAL)
    assert claim.verdict == verdict
    assert text in claim.number
    assert "nan" not in claim.number


def test_pilots_of_another_study_are_not_counted_again():
    assert "pilot grid" not in claim_of(like_the_paper(study="mnist-dirichlet"), TEMPORAL).number


def test_without_a_grid_of_its_own_a_plan_that_synchronises_at_every_step_leaves_nothing_to_compare():
    given = like_the_paper(study="mnist-dirichlet")
    flexible = given.curves["flexible"]
    same = replace(flexible, setting=replace(flexible.setting, local_steps=1))
    claim = claim_of(replace(given, curves=dict(given.curves) | {"flexible": same}), TEMPORAL)
    assert claim.verdict == "not run"
    assert claim.number.startswith("nothing to compare: no scheme has an H above 1")


def test_every_ratio_to_flexible_is_given():
    number = claim_of(like_the_paper(), SAVES).number
    assert number.startswith("12 of 12 ratios are 1.5 or more")
    assert "at 98 %: UnifiedSpar 1.8, GreedySpar 4.07, SynSgdSpar 2.29, dense SGD 45.8" in number


@pytest.mark.parametrize(("joules", "verdict", "text"), [(3.0, "partly", "over 9"), (0.1, "partly", "over 0.3")])
def test_a_scheme_that_misses_a_target_counts_with_what_it_used_in_vain(joules, verdict, text):
    names = ("unified", "greedy", "synchronous", "dense")
    good = {name: curves(name, [record([0.98, 0.98, 0.99], joules=2.0)]) for name in names}
    good["flexible"] = curves("flexible", [record([0.99])])
    good["greedy"] = curves("greedy", [record([0.5, 0.98, 0.98], joules=joules)])
    claim = claim_of(results(good), SAVES)
    assert f"GreedySpar {text}" in claim.number
    held = 12 if joules == 3.0 else 9
    assert claim.number.startswith(f"{held} of 12")
    assert claim.verdict == ("reproduced" if held == 12 else verdict)


def test_one_seed_that_misses_the_target_makes_the_mean_a_lower_bound():
    given = {name: curves(name, [record([0.99], joules=2.0)] * 2) for name in ("unified", "synchronous", "dense")}
    given["flexible"] = curves("flexible", [record([0.99])] * 2)
    given["greedy"] = curves("greedy", [record([0.99], joules=2.0), record([0.5, 0.5], joules=2.0)])
    assert "GreedySpar over 3" in claim_of(results(given), SAVES).number
    assert "GreedySpar reaches it with 1 of 2 seeds only" in claim_of(results(given), DENSE).number
    assert claim_of(results(given), DENSE).verdict == "not reproduced"


@pytest.mark.parametrize("sentence", [SAVES, PLANS])
def test_a_target_that_flexible_reaches_with_some_seeds_is_said_to_be(sentence):
    given = like_the_paper()
    runs = [record(rising(final=0.9899)), *given.curves["flexible"].runs[1:]]
    changed = dict(given.curves) | {"flexible": replace(given.curves["flexible"], runs=runs)}
    assert "with 2 of 3 seeds only" in claim_of(replace(given, curves=changed), sentence).number


def test_a_scheme_is_under_another_only_beyond_the_noise_of_the_seeds():
    given = like_the_paper()
    same = {
        name: replace(given.curves[name], runs=given.curves["synchronous"].runs) for name in ("flexible", "unified")
    }
    noisy = [record(rising(epochs=epochs, final=0.9901)) for epochs in (2.5, 3.5, 4.5)]
    alike = replace(given, curves=dict(given.curves) | same)
    assert claim_of(alike, UNDER).verdict == "not reproduced"
    changed = dict(alike.curves) | {"unified": replace(given.curves["unified"], runs=noisy)}
    under = claim_of(replace(given, curves=changed), UNDER)
    assert under.verdict == "partly"  # in final accuracy alone


def test_a_diverged_run_has_no_final_accuracy_to_be_similar_to():
    given = like_the_paper()
    broken = [run | {"stop_reason": "diverged"} for run in given.curves["unified"].runs]
    changed = dict(given.curves) | {"unified": replace(given.curves["unified"], runs=broken)}
    assert claim_of(replace(given, curves=changed), SIMILAR_ACCURACY).verdict == "not reproduced"


def with_diverged_dense(given, looks):
    """The first so many runs of dense SGD end after a few looks."""
    runs = [
        record(rising(epochs=3.95, looks=5, final=0.992), joules=50.0, stop="diverged") if seed < looks else run
        for seed, run in enumerate(given.curves["dense"].runs)
    ]
    return replace(given, curves=dict(given.curves) | {"dense": replace(given.curves["dense"], runs=runs)})


def test_a_run_of_dense_sgd_that_diverged_is_no_merit_and_no_fault_of_flexible():
    given = with_diverged_dense(like_the_paper(), 1)
    claim = claim_of(given, KEPT)
    assert claim.verdict == "reproduced"
    assert "dense SGD 99.19 % (99.19 to 99.19, 1 of 3 diverged)" in claim.number
    slow = claim_of(given, SLOW)
    assert slow.verdict == "reproduced"
    assert slow.number == claim_of(like_the_paper(), SLOW).number  # over as many epochs as if it had not diverged
    assert claim_of(with_diverged_dense(like_the_paper(), 3), KEPT).verdict == "not run"


def predicted_exactly(law, error=0.0):
    """Runs that take as many rounds as a law says, or so much more."""
    laws = pilots(growth={0.98: 1.0, 0.985: 1.0, 0.99: 1.0})
    by_name = {}
    for name in ("flexible", "dense"):
        setting = curves(name, []).setting
        run = record(rising(final=0.995))
        needed = rounds_by(laws, law, setting.sparsity, setting.local_steps) * (1.0 + error)
        run["curve"]["round"] = [needed] * len(run["curve"]["round"])
        by_name[name] = curves(name, [run])
    return results(by_name, laws=laws)


@pytest.mark.parametrize(("sentence", "law"), [(POWER_LAW, "power-law"), (PAPER, "paper")])
def test_predictions_hold_within_a_fifth(sentence, law):
    exact = claim_of(predicted_exactly(law), sentence)
    assert (exact.verdict, exact.number) == (
        "reproduced",
        "6 of 6 within 20 %; median error 0 %, largest 0 %, 0 too low",
    )
    assert claim_of(predicted_exactly(law, 0.2), sentence).verdict == "reproduced"
    assert claim_of(predicted_exactly(law, 0.2), sentence).number.endswith("largest 16.7 %, 6 too low")
    assert claim_of(predicted_exactly(law, 0.5), sentence).verdict == "not reproduced"


def test_a_law_that_was_refused_predicts_nothing():
    given = replace(predicted_exactly("power-law"), pilots=pilots(paper=False))
    assert claim_of(given, PAPER).verdict == "not run"


@pytest.mark.parametrize("given", [results({}), results({"flexible": curves("flexible", [])}, laws=pilots())])
def test_what_was_not_run_is_not_judged(given):
    claims = convergence_claims(given, "2(c)") + energy_claims(given, "2(d)") + prediction_claims(given, "2(d)")
    assert len(claims) == 11
    assert {claim.verdict for claim in claims} == {"not run"}
    assert all(claim.number and claim.why and claim.reading for claim in claims)


def test_targets_that_nobody_reaches_leave_nothing_to_judge():
    low = {name: curves(name, [record(np.full(5, 0.3))]) for name in like_the_paper().curves}
    for sentence in (SIMILAR_RATE, SAVES, DENSE, POWER_LAW, PLANS):
        assert claim_of(results(low, laws=pilots()), sentence).verdict == "not run"


def test_the_reading_names_the_task_and_the_seeds():
    assert claim_of(like_the_paper(), SAVES).reading == "LeNet5 on MNIST, 3 seeds"
