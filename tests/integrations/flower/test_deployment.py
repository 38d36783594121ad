"""Training on real SuperLinks and SuperNodes of this machine, with TLS and keys: against the simulator, and disturbed.

One test runs in ``make test``; the others, marked ``deploy``, take minutes.
"""

import contextlib
import json
import re
import signal

import numpy as np
import pytest

from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.integrations.flower.deployment import Deployment
from fewjoules.integrations.flower.loopback import HEARTBEAT_WINDOW_SECONDS
from fewjoules.integrations.flower.planning import planned, with_reports
from fewjoules.planner.plan import Plan
from fewjoules.runs.task import planned_options
from fewjoules.scenario import Scenario
from tests.engine.simulators import federation_of
from tests.integrations.flower.app.fewjoules_probe import task
from tests.integrations.flower.deployed import (
    CLIENT,
    SERVER,
    WORKER,
    Deployed,
    computed_rounds,
    final,
    ledger,
    require_models,
    wait_for,
)

LONG_SECONDS = 400.0
COSTS = ({"joules-per-step": 1e-3, "joules-per-bit": 1e-7}, {"joules-per-step": 2e-3, "joules-per-bit": 5e-6})


@pytest.fixture
def deploy(tmp_path):
    """Return a function that makes a deployment, of which nothing is started yet; all of them are ended."""
    with contextlib.ExitStack() as stack:

        def made(what, told):
            deployed = Deployed(tmp_path, what, told)
            stack.callback(deployed.fleet.close)
            return deployed

        yield made


def simulated(options):
    """State after all rounds of the task that learns."""
    clients = [tuple(array.numpy() for array in task.made_up_samples(i)) for i in range(options.clients)]
    simulator = Simulator(task.network(), federation_of(clients), options, loss=cross_entropy, threads=1, chunk=1)
    with contextlib.closing(simulator):
        for _ in range(options.rounds):
            simulator.start_round()()
        return simulator.state


def require_weights(folder, options):
    end, expected = final(folder), simulated(options)
    np.testing.assert_allclose(end["weights"], expected.weights, atol=1e-6)
    np.testing.assert_allclose(end["buffers"], expected.buffers, atol=1e-6)


def require_end(run, seconds=LONG_SECONDS):
    assert run.wait(seconds) == 0, run.log_text()[-3000:]


def reached(run, number):
    return f"round {number}: train loss" in run.log_text()


def test_a_deployment_trains_by_the_costs_of_its_nodes_and_gives_the_simulators_weights(deploy, tmp_path):
    deployed, folder = deploy("training", COSTS), tmp_path / "run"
    deployed.fleet.start()
    require_end(deployed.run(folder, planned=True, rounds=3, min_replies=2))
    scenario = Scenario.from_toml(task.SCENARIO)
    plan = planned(with_reports(scenario, Deployment.load(folder).clients), "flexible")
    assert plan.sparsity[1] > 2.0 * plan.sparsity[0]  # bits of the second node are dear; the file has them alike
    np.testing.assert_array_equal(Plan.load(folder / "plan.json").sparsity, plan.sparsity)
    require_weights(folder, planned_options(scenario, plan, 121))
    rows = ledger(folder)
    for node, costs in enumerate(COSTS):
        own, told = rows[rows["device"] == node], deployed.journal(node)
        assert own["payload_bytes"].tolist() == [one["sent"] for one in told]
        assert own["downlink_bytes"].tolist() == [one["received"] for one in told]
        np.testing.assert_allclose(own["uplink_joules"], 8.0 * costs["joules-per-bit"] * own["payload_bytes"])
        np.testing.assert_allclose(own["compute_joules"], plan.local_steps * costs["joules-per-step"])


@pytest.mark.deploy
@pytest.mark.parametrize("moment", ["training", "replying"])
def test_a_killed_node_comes_back_as_itself_and_nothing_is_lost(deploy, tmp_path, moment):
    """Killed before or after it has saved the round; without its reply the round cannot end."""
    deployed, folder = deploy("counting", [{}, {"pause": moment}]), tmp_path / "run"
    deployed.fleet.start()
    before = deployed.fleet.node_id(1)
    run = deployed.run(folder, rounds=3, min_replies=2, attempts=20, deadline_seconds=30.0)
    wait_for((deployed.state_folder(1) / "paused").exists, LONG_SECONDS, run)
    assert any(WORKER in line for line in deployed.fleet.node_processes(1).values())
    deployed.fleet.kill_node(1)
    assert deployed.fleet.node_processes(1) == {}
    deployed.fleet.start_node(1, retry_seconds=HEARTBEAT_WINDOW_SECONDS)
    assert deployed.fleet.node_id(1) == before
    require_end(run)
    assert computed_rounds(deployed, folder) == [{1, 2, 3}, {1, 2, 3}]
    assert ledger(folder)["delivered"].all()


@pytest.mark.deploy
@pytest.mark.parametrize("killed", ["ServerApp", "SuperLink"])
def test_a_run_goes_on_after_its_server_was_killed(deploy, tmp_path, killed):
    deployed, folder = deploy("training", [{}, {}]), tmp_path / "run"
    deployed.fleet.start()
    told = {"rounds": 5, "min_replies": 2, "attempts": 20}
    run = deployed.run(folder, **told)
    wait_for(lambda: reached(run, 2), LONG_SECONDS, run)
    if killed == "SuperLink":
        deployed.fleet.kill_superlink()
        deployed.fleet.start_superlink()
    else:
        assert deployed.kill(deployed.fleet.superlink_processes(), SERVER)
        run.stop()
    again = deployed.run(folder, **told)
    require_end(again)
    last = int(re.search(r"going on after round (\d)", again.log_text())[1])
    assert 2 <= last < 5
    assert [number for number in range(1, 6) if reached(again, number)] == list(range(last + 1, 6))
    options = task.options_of({"rounds": 5, "clients": 2, "seed": 0, "task": "training"})
    require_weights(folder, options)
    assert ledger(folder)["round"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.deploy
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("flipped", "its payload does not decode"),
        ("oversized", "its payload (has .* bytes, too many|does not decode)"),
        ("replayed", "it answers for round '1', and was asked for"),
    ],
)
def test_a_hostile_reply_is_refused_and_the_run_goes_on_with_the_others(deploy, tmp_path, how, sentence):
    deployed, folder = deploy("counting", [{}, {"hostile": how}]), tmp_path / "run"
    deployed.fleet.start()
    run = deployed.run(folder, rounds=3)
    require_end(run)
    refused = re.findall(r"round (\d): the reply of client (\S+) is refused: " + sentence, run.log_text())
    assert [found[:2] for found in refused] == [("2", "node-1"), ("3", "node-1")]
    rows = ledger(folder)
    assert rows["delivered"].tolist() == [True, True, True, False, True, False]
    assert computed_rounds(deployed, folder) == [{1, 2, 3}] * 2  # what was refused is still in its residual


@pytest.mark.deploy
def test_a_node_that_claims_to_be_another_client_is_refused(deploy, tmp_path):
    deployed, folder = deploy("counting", [{}, {"client-id": "node-0"}]), tmp_path / "run"
    deployed.fleet.start()
    run = deployed.run(folder, rounds=1, clients=1)
    require_end(run)
    refused = (
        f"node {deployed.fleet.node_id(1)} is refused: it is registered as 'node-1' and claims to be client 'node-0'"
    )
    assert refused in run.log_text()
    assert deployed.journal(1) == []
    assert json.loads((folder / "deployment.json").read_text())["keys"].keys() == {"node-0"}


def last_round(run):
    return max(map(int, re.findall(r"round (\d+): train loss", run.log_text())), default=0)


@pytest.mark.deploy
def test_nothing_is_lost_in_twenty_rounds_with_random_failures(deploy, tmp_path):
    deployed, folder = deploy("counting", [{"step-seconds": 0.3}] * 3), tmp_path / "run"
    fleet, rng = deployed.fleet, np.random.default_rng(11)
    fleet.start()
    run = deployed.run(folder, rounds=20, deadline_seconds=20.0, attempts=20)

    def wait_for_rounds(count):
        end = last_round(run) + count
        wait_for(lambda: last_round(run) >= end, LONG_SECONDS, run)

    for failure in [*rng.permutation(["worker", "client"] * 3 + ["still"] * 2), "node"]:
        node = int(rng.integers(3))
        wait_for_rounds(1)
        if failure == "node":
            fleet.kill_node(node)
            fleet.start_node(node, retry_seconds=HEARTBEAT_WINDOW_SECONDS)
        elif failure == "still":
            processes = fleet.node_processes(node)
            deployed.kill(processes, "", signal.SIGSTOP)
            wait_for_rounds(2)  # the second of which cannot have had this node
            deployed.kill(processes, "", signal.SIGCONT)
        else:
            found = WORKER if failure == "worker" else CLIENT
            wait_for(lambda node=node, found=found: deployed.kill(fleet.node_processes(node), found), LONG_SECONDS, run)
    require_end(run, 2 * LONG_SECONDS)
    computed, rows = computed_rounds(deployed, folder), ledger(folder)
    assert rows.size == 60
    assert not rows["delivered"].all()
    assert all(len(rounds) >= 10 for rounds in computed)
    assert require_models(deployed, folder)
