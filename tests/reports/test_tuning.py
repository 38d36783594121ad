"""The ranking of contenders in the report of a tuning."""

import math
from types import SimpleNamespace

import pytest

from fewjoules.reports.tuning import ranked, ranking_cells
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.outcome import Contender


def contender(name, rate, steps, loss, metric, expected=math.inf):
    return Contender(name=name, learning_rate=rate, steps=steps, loss=loss, metric=metric, expected_steps=expected)


FAST = contender("momentum", 0.4, 27, 0.5, 0.86, 27.0)
CAREFUL = contender("momentum", 0.2, 36, 0.3, 0.92, 36.0)
PLAIN = contender("SGD", 0.4, 48, 0.4, 0.88, 48.0)
SHORT = contender("SGD", 0.2, 24, 1.8, 0.60, 1e13)
FAR = contender("Adam", 0.004, 48, 0.7, 0.80, 90.0)
BROKEN = contender("Adam", 0.4, 60, math.inf, -math.inf)


def tuning(rate, *contenders):
    tuned = SimpleNamespace(
        optimiser="momentum", optimiser_options={"learning_rate": rate}, contenders=contenders, pilots=[]
    )
    return SimpleNamespace(tuned=tuned, aim=Aim("accuracy", 0.85))


@pytest.fixture
def rows():
    return ranked(tuning(0.4, BROKEN, SHORT, FAR, PLAIN, CAREFUL, FAST))


def test_who_reached_the_target_is_ranked_by_steps_and_the_others_by_how_far_they_went(rows):
    assert [row.contender for row in rows] == [FAST, CAREFUL, PLAIN, FAR, SHORT, BROKEN]


def test_the_recipe_is_the_contender_with_its_step_size(rows):
    assert [row.chosen for row in rows] == [True] + 5 * [False]
    other = ranked(tuning(0.2, FAST, CAREFUL))
    assert other[0].contender == CAREFUL
    assert other[0].chosen


def test_a_step_size_of_the_replanned_recipe_that_did_not_race_stands_for_the_best_of_its_optimiser():
    assert ranked(tuning(0.3, CAREFUL, FAST))[0].contender == FAST


def test_a_curve_that_is_nearly_flat_tells_no_steps(rows):
    assert ranking_cells(rows[4])[-1] == "unknown"
    assert ranking_cells(rows[3])[-1] == "about 90"


def test_steps_that_a_pilot_took_are_told_as_they_are(rows):
    assert [ranking_cells(row)[-1] for row in rows[:2]] == [
        f"{FAST.expected_steps:,.0f}",
        f"{CAREFUL.expected_steps:,.0f}",
    ]
