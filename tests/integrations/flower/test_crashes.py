"""Kills at every step of the protocol: what a client computed is accepted, or held back, and never lost or doubled."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewjoules.integrations.flower.backend import RoundRules
from fewjoules.integrations.flower.memory import Held, NodeMemory
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS
from tests.integrations.flower.counted import CLIENTS, NODE_STEPS, ROUNDS, asks, weights_of

EVERYBODY = RoundRules(deadline_seconds=10.0, min_replies=CLIENTS)
CALLS = range(1, ROUNDS + 1)


@pytest.mark.parametrize("step", NODE_STEPS)
@pytest.mark.parametrize("number", CALLS)
def test_a_node_that_is_killed_loses_and_doubles_nothing(counted, step, number):
    for client in range(CLIENTS):
        run = counted(killed_nodes=[(client, number, step)])
        strategy = run.run(folder=None)
        assert not run.killed_nodes
        assert client not in run.accepted[number]
        run.require_conserved(strategy)


@pytest.mark.parametrize("step", NODE_STEPS)
def test_a_node_that_is_killed_and_asked_again_ends_as_if_undisturbed(counted, step):
    """Its training function draws the same change again, as that of ``client_app`` does."""
    expected = weights_of(counted(same_again=True).run(folder=None))
    for number in CALLS:
        run = counted(killed_nodes=[(number % CLIENTS, number, step)], same_again=True, rules=EVERYBODY)
        strategy = run.run(folder=None)
        run.require_conserved(strategy)
        np.testing.assert_array_equal(weights_of(strategy), expected)


@pytest.mark.parametrize("number", CALLS)
def test_a_lost_reply_is_taken_back(counted, number):
    for client in range(CLIENTS):
        run = counted()
        run.grid.lost = lambda message, _reply, lost=client: asks(message, lost, number)
        strategy = run.run(folder=None)
        assert client not in run.accepted[number]
        assert run.trainings.count((client, number)) == 1
        run.require_conserved(strategy)


@pytest.mark.parametrize("number", CALLS)
def test_a_lost_reply_is_sent_again_without_training(counted, number):
    expected = weights_of(counted().run(folder=None))
    run = counted(rules=EVERYBODY)
    lost = set(range(CLIENTS)) - {number % CLIENTS}
    run.grid.lost = lambda message, _reply: any(asks(message, one, number) and not lost.discard(one) for one in [*lost])
    strategy = run.run(folder=None)
    assert not lost
    assert sorted(run.trainings) == [(client, each) for client in range(CLIENTS) for each in CALLS]
    run.require_conserved(strategy)
    np.testing.assert_array_equal(weights_of(strategy), expected)


def rounds_in(folder, table):
    return read_table(folder / f"{table.name}.parquet", table)["round"].tolist()


def test_a_server_killed_at_any_write_ends_as_if_undisturbed(counted):
    """Before each of its disk operations: with replies in hand, half-written tables, with and without a checkpoint."""
    undisturbed = counted()
    expected = weights_of(undisturbed.run())
    operations = undisturbed.server_operations
    assert operations >= 9 * ROUNDS
    for operation in range(1, operations + 1):
        run = counted(killed_server=[(operation, "before")])
        strategy = run.run()
        assert not run.killed_server
        assert sorted(run.trainings) == [(client, each) for client in range(CLIENTS) for each in CALLS], operation
        run.require_conserved(strategy)
        np.testing.assert_array_equal(weights_of(strategy), expected, err_msg=f"killed at write {operation}")
        assert rounds_in(run.server_folder, METRICS) == list(CALLS)
        assert rounds_in(run.server_folder, LEDGER) == [each for each in CALLS for _ in range(CLIENTS)]


kills_of_nodes = st.sets(
    st.tuples(st.integers(0, CLIENTS - 1), st.sampled_from(CALLS), st.sampled_from(NODE_STEPS)), max_size=8
)
kills_of_servers = st.sets(st.tuples(st.integers(1, 60), st.sampled_from(["before", "after"])), max_size=3)
lost_replies = st.sets(st.tuples(st.integers(0, CLIENTS - 1), st.sampled_from(CALLS)), max_size=6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills_of_nodes, kills_of_servers, lost_replies, st.integers(1, CLIENTS))
def test_whatever_is_killed_and_lost_nothing_is_lost_or_doubled(counted, nodes, servers, lost, min_replies):
    rules = RoundRules(deadline_seconds=10.0, min_replies=min_replies, attempts=40)
    run = counted(killed_nodes=nodes, killed_server=servers, rules=rules)
    losing = set(lost)
    run.grid.lost = lambda message, _reply: any(
        asks(message, client, number) and not losing.discard((client, number)) for client, number in [*losing]
    )
    run.require_conserved(run.run())


KILLED_WHILE_SAVING = """
import os, signal, sys
import numpy as np
from pathlib import Path
from fewjoules.integrations.flower.memory import Held, NodeMemory

memory = NodeMemory(Path(sys.argv[1]), "pi-3", "run")
sync = os.fsync
for number in range(1, 1000):
    if number == 3:
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
    memory.save(Held(number, np.full(1000, number, np.float32), np.zeros(0, np.float32)))
"""


def test_a_process_that_is_killed_in_the_middle_of_a_save_leaves_the_memory_before_it(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    memory = NodeMemory(tmp_path, "pi-3", "run")
    held = memory.load()
    assert held.model_round == 2
    np.testing.assert_array_equal(held.weights, np.full(1000, 2))
    memory.save(Held(4, held.weights, held.buffers))
    assert [path.name for path in tmp_path.iterdir()] == ["pi-3@run.memory"]
