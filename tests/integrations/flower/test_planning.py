"""Plans of a deployment: from the costs that nodes report, or from the scenario's own fleet."""

import numpy as np
import pytest

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.scenario import Scenario
from tests.integrations.flower.counted import CLIENTS, SIZE, initial

SCENARIO = """
version = 1
[model]
parameters = {size}
[rounds]
kind = "power-law"
tau = 20.0
c = 0.02
a = 0.5
q = 0.5
[limits]
sparsity = {{min = 1.0, max = 6.0}}
local_steps = {{min = 1, max = 5}}
[training]
data = "digits"
learning_rate = 0.1
batch_size = 1
rounds = 2
"""
DEVICE = """
[[device]]
name = "{name}"
joules_per_bit = {bit}
joules_per_step = {step}
"""
COSTS = [(1e-3 * 4**number, 0.01) for number in range(CLIENTS)]


def scenario(tmp_path, devices, name="scenario.toml"):
    path = tmp_path / name
    text = SCENARIO.format(size=SIZE)
    path.write_text(text + "".join(DEVICE.format(name=f"d{i}", bit=b, step=s) for i, (b, s) in enumerate(devices)))
    return path


@pytest.fixture(name="planned")
def planned_run(counted, tmp_path):
    """A run whose scenario has a fleet of equal devices, and a function that starts it."""
    run = counted()
    path = scenario(tmp_path, [(1.0, 1.0)] * CLIENTS)

    def start(**given):
        strategy = run.strategy(scenario=path, options=None, **given)
        strategy.start(run.grid, initial())
        return strategy

    run.start = start
    return run


def plan_of(path):
    return SCHEMES["flexible"](Scenario.from_toml(path).problem())


def test_costs_of_the_node_configs_reach_the_plan(planned, tmp_path):
    for (bit, step), node in zip(COSTS, planned.grid.nodes.values(), strict=True):
        node["config"] |= {"joules-per-bit": bit, "joules-per-step": step}
    strategy = planned.start()
    expected = plan_of(scenario(tmp_path, COSTS, "expected.toml"))
    np.testing.assert_array_equal(strategy.plan.sparsity, expected.sparsity)
    assert strategy.plan.local_steps == expected.local_steps
    assert len(set(expected.sparsity)) > 1
    rows = strategy.loop.ledger.rows()
    assert rows["compute_joules"].tolist() == [expected.local_steps * 0.01] * (2 * CLIENTS)
    np.testing.assert_allclose(
        rows["uplink_joules"], 8 * rows["payload_bytes"] * np.tile([bit for bit, _ in COSTS], 2), rtol=1e-12
    )
    saved = Plan.load(planned.server_folder / "plan.json")
    np.testing.assert_array_equal(saved.sparsity, expected.sparsity)


def test_a_device_file_reaches_the_plan(planned, tmp_path):
    for number, ((bit, step), node) in enumerate(zip(COSTS, planned.grid.nodes.values(), strict=True)):
        path = tmp_path / f"{number}.toml"
        path.write_text(DEVICE.format(name="mine", bit=bit, step=step))
        node["config"] |= {"device-file": str(path)}
    expected = plan_of(scenario(tmp_path, COSTS, "expected.toml"))
    np.testing.assert_array_equal(planned.start().plan.sparsity, expected.sparsity)


def test_without_reports_the_fleet_is_that_of_the_scenario(planned, tmp_path):
    expected = plan_of(scenario(tmp_path, [(1.0, 1.0)] * CLIENTS, "expected.toml"))
    np.testing.assert_array_equal(planned.start().plan.sparsity, expected.sparsity)


@pytest.mark.parametrize("missing", ["joules-per-bit", "joules-per-step"])
def test_a_missing_cost_names_the_client(planned, missing):
    for node in planned.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01}
    del planned.grid.nodes[102]["config"][missing]
    with pytest.raises(InvalidInputError, match=f"client '2' must report {missing} in its node config or device file"):
        planned.start()
    assert planned.trainings == []


def test_a_node_that_reports_nothing_among_others_is_named(planned):
    planned.grid.nodes[101]["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01}
    with pytest.raises(InvalidInputError, match="client '0' must report joules-per-bit"):
        planned.start()


def test_a_fleet_of_another_size_is_refused_where_nodes_report_nothing(counted, tmp_path):
    run = counted()
    path = scenario(tmp_path, [(1.0, 1.0)] * 3)
    strategy = run.strategy(scenario=path, options=None, clients=CLIENTS)
    with pytest.raises(InvalidInputError, match="one device for each of 4 clients, got 3"):
        strategy.start(run.grid, initial())


def test_a_fleet_of_another_size_does_not_matter_where_nodes_report(counted, tmp_path):
    run = counted()
    for node in run.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01}
    strategy = run.strategy(scenario=scenario(tmp_path, [(1.0, 1.0)] * 3), options=None, clients=CLIENTS)
    strategy.start(run.grid, initial())
    assert strategy.plan.sparsity.size == CLIENTS


def test_a_folder_of_another_plan_is_refused_and_keeps_its_plan(planned, tmp_path):
    planned.start()
    before = (planned.server_folder / "plan.json").read_bytes()
    other = scenario(tmp_path, [(1.0 + number, 0.001) for number in range(CLIENTS)], "other.toml")
    with pytest.raises(InvalidInputError, match=r"checkpoint\.safetensors"):
        planned.strategy(scenario=other, options=None).start(planned.grid, initial())
    assert (planned.server_folder / "plan.json").read_bytes() == before


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scheme": "best"}, "scheme must be one of .*, got 'best'"),
        ({"clients": 0}, "clients must be"),
        ({"clients": -1}, "clients must be"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(planned, given, sentence):
    with pytest.raises(FewJoulesError, match=sentence):
        planned.start(**given)
