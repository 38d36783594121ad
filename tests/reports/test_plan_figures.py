"""Figures of plans: the ridge keeps gaps where no plan is feasible, and bars add up to the joules they are made of."""

import json

import numpy as np
import pytest

from fewjoules.planner.schemes import flexible
from fewjoules.reports.plan_figures import kinds_figure, kinds_in_words, ridge_figure
from fewjoules.scenario.planning import ScenarioPlans
from tests.scenarios import without_tails


def ridge(energy):
    plan = flexible(ScenarioPlans(without_tails()).problem("flexible"))
    steps = {"flexible": np.arange(1, 1 + len(energy))}
    return ridge_figure(steps, {"flexible": np.array(energy)}, [plan]), plan


def test_an_h_without_a_plan_is_a_gap():
    figure, _ = ridge([5.0, np.inf, 3.0])
    assert figure["data"][0]["y"] == [5.0, None, 3.0]
    assert json.dumps(figure, allow_nan=False)


@pytest.mark.parametrize(("least", "kind"), [(1.0, "log"), (30.0, None)])
def test_a_wide_range_of_joules_is_drawn_on_a_logarithmic_axis(least, kind):
    figure, _ = ridge([90.0, least])
    assert figure["layout"]["yaxis"].get("type") == kind


def test_the_plan_is_marked_where_it_lies_on_the_scale():
    _, plan = ridge([1.0])
    near, _ = ridge([plan.energy_joules, 1.1 * plan.energy_joules])
    far, _ = ridge([9.0 * plan.energy_joules])
    assert near["data"][-1]["x"] == [plan.local_steps]
    assert near["data"][-1]["y"] == [plan.energy_joules]
    assert len(far["data"]) == 1


def test_bars_have_every_kind_that_occurs():
    joules = {"a": {"uplink": 1.0, "compute": 2.0, "codec": 0.0}, "<b>": {"tail": 4.0}}
    figure = kinds_figure(joules)
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {
        "uplink": [1.0, 0.0],
        "tail": [0.0, 4.0],
        "compute": [2.0, 0.0],
    }
    assert figure["layout"]["yaxis"]["ticktext"] == ["a", "&lt;b&gt;"]
    words = kinds_in_words("group", joules)
    assert words == "Bar chart of joules by group and kind: a 3 J, mostly compute; <b> 4 J, mostly tail."
