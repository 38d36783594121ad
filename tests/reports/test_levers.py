"""Levers in reports: in their order whatever they took, with what each brought, and no failure hidden."""

import json

import pytest

from fewjoules.reports.comparison import column_titles, comparison_rows, ranked
from fewjoules.reports.comparison_file import comparison_json
from fewjoules.reports.lever_words import price_sentences
from fewjoules.reports.levers import shows_levers, times_before
from fewjoules.reports.page import page
from fewjoules.reports.seed_comparison import overall_headline, seed_rows, seed_titles
from fewjoules.reports.seeds import grouped, verdicts
from fewjoules.scenario.schema.recipe import RecipeSearch
from tests.reports.test_page import Reader
from tests.reports.test_seeds import run_of

SEARCH = RecipeSearch(pilots=11, pilot_client_steps=42_000, pilot_joules=22.5)
JOULES = {"dense": 90.0, "fewest": 5.0, "flexible": 10.0, "optimiser": 6.0, "step-size": 8.0, "values": 4.0}


def runs_of(folder, **joules):
    """One run of each scheme, its name with an underscore; None: it missed the target."""
    return [run_of(folder, name.replace("_", "-"), 0, one) for name, one in joules.items()]


def made(folder, **changes):
    return runs_of(folder, **{name.replace("-", "_"): one for name, one in (JOULES | changes).items()})


def seeds_of(folder, **joules):
    return [
        run_of(folder, name.replace("_", "-"), seed, one)
        for name, own in joules.items()
        for seed, one in enumerate(own)
    ]


def said(runs, diverged=None):
    return overall_headline(runs, diverged).replace("\u00a0", " ")


def test_levers_stand_in_their_order_before_the_other_schemes(tmp_path):
    runs = made(tmp_path)
    wanted = ["flexible", "+ step size", "+ optimiser", "+ values", "fewest", "dense"]
    assert [row.cells[0] for row in comparison_rows(ranked(runs))] == wanted
    assert [group.name for group in grouped(runs)] == wanted
    assert column_titles(runs)[-2:] == ("x least", "x before")
    cells = [row.cells[-2:] for row in comparison_rows(ranked(runs))]
    least = ("2.50", "2.00", "1.50", "1.00", "1.25", "22.5")
    assert cells == list(zip(least, ("", "0.80", "0.75", "0.67", "1.25", ""), strict=True))


def test_flexible_and_fewest_alone_are_ranked_as_before(tmp_path):
    runs = runs_of(tmp_path, flexible=10.0, fewest=5.0, dense=90.0)
    assert [run.summary.scheme for run in ranked(runs)] == ["fewest", "flexible", "dense"]
    assert column_titles(runs)[-1] == "x least"
    assert said(runs).startswith("fewest reached 97 % with 5 J; dense took 18 times as much.")


def test_a_lever_after_one_that_missed_the_target_has_no_factor(tmp_path):
    rows = comparison_rows(ranked(made(tmp_path, **{"step-size": None})))
    assert [row.cells[-1] for row in rows] == ["", "-", "-", "0.67", "1.25", ""]
    assert rows[1].cells[-2].startswith("missed: ")


def test_factors_multiply_to_the_whole():
    joules = {name: one for name, one in JOULES.items() if name != "dense"}
    times = times_before(joules)
    product = 1.0
    for factor in times.values():
        product *= factor
    assert product == pytest.approx(joules["fewest"] / joules["flexible"])
    assert list(times) == ["step-size", "optimiser", "values", "fewest"]


@pytest.mark.parametrize(
    ("schemes", "shown"),
    [
        (["flexible", "fewest"], False),
        (["values"], False),
        (["values", "dense"], False),
        (["flexible", "values"], True),
        (["flexible", "averaging"], True),
        (["optimiser", "fewest", "dense"], True),
        ([], False),
    ],
)
def test_levers_are_shown_where_one_stands_beside_another(schemes, shown):
    assert shows_levers(schemes) is shown


def test_the_headline_tells_the_factor_and_what_took_even_less(tmp_path):
    assert said(made(tmp_path)) == (
        "fewest took 0.50 of flexible's joules to 97 %: 5 J instead of 10 J; dense took 18 times as much as fewest. "
        "+ values took even less, 4 J. This is the result of one seed; another may rank them differently."
    )


def test_levers_to_a_loss_are_told_in_its_words(tmp_path):
    loss = {"target_accuracy": None, "target_loss": 0.3, "stop_reason": "target loss"}
    runs = [run_of(tmp_path, name, 0, JOULES[name], **loss) for name in ("flexible", "optimiser", "fewest")]
    assert said(runs).startswith("fewest took 0.50 of flexible's joules to loss 0.3: 5 J instead of 10 J.")
    assert [row.cells[-1] for row in comparison_rows(ranked(runs))] == ["", "0.60", "0.83"]


def test_a_recipe_that_costs_more_is_not_praised(tmp_path):
    sentence = said(made(tmp_path, fewest=12.0))
    assert sentence.startswith("fewest took 1.20 times flexible's joules to 97 %: 12 J instead of 10 J;")


def test_without_both_ends_the_headline_ranks(tmp_path):
    assert said(made(tmp_path, flexible=None)).startswith("+ values reached 97 % with 4 J; dense took 22.5 times")


def test_seeds_have_mean_factors_and_ties_by_the_best_wherever_it_stands(tmp_path):
    runs = seeds_of(
        tmp_path,
        flexible=(10.0, 11.0, 12.0),
        optimiser=(6.0, 6.7, 7.3),
        values=(5.0, 5.4, 6.1),
        fewest=(5.1, 5.3, 6.1),
    )
    groups = grouped(runs)
    assert [group.name for group in groups] == ["flexible", "+ optimiser", "+ values", "fewest"]
    assert [verdict.tied for verdict in verdicts(groups)] == [False, False, True, True]
    assert seed_titles(groups)[-3:] == ("x least", "x before", "noise")
    assert [row.cells[-2:] for row in seed_rows(groups)] == [("", ""), ("0.61", ""), ("0.82", "tied"), ("1.00", "tied")]
    assert said(runs) == (
        "Over 3 seeds fewest took 0.50 of flexible's joules to 97 %: 5.5 J (5.1 to 6.1) instead of 11 J (10 to 12). "
        "+ values and fewest are tied within the noise."
    )


def test_a_lever_of_which_a_seed_diverged_has_no_factor(tmp_path):
    runs = seeds_of(tmp_path, flexible=(10.0, 11.0), optimiser=(6.0,), fewest=(5.0, 5.5))
    groups = grouped(runs, {"optimiser": 1})
    assert [group.diverged for group in groups] == [0, 1, 0]
    assert [row.cells[-1] for row in seed_rows(groups)] == ["", "-", "-"]
    assert "Fewer than 3 seeds cannot tell such a difference from noise." in said(runs, {"optimiser": 1})
    document = json.loads(comparison_json("mine", runs, {"optimiser": 1}, seeds=range(2), rates={}))
    assert [(one["scheme"], one["diverged"]) for one in document["schemes"]] == [
        ("flexible", 0),
        ("optimiser", 1),
        ("fewest", 0),
    ]


@pytest.mark.parametrize(
    ("search", "joules", "sentence"),
    [
        (SEARCH, {}, ["Finding the recipe took 11 pilot runs, 22.5 J on these devices: paid after 5 trainings."]),
        (
            SEARCH,
            {"fewest": 10.0},
            ["Finding the recipe took 11 pilot runs, 22.5 J on these devices, and it saved nothing here."],
        ),
        (SEARCH, {"fewest": None}, ["Finding the recipe took 11 pilot runs, 22.5 J on these devices."]),
        (
            RecipeSearch(pilots=1, pilot_joules=4.0),
            {},
            ["Finding the recipe took 1 pilot run, 4 J on these devices: paid after 1 training."],
        ),
        (RecipeSearch(pilots=7), {}, ["Finding the recipe took 7 pilot runs."]),
        (
            RecipeSearch(pilots=7, pilot_client_steps=42_000),
            {},
            ["Finding the recipe took 7 pilot runs of 42,000 client-steps in all."],
        ),
        (RecipeSearch(plain_learning_rate=0.1), {}, []),
    ],
)
def test_the_price_of_a_recipe_in_words(tmp_path, search, joules, sentence):
    groups = grouped(made(tmp_path, **joules))
    assert [one.replace("\u00a0", " ") for one in price_sentences(groups, search)] == sentence


@pytest.mark.parametrize(
    ("joules", "trainings"),
    [({"values": 4.0}, 4), ({"averaging": 5.0}, 5), ({"averaging": 5.0, "values": 4.0}, 4), ({}, 6)],
    ids=["values", "mean of models", "both", "optimiser"],
)
def test_where_planning_anew_changes_nothing_the_lever_before_tells_what_was_saved(tmp_path, joules, trainings):
    groups = grouped(runs_of(tmp_path, flexible=10.0, optimiser=6.0, **joules))
    assert price_sentences(groups, SEARCH)[0].endswith(f"paid after {trainings} trainings.")


def test_a_comparison_without_fewest_does_not_speak_of_its_price(tmp_path):
    assert price_sentences(grouped(runs_of(tmp_path, flexible=10.0, dense=90.0)), SEARCH) == []


def test_the_page_marks_the_best_lever_where_it_stands(tmp_path):
    reader = Reader(page(made(tmp_path), "title", search=SEARCH))
    marked = [attributes["class"] for tag, attributes in reader.elements if tag == "tr" and "class" in attributes]
    runs = [run.summary.scheme for run in made(tmp_path / "again")]
    assert marked.count("best") == 1
    assert marked.index("best") == runs.index("values")
    assert "paid after 5 trainings" in reader.text


def test_the_bars_of_the_page_are_in_words_too(tmp_path):
    kinds = {"uplink": {"fitted": 3.0}, "compute": {"profile": 5.0}}
    runs = [
        run_of(tmp_path, name, 0, JOULES[name], joules_by_kind=kinds)
        for name in ("flexible", "step-size", "fewest", "dense")
    ]
    reader = Reader(page(runs, "title"))
    words = [attributes["aria-label"] for _, attributes in reader.elements if "aria-label" in attributes]
    words = [text for text in words if "each lever" in text]
    assert words == [
        "Bar chart of the joules of each lever: flexible 8 J; + step size 8 J, 0.80 times the one before; fewest 8 J, "
        "0.62 times the one before."
    ]
