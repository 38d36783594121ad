"""The saving in a sentence and in a table, with nothing hidden."""

import io
import re

import pytest
from rich.console import Console

from fewjoules.reports.comparison import (
    byte_count,
    column_titles,
    comparison_rows,
    comparison_table,
    headline,
    labels,
    ranked,
    ratio,
    remarks,
)
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_comparison, make_run


def load(*folders):
    return ranked([RunResults.load(folder) for folder in folders])


def made(folder, **changes):
    return load(make_run(folder / "run", **changes))


def plain(text):
    return text.replace("\u00a0", " ")


def sentence(runs):
    return plain(headline(runs))


def printed(runs):
    output = io.StringIO()
    Console(file=output, width=140, highlight=False).print(comparison_table(runs))
    return plain(output.getvalue())


def test_the_cheapest_comes_first_and_those_that_missed_come_last(tmp_path):
    runs = load(*make_comparison(tmp_path))
    rows = comparison_rows(runs)
    assert [row.cells[0] for row in rows] == ["flexible", "unified", "fedavg", "dense", "greedy"]
    assert [row.missed for row in rows] == [False, False, False, False, True]
    joules = [run.summary.joules_to_target for run in runs]
    assert [row.cells[-1] for row in rows[:4]] == [ratio(value / joules[0]) for value in joules[:4]]


def test_the_headline_names_the_saving_and_a_remark_the_miss(tmp_path):
    runs = load(*make_comparison(tmp_path))
    assert sentence(runs) == "flexible reached 97 % with 9.12 J; dense took 50 times as much."
    assert [plain(text) for text in remarks(runs)] == [
        "greedy did not reach 97 %: it stopped at 95.24 % after 250 rounds (limit: rounds).",
        "This is the result of one seed; another may rank them differently.",
    ]


def test_a_run_that_missed_shows_what_it_spent_and_no_ratio(tmp_path):
    text = printed(load(*make_comparison(tmp_path)))
    (greedy,) = [line for line in text.splitlines() if line.startswith("greedy")]
    assert greedy.split()[1:4] == ["5", ">", "250"]
    assert greedy.rstrip().endswith("missed: 95.24 %")
    assert "J to target" in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "flexible reached 97 % with 19.2 J in 32 rounds."),
        ({"joules": None}, "flexible reached 97 % in 32 rounds."),
        ({"rounds": 1, "target": None, "test_accuracy": 0.5}, "flexible: 50 % test accuracy after 1 round and 0.6 J."),
        ({"rounds": 10, "test_accuracy": 0.7236}, "flexible did not reach 97 %: 72.36 % after 10 rounds and 6 J."),
        (
            {"rounds": 10, "target": None, "test_accuracy": 0.7236},
            "flexible: 72.36 % test accuracy after 10 rounds and 6 J.",
        ),
        (
            {"rounds": 10, "target": None, "test_accuracy": None},
            "flexible: no known test accuracy after 10 rounds and 6 J.",
        ),
    ],
)
def test_one_run_tells_its_outcome(tmp_path, changes, expected):
    assert sentence(made(tmp_path, **changes)) == expected


def test_nobody_reached_the_target(tmp_path):
    runs = load(make_run(tmp_path / "a", rounds=10), make_run(tmp_path / "b", scheme="dense", rounds=12))
    assert sentence(runs).startswith("No run reached 97 %; the closest was dense with ")
    assert len(remarks(runs)) == 2


TO_LOSS = {"target_accuracy": None, "target_loss": 0.3, "stop_reason": "target loss", "test_loss": 0.29}
MISSED = {"target_reached": False, "rounds_to_target": None, "joules_to_target": None, "test_loss": 0.4125}


def test_runs_to_a_loss_are_compared_in_its_words(tmp_path):
    cheap, dear = (
        make_run(tmp_path / scheme, scheme=scheme, joules=joules, **TO_LOSS)
        for scheme, joules in (("flexible", 0.1), ("dense", 0.2))
    )
    greedy = make_run(tmp_path / "greedy", scheme="greedy", **TO_LOSS | MISSED)
    runs = load(dear, cheap, greedy)
    assert re.fullmatch(r"flexible reached loss 0.3 with .* J; dense took 2 times as much\.", sentence(runs))
    assert plain(remarks(runs)[0]).startswith("greedy did not reach loss 0.3: it stopped at loss 0.4125")
    assert [row.cells[-1] for row in comparison_rows(runs)] == ["1.00", "2.00", "missed: loss 0.4125"]


def test_one_run_to_a_loss_or_a_perplexity_tells_its_outcome(tmp_path):
    met = made(tmp_path / "a", **TO_LOSS)
    assert sentence(met) == "flexible reached loss 0.3 with 19.2 J in 32 rounds."
    assert column_titles(met)[-1] == "loss"
    assert plain(comparison_rows(met)[0].cells[-1]) == "loss 0.29"
    perplexity = TO_LOSS | MISSED | {"target_loss": None, "target_perplexity": 1.5}
    assert sentence(made(tmp_path / "b", **perplexity)).startswith(
        "flexible did not reach perplexity 1.5: perplexity 1.511 after"
    )


def test_the_closest_to_a_loss_has_the_least(tmp_path):
    runs = load(
        make_run(tmp_path / "a", **TO_LOSS | MISSED),
        make_run(tmp_path / "b", scheme="dense", **TO_LOSS | MISSED | {"test_loss": 0.35}),
    )
    assert sentence(runs) == "No run reached loss 0.3; the closest was dense with loss 0.35."


def test_runs_with_different_targets_are_not_compared(tmp_path):
    runs = load(make_run(tmp_path / "a", target=0.9), make_run(tmp_path / "b", scheme="dense"))
    assert sentence(runs) == "2 runs without a common target"
    assert "x least" not in printed(runs)


def test_missing_joules_are_said_and_shown_as_missing(tmp_path):
    runs = load(make_run(tmp_path / "a", joules=None), make_run(tmp_path / "b", scheme="dense"))
    assert sentence(runs) == "dense reached 97 % with 19.2 J."
    assert remarks(runs) == ["No fleet was given for flexible, so joules are unknown."]
    assert comparison_rows(runs)[1].cells[3:6] == ("-", "-", "-")


def test_an_interrupted_run_is_said_to_be(tmp_path):
    runs = made(tmp_path, target=None, stop_reason="interrupted")
    assert remarks(runs) == ["flexible was interrupted after 60 rounds."]


def test_runs_of_one_scheme_are_numbered(tmp_path):
    runs = load(
        make_run(tmp_path / "a"), make_run(tmp_path / "b", joules=0.1), make_run(tmp_path / "c", scheme="dense")
    )
    assert labels(runs) == ["flexible #1", "dense", "flexible #2"]


def test_names_are_not_markup(tmp_path):
    assert "[bold]x[/bold]" in printed(made(tmp_path, scheme="[bold]x[/bold]"))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (456_000, "456 kB"), (1_234_567, "1.235 MB"), (10**19, "1e+04 PB")],
)
def test_bytes_are_readable(count, text):
    assert byte_count(count) == text


@pytest.mark.parametrize(("value", "text"), [(1.0, "1.00"), (9.99, "9.99"), (18.62, "18.6"), (1234.5, "1,234")])
def test_ratios_have_three_digits(value, text):
    assert ratio(value) == text
