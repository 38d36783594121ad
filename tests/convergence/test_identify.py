"""Constants that pilot runs leave open are named, and the suggested run is the best of all by brute force."""

import itertools

import numpy as np
import pytest

from fewjoules.convergence.fit import PilotRuns, RoundsFit, _Refined, fit_paper_rounds, fit_power_law_rounds
from fewjoules.convergence.identify import Candidates, NextRun, unidentified
from fewjoules.convergence.rounds import PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError

POOR = PilotRuns.of([1, 10, 50, 1, 10, 50], [1, 1, 1, 2, 2, 2], [2080, 2062, 2125, 963, 1113, 1133])
NOISY = PilotRuns.of([1, 10, 100, 1000] * 2, [1] * 4 + [2] * 4, [104, 102, 126, 177, 62, 62, 70, 150])
ONE_H = PilotRuns.of([1, 10, 100, 500, 1000, 5], [1] * 5 + [2], [1027, 1098, 1326, 1785, 2303, 542])
SERIES = ([1, 2, 5, 10, 20], [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])


def with_row(runs: PilotRuns, sparsity: float, local_steps: int, rounds: float) -> PilotRuns:
    """Return the runs and one more."""
    return PilotRuns.of(
        np.append(runs.sparsity, sparsity), np.append(runs.local_steps, local_steps), np.append(runs.rounds, rounds)
    )


def narrowest_by_refitting(fit, runs: PilotRuns, refit, devices: int) -> NextRun:
    """Return the run after which a new fit has the narrowest interval of the worst constant.

    Each candidate run is given the rounds that the model predicts, so the constants stay as they are.
    """
    worst, exponent = fit.unidentified[0], fit.model.exponent
    widths = {}
    for steps, sparsity in itertools.product(*SERIES):
        rounds = float(fit.model.rounds(float(sparsity) ** exponent, steps, devices))
        low, high = refit(with_row(runs, sparsity, steps, rounds)).intervals[worst]
        widths[NextRun(steps, float(sparsity))] = high - low if worst in ("a", "q") else high / low
    return min(widths, key=lambda run: widths[run])


@pytest.mark.parametrize(("runs", "worst"), [(POOR, "q"), (NOISY, "c"), (ONE_H, "a")], ids=["q", "c", "a"])
def test_the_suggested_run_is_the_best_when_every_run_is_tried(runs, worst):
    fit = fit_power_law_rounds(runs)
    assert fit.unidentified[0] == worst
    assert fit.next_run == narrowest_by_refitting(fit, runs, fit_power_law_rounds, 12)


def test_the_suggested_run_of_the_papers_model_is_the_best_when_every_run_is_tried():
    runs = PilotRuns.of([1, 1, 4], [1, 2, 4], [1000, 540, 260])

    def refit(more: PilotRuns) -> RoundsFit[PaperRounds]:
        return fit_paper_rounds(more, devices=12)

    fit = refit(runs)
    assert fit.unidentified == ("alpha",)
    assert fit.next_run == narrowest_by_refitting(fit, runs, refit, 12)


def test_a_sentence_names_the_constant_its_interval_and_the_run():
    fit = RoundsFit(
        model=PowerLawRounds(tau=1.0, c=1.0, a=4.71, q=1.0),
        intervals={"tau": (0.9, 1.1), "c": (0.5, 2.0), "a": (-1.1, 10.5), "q": (0.8, 1.2)},
        log_residuals=np.zeros(6),
        correlations=(0.0,) * 6,
        next_run=NextRun(20, 100.0),
    )
    assert fit.advice == (
        "a is not identified by these runs (interval -1.1 to 10.5); add a run at H = 20, sparsity 100"
    )


def test_runs_that_identify_every_constant_need_no_advice():
    law = PowerLawRounds(tau=2059.0, c=0.0043, a=0.5, q=0.6)
    sparsity, steps = (grid.ravel() for grid in np.meshgrid([1.0, 20.0, 1000.0], [1.0, 5.0, 20.0]))
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(9))
    fit = fit_power_law_rounds(PilotRuns.of(sparsity, steps, law.rounds(sparsity**0.6, steps, 12) * noise))
    assert (fit.unidentified, fit.next_run, fit.advice) == ((), None, None)


@pytest.mark.parametrize(
    ("intervals", "poor"),
    [
        ({"tau": (1.0, 9.9), "a": (-0.49, 0.5)}, ()),  # a sign that changes within a narrow interval does no harm
        ({"tau": (1.0, 10.1), "a": (-0.51, 0.5)}, ("a", "tau")),
        ({"c": (0.0, 1.0), "q": (1.0, 3.0)}, ("c", "q")),
        ({"c": (1.0, float("inf")), "q": (1.0, 1.5)}, ("c",)),
    ],
)
def test_a_constant_is_identified_to_a_factor_of_ten(intervals, poor):
    assert unidentified(intervals) == poor


def test_candidates_keep_to_their_largest_values():
    candidates = Candidates.up_to(max_local_steps=7, max_sparsity=30.0)
    assert sorted(set(candidates.local_steps)) == [1, 2, 5, 7]
    assert sorted(set(candidates.sparsity)) == [1, 2, 5, 10, 20, 30]
    assert candidates.sparsity.size == 24
    fit = fit_power_law_rounds(POOR, candidates=candidates)
    assert fit.next_run is not None
    assert fit.next_run.local_steps <= 7
    assert fit.next_run.sparsity <= 30.0


@pytest.mark.parametrize(("steps", "sparsity"), [(0, 10.0), (5, 0.5), (5, float("nan"))])
def test_impossible_candidates_are_refused(steps, sparsity):
    with pytest.raises(InvalidInputError, match="max_"):
        Candidates.up_to(steps, sparsity)


@pytest.mark.parametrize(
    ("name", "theta"), [("a", [7.0, -4.0, -17.0, -0.7]), ("a", [7.0, -4.0, 17.0, -0.7]), ("q", [7.0, -4.0, 0.5, 2.9])]
)
def test_an_exponent_beyond_its_range_is_refused_by_name(name, theta, monkeypatch):
    found = _Refined(np.array(theta), np.ones(4), np.eye(4))
    monkeypatch.setattr("fewjoules.convergence.fit._refine", lambda *_: found)
    with pytest.raises(InvalidInputError, match=f"do not determine {name}: its best value must be at most 16 in size"):
        fit_power_law_rounds(POOR)


def test_runs_whose_best_exponent_grows_without_limit_are_refused():
    """Whether the search ends beyond the range or where the constants cannot be told apart depends on rounding."""
    runs = PilotRuns.of([1, 10, 50] * 2, [1] * 3 + [2] * 3, [2134, 2209, 1993, 1031, 1087, 1140])
    with pytest.raises(InvalidInputError, match=r"do not determine a: .* at most 16|cannot tell the model's constants"):
        fit_power_law_rounds(runs)
