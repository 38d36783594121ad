"""A recipe written into a scenario is read back to the last bit, and the rest of the file stays as it was."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.convergence.intervals import LawIntervals
from fewjoules.physics.message_size import MessageSize
from fewjoules.scenario.recipe_text import with_recipe, with_rounds
from fewjoules.scenario.schema.recipe import RecipeSearch
from tests import strategies
from tests.scenario.test_recipe_table import FLEET, OWN_LIMITS, RECIPE, ROUNDS, SIZES

PLAIN = FLEET.replace('inner = "momentum"\nmomentum = 0.9\n', "")
LAW = fj.PowerLawRounds(tau=164.3, c=0.0221, a=0.568, q=0.564)
FAST = fj.Recipe("fast", {"learning_rate": 0.5}, {"values": "int8"})
OTHER = fj.Recipe("other", {"learning_rate": 0.1, "batch_size": None})
SIZE = {"fixed_bits": 12.5, "scale": 0.93, "entry_bits": 4.0}


def read(text):
    return fj.Scenario.from_text(text, "fleet.toml", Path())


@st.composite
def law_intervals(draw, law):
    if isinstance(law, fj.BoundRounds):
        return None
    constants = {name: getattr(law, name) for name in law.__dataclass_fields__}
    names = draw(st.sets(st.sampled_from(sorted(constants))))
    if not names:
        return None
    return LawIntervals(law, {name: (constants[name] * 0.9, constants[name] * 1.1) for name in sorted(names)})


@settings(deadline=None, max_examples=60)
@given(strategies.rounds_models(), st.none() | st.floats(0.0, 10.0), st.sampled_from([PLAIN + RECIPE, RECIPE + PLAIN]))
def test_a_law_is_read_back_as_it_was_written_and_the_rest_stays(law, weight, before):
    text = with_rounds(before, law, downlink_weight=weight, comment="rough")
    found = read(text)
    assert (found.rounds, found.downlink_weight) == (law, weight)
    assert text.startswith(before)
    assert found.recipe == read(before).recipe


def test_a_law_that_is_there_is_not_replaced():
    with pytest.raises(fj.InvalidInputError, match=r"must have no \[rounds\] yet"):
        with_rounds(PLAIN + ROUNDS, LAW)


@settings(deadline=None, max_examples=60)
@given(strategies.recipes(), strategies.rounds_models(), st.data())
def test_a_recipe_is_read_back_as_it_was_written(recipe, law, data):
    intervals = data.draw(law_intervals(law))
    before = data.draw(st.sampled_from([PLAIN, PLAIN + ROUNDS, PLAIN + RECIPE, RECIPE + PLAIN + ROUNDS]))
    weight = data.draw(st.none() | st.floats(0.0, 10.0))
    text = with_recipe(
        before, recipe, law, intervals, downlink_weight=weight, message_size=SIZE, comment="found by hand"
    )
    found = read(text)
    assert found.recipe == recipe
    own = found.under_recipe()
    assert own.rounds == law
    assert own.downlink_weight == weight
    assert (own.rounds_intervals is None) == (intervals is None)
    if intervals is not None:
        assert own.rounds_intervals.intervals == intervals.intervals
    assert own.message_size == MessageSize(**SIZE)
    assert own.downlink_message_size is None
    assert own.local_steps == read(before).local_steps
    assert found.rounds == read(before).rounds
    assert text.count("# found by hand\n") == 1


@given(strategies.recipes(), strategies.recipes())
def test_a_recipe_that_is_replaced_leaves_nothing_behind(first, second):
    for before in (PLAIN, PLAIN + "# the end", PLAIN + "\n\n"):
        once = with_recipe(before, second, LAW, comment="second")
        assert with_recipe(with_recipe(before, first, LAW, comment="first"), second, LAW, comment="second") == once


def test_everything_else_of_the_file_stays_where_it_is():
    above, below = (
        f"# my fleet\n{PLAIN}\n",
        '\n# the law of the paper\n[rounds]  # guessed\nkind = "paper"\nalpha = 1e-4\nbeta = 1.0',
    )
    text = with_recipe(above + RECIPE.lstrip() + "# of the messages\n" + OWN_LIMITS + SIZES + below, FAST, LAW)
    assert text.startswith(above + "[recipe]\n")
    assert text.endswith("q = 0.564\n" + below)
    assert "of the messages" not in text
    assert "recipe.limits" not in text
    assert read(text).recipe == FAST


def test_a_recipe_goes_to_the_end_of_a_file_without_one():
    text = with_recipe(PLAIN, FAST, LAW, comment="by 12 runs")
    assert text.startswith(PLAIN + "\n[recipe]\n# by 12 runs\n" + 'name = "fast"\n\n[recipe.optimiser]\n')
    assert with_recipe(PLAIN.rstrip(), FAST, LAW, comment="by 12 runs") == text


def test_what_the_search_for_a_recipe_found_and_took_is_read_back():
    search = {"plain_learning_rate": 0.2, "pilots": 11, "pilot_client_steps": np.int64(42_000), "pilot_joules": 22.5}
    text = with_recipe(PLAIN, FAST, LAW, **search)
    assert read(text).recipe_search == RecipeSearch(**search)
    assert read(text).recipe == FAST
    again = with_recipe(text, FAST, LAW, pilots=12)
    assert read(again).recipe_search == RecipeSearch(pilots=12)


def test_tables_of_a_recipe_that_stand_apart_are_all_replaced():
    law = RECIPE[RECIPE.index("[recipe.rounds]") :]
    apart = RECIPE.replace(law, "") + PLAIN + "\n# apart\n" + law + "# last"
    text = with_recipe(apart, FAST, LAW)
    assert read(text).recipe == FAST
    assert text.count("[recipe") == 4
    assert text.endswith("# apart\n# last")


def test_the_ends_of_lines_stay():
    text = with_recipe((PLAIN + RECIPE).replace("\n", "\r\n"), OTHER, LAW)
    assert text.count("\n") == text.count("\r\n")
    assert read(text).recipe == OTHER


@pytest.mark.parametrize("spelling", ["[ recipe ]", '["recipe"]', "\t['recipe'] # mine"])
def test_a_header_may_be_spelled_differently(spelling):
    text = with_recipe(PLAIN + RECIPE.replace("[recipe]", spelling), FAST, LAW)
    assert read(text).recipe == FAST
    assert spelling not in text


@pytest.mark.parametrize("value", ['"""\n[recipe]\n"""', "'''\n[recipe.rounds]\nx = 1'''"])
def test_what_only_looks_like_a_table_stays(value):
    before = PLAIN.replace("[[device]]", f"[[device]]\nname = {value}")
    text = with_recipe(before, FAST, LAW)
    assert text.startswith(before)


def test_what_only_looks_like_the_next_table_does_not_end_a_recipe():
    before = PLAIN + RECIPE + "correlations = [\n[\n],\n]\n"
    assert with_recipe(before, FAST, LAW) == with_recipe(PLAIN, FAST, LAW)


def test_limits_numbers_of_numpy_and_endless_intervals_are_written():
    law = fj.PowerLawRounds(tau=np.float64(164.3), c=np.float64(0.1), a=0.5, q=1 / 3)
    intervals = LawIntervals(law, {"tau": (np.float64(0.0), math.inf)})
    limits = {"sparsity": {"min": 2.0, "max": np.float64(1e16)}, "local_steps": [1, np.int64(4)]}
    own = read(with_recipe(PLAIN, FAST, law, intervals, limits=limits)).under_recipe()
    assert own.rounds == law
    assert own.sparsity == (2.0, 1e16)
    assert own.local_steps == (1, 4)
    assert own.rounds_intervals.intervals == {"tau": (1e-100, 1e100)}


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (PLAIN, {"comment": "two\nlines"}, r"comment must be one line of printable characters, got 'two\\nlines'"),
        (PLAIN, {"limits": {"sparsity": 3.0}}, "recipe.limits.sparsity must be a table, got 3.0"),
        (
            PLAIN,
            {"message_size": SIZE | {"luck": 1.0}},
            "recipe.message_size.luck is not a known key; allowed are fixed",
        ),
        (PLAIN, {"recipe": fj.Recipe("x", {"learning_rate": -1.0})}, "recipe.optimiser.learning_rate must be above 0"),
        (PLAIN, {"plain_learning_rate": 0.0}, "recipe.plain_learning_rate must be above 0, got 0.0"),
        (PLAIN, {"pilots": 0}, "recipe.pilots must be at least 1, got 0"),
        (PLAIN, {"pilot_joules": -1.0}, "recipe.pilot_joules must be at least 0, got -1.0"),
        (PLAIN, {"law": "paper"}, "the law of a recipe must be a rounds model of a file, got str"),
        ('recipe = {name = "x"}\n' + PLAIN, {}, r"must be written as tables, \[recipe\], got another form"),
        ('recipe.name = "x"\n' + PLAIN, {}, r"must be written as tables, \[recipe\], got another form"),
        ("[model", {}, "must be TOML"),
    ],
)
def test_what_could_not_be_read_back_is_refused(text, given, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        with_recipe(text, **{"recipe": FAST, "law": LAW} | given)
