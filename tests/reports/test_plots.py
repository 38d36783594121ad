"""The ridge: ticks of H stand at whole numbers that can be read, and the figure has a description."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.reports.plots import plot_energy_by_local_steps, step_ticks
from fewjoules.scenario.planning import ScenarioPlans
from tests.scenarios import without_tails


@pytest.mark.parametrize(
    ("steps", "ticks"),
    [
        ([7], [7]),
        ([1, 2, 3], [1, 2, 3]),
        (range(1, 21), [1, 5, 10, 15, 20]),
        (range(3, 19), [3, 6, 8, 10, 12, 14, 16, 18]),
        (range(1, 51), [1, 2, 5, 10, 20, 50]),
        ([1, 1_000_000], [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]),
    ],
)
def test_ticks_of_local_steps(steps, ticks):
    assert step_ticks(np.array(steps)) == ticks


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=9).map(lambda steps: np.unique(steps)))
def test_ticks_are_whole_numbers_in_order_from_the_least_h(steps):
    ticks = step_ticks(steps)
    assert all(type(tick) is int for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert ticks[0] == steps[0]
    assert ticks[-1] <= steps[-1]
    assert len(ticks) <= 12


def test_the_figure_has_whole_ticks_and_words(tmp_path):
    planning = ScenarioPlans(without_tails())
    plan = planning.plan("flexible")
    plot_energy_by_local_steps(planning, [plan], tmp_path / "ridge.svg")
    root = ElementTree.parse(tmp_path / "ridge.svg").getroot()
    assert root.get("role") == "img"
    assert f"flexible plan, H = {plan.local_steps}, {plan.energy_joules:.4g} J" in root.get("aria-label", "")
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:5] == ["1", "5", "10", "15", "20"]
