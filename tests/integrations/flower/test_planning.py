"""Plans of a deployment: from the costs that nodes report, or from the scenario's own fleet."""

import json

import numpy as np
import pytest

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.deployment import Deployment
from fewjoules.integrations.flower.identity import Introduction
from fewjoules.integrations.flower.planning import reported_fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.provenance import KINDS, MARKS
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
RECIPE = """
[recipe]
name = "server momentum"
optimiser = {learning_rate = 0.2, outer = "nesterov"}
rounds = {kind = "power-law", tau = 10.0, c = 0.02, a = 0.5, q = 0.5}
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


def test_a_scenario_with_a_recipe_is_planned_by_it_and_trained_with_it(counted, tmp_path):
    run, path = counted(), scenario(tmp_path, COSTS)
    path.write_text(path.read_text() + RECIPE)
    strategy = run.strategy(scenario=path, options=None)
    strategy.start(run.grid, initial())
    own = Scenario.from_toml(path)
    assert strategy.plan.scheme == "fewest"
    assert strategy.plan.recipe == own.recipe
    assert strategy.plan.energy_joules == SCHEMES["flexible"](own.recipe_problem()).energy_joules
    assert strategy.loop.simulator.options.outer == "nesterov"
    assert strategy.loop.simulator.options.learning_rate == 0.2


def test_a_device_file_reaches_the_plan(planned, tmp_path):
    for number, ((bit, step), node) in enumerate(zip(COSTS, planned.grid.nodes.values(), strict=True)):
        path = tmp_path / f"{number}.toml"
        path.write_text(DEVICE.format(name="mine", bit=bit, step=step))
        node["config"] |= {"device-file": str(path)}
    expected = plan_of(scenario(tmp_path, COSTS, "expected.toml"))
    np.testing.assert_array_equal(planned.start().plan.sparsity, expected.sparsity)


def test_a_measured_device_file_books_measured_joules(planned, tmp_path):
    file = tmp_path / "measured.toml"
    file.write_text(DEVICE.format(name="mine", bit=1e-3, step=0.01) + 'provenance = {compute = "measured"}\n')
    for node in planned.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01}
    planned.grid.nodes[100]["config"] |= {"device-file": str(file)}
    planned.grid.nodes[101]["config"] |= {"provenance": "profile"}
    strategy = planned.start()
    rows = strategy.loop.ledger.rows()
    marks = {kind: np.array(MARKS)[rows[f"{kind}_mark"][:CLIENTS]].tolist() for kind in ("uplink", "compute")}
    assert marks == {
        "uplink": ["assumed", "profile", "assumed", "assumed"],
        "compute": ["measured", "profile", "assumed", "assumed"],
    }
    assert strategy.plan.joules["compute"].keys() == {"measured", "profile", "assumed"}


def test_a_server_that_is_started_again_knows_where_joules_come_from(planned):
    for node in planned.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01, "provenance": "measured"}
    planned.start()
    deployment = Deployment.load(planned.server_folder)
    assert [client.marks for client in deployment.clients] == [dict.fromkeys(KINDS, "measured")] * CLIENTS


def test_a_deployment_that_was_begun_before_joules_had_marks_is_read(planned):
    planned.start()
    file = planned.server_folder / "deployment.json"
    data = json.loads(file.read_text())
    for client in data["clients"]:
        del client["marks"]
    file.write_text(json.dumps(data | {"version": 1}))
    assert [client.marks for client in Deployment.load(planned.server_folder).clients] == [{}] * CLIENTS


def test_a_provenance_that_is_no_mark_is_named(planned, caplog):
    for node in planned.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01, "provenance": "guessed"}
    with pytest.raises(FewJoulesError, match="4 clients must be online to begin, got 0"):
        planned.start()
    assert (
        "provenance of the node config must be one of measured, fitted, profile, assumed, got 'guessed'" in caplog.text
    )


def told(*costs):
    usual = {"joules_per_bit": 1e-3, "joules_per_step": 0.01}
    return [Introduction(str(number), 0, usual | own) for number, own in enumerate(costs)]


@pytest.mark.parametrize(
    "cost", ["joules_per_sample", "downlink_joules_per_bit", "codec_joules_per_entry", "codec_joules_per_parameter"]
)
def test_a_joule_cost_that_only_some_report_is_nothing_for_the_others(cost):
    assert getattr(reported_fleet(told({cost: 2e-6}, {})), cost).tolist() == [2e-6, 0.0]
    assert getattr(reported_fleet(told({}, {})), cost) is None


def test_tails_messages_and_batteries_that_only_some_report_are_none_for_the_others():
    stated = {"tail_watts": 0.5, "tail_seconds": 2.0, "promotion_joules": 0.1, "message_joules": 0.2}
    fleet = reported_fleet(told(stated | {"battery_joules": 3.0}, {}))
    assert {name: getattr(fleet, name).tolist() for name in stated} == {n: [cost, 0.0] for n, cost in stated.items()}
    assert fleet.battery_joules.tolist() == [3.0, np.inf]


def test_a_time_that_only_some_report_is_unknown():
    assert reported_fleet(told({"seconds_per_bit": 1e-6}, {})).seconds_per_bit is None


def test_a_charged_downlink_needs_its_cost_of_every_client(planned, tmp_path):
    path = tmp_path / "charged.toml"
    text = scenario(tmp_path, [(1.0, 1.0)] * CLIENTS).read_text()
    path.write_text(
        text.replace("rounds = 2", 'rounds = 2\ndownlink = "charged"').replace(
            "joules_per_step", "downlink_joules_per_bit = 1e-9\njoules_per_step"
        )
    )
    for node in planned.grid.nodes.values():
        node["config"] |= {"joules-per-bit": 1e-3, "joules-per-step": 0.01, "downlink-joules-per-bit": 1e-4}
    del planned.grid.nodes[102]["config"]["downlink-joules-per-bit"]
    with pytest.raises(InvalidInputError, match="client '2' must report downlink-joules-per-bit"):
        planned.strategy(scenario=path, options=None).start(planned.grid, initial())


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
