"""Several seeds: means and ranges in a row, ties in the headline, and no failure hidden."""

import io
import json

import pytest
from rich.console import Console

from fewjoules.reports.booked import outcome
from fewjoules.reports.comparison_file import comparison_json
from fewjoules.reports.page import page
from fewjoules.reports.seed_comparison import overall_headline, seed_remarks, seed_rows, seed_titles
from fewjoules.reports.seeds import SchemeRuns, Spread, grouped, verdicts
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_run
from tests.reports.test_comparison import MISSED, TO_LOSS
from tests.reports.test_page import Reader

CHEAP = (8.0, 9.0, 8.5, 8.8, 8.2)
ALIKE = (8.4, 8.7, 8.9, 8.6, 8.3)
DEAR = (80.0, 91.0, 85.0, 89.0, 84.0)


def run_of(folder, scheme, seed, to_target, **changes):
    """A run that reached its target with these joules, or missed it where they are None."""
    given = {"rounds": 10} if to_target is None else {"joules_to_target": to_target}
    made = make_run(folder / scheme / f"seed-{seed}", scheme=scheme, seed=seed, devices=3, **given | changes)
    return RunResults.load(made)


def runs_of(folder, **schemes):
    return [run_of(folder, scheme, seed, one) for scheme, own in schemes.items() for seed, one in enumerate(own)]


def said(runs, diverged=None):
    return overall_headline(runs, diverged).replace("\u00a0", " ")


def printed(runs, diverged=None):
    output = io.StringIO()
    Console(file=output, width=160, highlight=False).print(outcome(runs, diverged))
    return output.getvalue().replace("\u00a0", " ")


def row_of(runs, scheme, diverged=None):
    groups = grouped(runs, diverged)
    (cells,) = (row.cells for row in seed_rows(groups) if row.cells[0] == scheme)
    return dict(zip(seed_titles(groups), cells, strict=True))


def test_the_headline_names_the_schemes_that_are_tied(tmp_path):
    runs = runs_of(tmp_path, dense=DEAR, unified=ALIKE, flexible=CHEAP)
    assert said(runs) == (
        "flexible and unified are tied within the noise of 5 seeds (8.54 J on average, 8 to 9); "
        "dense took 10.1 times as much."
    )


def test_the_headline_says_that_the_best_is_alone(tmp_path):
    runs = runs_of(tmp_path, dense=DEAR, flexible=CHEAP)
    assert said(runs) == (
        "flexible reached 97 % with every one of 5 seeds (8.5 J on average, 8 to 9), for less than any other scheme "
        "beyond the noise; dense took 10.1 times as much."
    )
    assert [row_of(runs, name)["noise"] for name in ("flexible", "dense")] == ["least", ""]


def test_two_seeds_cannot_tell_a_tie(tmp_path):
    runs = runs_of(tmp_path, dense=DEAR[:2], flexible=CHEAP[:2])
    assert [verdict.tied for verdict in verdicts(grouped(runs))] == [None, None]
    assert said(runs).endswith("fewer than 3 seeds cannot tell such a difference from noise.")
    assert "noise" not in seed_titles(grouped(runs))


def test_all_schemes_may_be_tied(tmp_path):
    assert said(runs_of(tmp_path, unified=ALIKE, flexible=CHEAP)).endswith("(8.54 J on average, 8 to 9).")


def test_one_seed_says_that_it_is_one(tmp_path):
    said_of_one = "flexible reached 97 % with 8 J; dense took 10 times as much. This is the result of one seed;"
    assert said(runs_of(tmp_path, dense=DEAR[:1], flexible=CHEAP[:1])).startswith(said_of_one)
    assert "seed" not in said(runs_of(tmp_path / "alone", flexible=CHEAP[:1]))


def test_a_row_has_the_mean_and_the_range_of_the_joules(tmp_path):
    runs = runs_of(tmp_path, dense=DEAR, unified=ALIKE, flexible=CHEAP)
    row = row_of(runs, "flexible")
    assert (row["J to target"], row["least to most"], row["x least"], row["noise"]) == ("8.5", "8 to 9", "1.00", "tied")
    assert row_of(runs, "dense")["noise"] == ""


def test_a_scheme_of_which_a_seed_missed_comes_last_and_says_so(tmp_path):
    runs = runs_of(tmp_path, greedy=(1.0, 1.1, None), flexible=CHEAP[:3], dense=DEAR[:3])
    assert [group.name for group in grouped(runs)] == ["flexible", "dense", "greedy"]
    row = row_of(runs, "greedy")
    assert row["x least"] == "1 of 3 missed"
    assert row["J to target"].startswith("> ")
    assert [text.replace("\u00a0", " ") for text in seed_remarks(grouped(runs))] == [
        "greedy missed 97 % with 1 of 3 seeds."
    ]
    assert said(runs).startswith("flexible reached 97 %")


def test_a_scheme_of_which_a_seed_diverged_comes_last_and_says_so(tmp_path):
    runs = runs_of(tmp_path, greedy=(1.0, 1.1), flexible=CHEAP[:3])
    diverged = {"greedy": 1}
    assert [group.name for group in grouped(runs, diverged)] == ["flexible", "greedy"]
    assert row_of(runs, "greedy", diverged)["x least"] == "1 of 3 diverged"
    assert seed_remarks(grouped(runs, diverged)) == ["greedy diverged with 1 of 3 seeds."]


def runs_to_a_loss(folder, *losses, scheme="flexible", **changes):
    given = TO_LOSS | {"joules_to_target": 8.0} | changes
    return [
        run_of(folder, scheme, seed, None, rounds=60, **given | {"test_loss": loss}) for seed, loss in enumerate(losses)
    ]


def test_two_seeds_to_a_loss_are_told_in_its_words(tmp_path):
    runs = runs_to_a_loss(tmp_path, 0.29, 0.27)
    assert said(runs) == "flexible reached loss 0.3 with every one of 2 seeds (8 J every time)."
    assert row_of(runs, "flexible")["loss"] == "loss 0.28"
    (summary,) = json.loads(comparison_json("mine", runs, {}, seeds=range(2), rates={}))["schemes"]
    assert summary["test_loss"] == {"mean": pytest.approx(0.28), "least": 0.27, "most": 0.29}


def test_schemes_are_compared_to_a_loss_and_a_miss_is_told(tmp_path):
    runs = runs_to_a_loss(tmp_path, 0.29, 0.27)
    runs += runs_to_a_loss(tmp_path, 0.29, 0.27, scheme="dense", joules_to_target=16.0)
    runs += runs_to_a_loss(tmp_path, 0.41, 0.42, scheme="greedy", **MISSED)
    assert said(runs).startswith(
        "flexible reached loss 0.3 with every one of 2 seeds (8 J every time); dense took 2 times"
    )
    assert [row_of(runs, scheme)["x least"] for scheme in ("dense", "greedy")] == ["2.00", "2 of 2 missed"]
    assert seed_remarks(grouped(runs)) == ["greedy missed loss 0.3 with 2 of 2 seeds."]
    assert "flexible reached loss 0.3" in Reader(page(runs, "title")).text.replace("\u00a0", " ")


def test_the_returns_of_the_guard_name_the_seed(tmp_path):
    saved = {"returns": [4, 9], "learning_rate": 0.025}
    runs = [run_of(tmp_path, "flexible", seed, 8.0, **saved if seed else {}) for seed in range(2)]
    sentence = "The guard of flexible with seed 1 returned twice, after rounds 4 and 9; the step size is now 0.025."
    assert seed_remarks(grouped(runs)) == [sentence]
    assert sentence in Reader(page(runs, "title")).text


def test_if_every_scheme_fails_with_a_seed_the_headline_says_so(tmp_path):
    runs = runs_of(tmp_path, greedy=(1.0, None, 1.2), dense=(None, 2.0, 2.0))
    assert said(runs) == "No scheme reached 97 % with every one of 3 seeds."


def test_without_joules_the_headline_counts_rounds(tmp_path):
    runs = [run_of(tmp_path, "flexible", seed, None, joules=None, rounds=60) for seed in range(3)]
    assert said(runs) == "flexible reached 97 % with every one of 3 seeds (32 rounds every time)."
    assert row_of(runs, "flexible")["J to target"] == "-"


def test_schemes_with_other_seeds_are_not_compared_seed_by_seed(tmp_path):
    runs = runs_of(tmp_path, flexible=CHEAP)
    runs += [run_of(tmp_path, "dense", seed, 80.0 + seed) for seed in range(5, 10)]
    assert [verdict.tied for verdict in verdicts(grouped(runs))] == [None, None]


def test_runs_with_the_same_seed_are_not_taken_for_seeds(tmp_path):
    runs = [RunResults.load(make_run(tmp_path / name, seed=0)) for name in ("a", "b")]
    assert [group.name for group in grouped(runs)] == ["flexible #1", "flexible #2"]


def test_the_joules_booked_are_means_over_the_seeds(tmp_path):
    for seed, joules in enumerate((1.0, 3.0)):
        run_of(tmp_path, "flexible", seed, 9.0, joules_by_kind={"uplink": {"measured": joules}})
    runs = [RunResults.load(tmp_path / "flexible" / f"seed-{seed}") for seed in range(2)]
    assert printed(runs).split("\n\n")[1].splitlines()[1].split() == ["flexible", "2", "2", "(100", "%)"]


def test_the_file_has_every_run_and_the_summary_of_each_scheme(tmp_path):
    runs = runs_of(tmp_path, dense=DEAR, unified=ALIKE, flexible=CHEAP)
    document = json.loads(comparison_json("mine", runs, {"greedy": 5}, seeds=range(5), rates={"dense": 0.2}))
    assert (document["version"], document["seeds"], document["rates"]) == (3, [0, 1, 2, 3, 4], {"dense": 0.2})
    assert document["diverged"] == {"greedy": 5}
    assert [(one["scheme"], one["seed"]) for one in document["runs"]] == [
        (scheme, seed) for scheme in ("flexible", "unified", "dense") for seed in range(5)
    ]
    flexible, unified, dense = document["schemes"]
    assert flexible["joules"] == {"mean": pytest.approx(8.5), "least": 8.0, "most": 9.0}
    assert [one["tied"] for one in (flexible, unified, dense)] == [True, True, False]
    assert dense["times_least"] == pytest.approx(85.8 / 8.5)
    assert (dense["seeds"], dense["reached"], dense["missed"], dense["diverged"]) == (5, 5, 0, 0)
    assert dense["p_value"] < 0.001 < unified["p_value"]
    assert {one["times_before"] for one in document["schemes"]} == {None}
    assert document["search"] is None


def test_the_page_has_one_row_for_each_scheme(tmp_path):
    runs = runs_of(tmp_path, greedy=(None, 1.0, 1.0), dense=DEAR[:3], flexible=CHEAP[:3])
    reader = Reader(page(runs, "title"))
    rows = [attributes["class"] for tag, attributes in reader.elements if tag == "tr" and "class" in attributes]
    assert rows == ["best", "", "missed"]
    assert "1 of 3 missed" in reader.text


def test_a_spread_of_an_unknown_value_is_unknown():
    assert Spread.of([1.0, None]) is None
    assert Spread.of([]) is None
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 1.0, 3.0)
    assert SchemeRuns("none", (), 2).seeds == 2
