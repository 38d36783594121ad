"""What a comparison trains: plans with the scenario's options, presets with those of their papers."""

import math

import numpy as np
import pytest

from fewjoules.cli.entrants import NAMES, SETS, entries_of
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.presets import PRESETS
from fewjoules.errors import InvalidInputError
from fewjoules.planner.schemes import SCHEMES
from fewjoules.runs.device import choose_device
from fewjoules.runs.entry import METHOD_OPTIONS, planned_entry, preset_entry
from fewjoules.runs.task import options_for, prepare
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from tests.scenario.test_training_scenario import ROUNDS, trained_with
from tests.test_bad_input import write

TASK_OPTIONS = ("local_steps", "sparsity", "weighting", "weight_decay", "gradient_clip")


def task_of(folder, *lines, replace=()):
    text = trained_with(*lines)
    for old, new in replace:
        assert old in text
        text = text.replace(old, new)
    return prepare(Scenario.from_toml(write(folder, text)), choose_device("cpu"))


def preset_options(task, name):
    problem = task.scenario.problem()
    return preset_entry(name, problem, [SCHEMES["flexible"](problem), SCHEMES["dense"](problem)]).options(task)


def test_every_option_of_a_method_is_an_option_and_every_option_of_a_preset_is_known():
    assert set(METHOD_OPTIONS) <= set(TrainingOptions.__dataclass_fields__)
    assert {key for preset in PRESETS.values() for key in preset.options} <= {*METHOD_OPTIONS, *TASK_OPTIONS}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_keeps_its_options_whatever_method_the_scenario_has(name, tmp_path):
    lines = ["momentum = 0.5", 'outer = "adam"', 'values = "float16"', "weight_decay = 0.3", "batch_size = 7"]
    lines += ["outer_beta2 = 0.5", "residual_decay = 0.5", "averaging = 0.3"]
    own = preset_options(task_of(tmp_path, *lines), name)
    wanted = {"local_steps": 1, "sparsity": 1.0, "weight_decay": 0.3} | PRESETS[name].options
    plain = TrainingOptions.of(
        **wanted | {"sparsity": np.full(4, wanted["sparsity"])}, rounds=2, learning_rate=0.1, batch_size=7, preset=name
    )
    assert own.to_dict() == plain.to_dict()


@pytest.mark.parametrize("name", ["dgc", "slowmo", "diloco"])
def test_without_rounds_a_preset_may_take_the_local_steps_of_the_longest_plan(name, tmp_path):
    task = task_of(tmp_path, "target_accuracy = 0.9", replace=[(ROUNDS, "")])
    problem = task.scenario.problem()
    plans = [scheme(problem) for scheme in SCHEMES.values()]
    steps = max(options_for(task, plan).rounds * plan.local_steps for plan in plans)
    (entry,) = entries_of(ScenarioPlans(task.scenario), [name], {})
    own = entry.options(task)
    assert own.rounds == math.ceil(steps / own.local_steps)
    assert (own.rounds - 1) * own.local_steps < steps


def test_where_no_plan_is_feasible_a_preset_needs_rounds(tmp_path):
    impossible = ("[limits]", "[limits]\nround_seconds = 1e-9")
    task = task_of(tmp_path, replace=[impossible])
    (entry,) = entries_of(ScenarioPlans(task.scenario), ["dgc"], {})
    assert entry.options(task).rounds == 2
    without = task_of(tmp_path, replace=[impossible, (ROUNDS, "")])
    (entry,) = entries_of(ScenarioPlans(without.scenario), ["dgc"], {})
    with pytest.raises(InvalidInputError, match=r"training\.rounds is missing"):
        entry.options(without)


def test_a_scheme_is_trained_as_its_plan_says(tmp_path):
    task = task_of(tmp_path, "momentum = 0.5")
    plan = SCHEMES["unified"](task.scenario.problem())
    entry = planned_entry(plan)
    assert (entry.name, entry.plan) == ("unified", plan)
    assert entry.options(task).to_dict() == options_for(task, plan).to_dict()


def test_a_step_size_changes_nothing_else(tmp_path):
    task = task_of(tmp_path, "momentum = 0.5")
    before, after = (
        entries_of(ScenarioPlans(task.scenario), ["dense", "dgc"], rates) for rates in ({}, {"dgc": 0.03, "dense": 0.2})
    )
    for old, new, rate in zip(before, after, (0.2, 0.03), strict=True):
        assert new.options(task).to_dict() == old.options(task).to_dict() | {"learning_rate": rate}


POINTS = """\
[[device.point]]
joules_per_step = 9e-4
seconds_per_step = 1e-3
[[device.point]]
joules_per_step = 1e-4
seconds_per_step = 4e-3
"""


def test_a_preset_is_trained_at_the_cheapest_operating_points(tmp_path):
    """The tables of points close a [[device]], so they follow its other keys."""
    radio = "mean_snr_db = 10.0\n"
    points = radio + POINTS
    task = task_of(tmp_path, replace=[("joules_per_step = 5e-4\nseconds_per_step = 2e-3\n", ""), (radio, points)])
    entry = preset_entry("dgc", task.scenario.problem(), [])
    np.testing.assert_array_equal(entry.fleet(task.scenario.fleet).joules_per_step, 1e-4)


def test_sets_of_names_hold_names_and_no_preset_hides_a_scheme():
    assert set(SETS["paper"]) == set(SCHEMES)
    assert set(SETS["all"]) < set(NAMES)
    assert not set(SCHEMES) & set(PRESETS)
    assert not set(SETS) & set(NAMES)
