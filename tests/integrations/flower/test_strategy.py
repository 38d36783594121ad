"""Whole runs through Flower's messages, with nodes in this process, against the simulator."""

import numpy as np
import pytest
import torch
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import DivergedError, FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.backend import RoundRules
from fewjoules.integrations.flower.client import client_app
from fewjoules.integrations.flower.mod import fewjoules_mod
from fewjoules.integrations.flower.polling import Clock
from fewjoules.integrations.flower.records import array_record, named_arrays, payload_of
from fewjoules.integrations.flower.strategy import FewJoulesStrategy
from fewjoules.physics.fleet import Fleet
from tests.engine.simulators import federation_of
from tests.integrations.flower.grid import JumpingClock, LocalGrid
from tests.reference.training import made_up_clients

CLIENTS = made_up_clients([20, 31, 26], 6, 4, 3)
OPTIONS = {"local_steps": 3, "sparsity": np.array([2.0, 5.0, 9.0]), "rounds": 4, "learning_rate": 0.1, "seed": 5}


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 4))


def nodes_of(apps, folder, first=100):
    return {
        first + number: {"app": app, "config": {"client-id": str(number), "state-dir": str(folder / str(number))}}
        for number, app in enumerate(apps)
    }


def own_clients(net=network):
    return [client_app(net, lambda _context, data=data: data) for data in CLIENTS]


def simulated(options):
    simulator = Simulator(network(), federation_of(CLIENTS), options, loss=cross_entropy, threads=1, chunk=1)
    try:
        for _ in range(options.rounds):
            simulator.start_round()()
        return simulator.state
    finally:
        simulator.close()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"values": "int8"},
        {"outer": "nesterov", "outer_rate": 0.7},
        {"participation": 0.7, "inner": "momentum"},
        {"participation": 0.4, "rounds": 8, "downlink_sparsity": 10.0, "downlink_values": "two-bit"},
        {"averaging": 0.3},
    ],
    ids=["plain", "int8", "outer", "sampling", "downlink", "mean"],
)
def test_a_deployed_run_gives_the_simulators_weights(tmp_path, given):
    options = TrainingOptions.of(**OPTIONS | given)
    strategy = FewJoulesStrategy(options, clock=JumpingClock().clock())
    result = strategy.start(LocalGrid(nodes_of(own_clients(), tmp_path)), network())
    expected = simulated(options)
    state = strategy.loop.simulator.state
    np.testing.assert_allclose(state.weights, expected.weights, atol=5e-7)
    np.testing.assert_allclose(state.buffers, expected.buffers, atol=5e-7)
    assert set(result.arrays) == set(dict(network().named_parameters())) | {"1.running_mean", "1.running_var"}
    names = [name for name, _ in network().named_parameters()], ["1.running_mean", "1.running_var"]
    for which, handed_out in zip(names, expected.result, strict=True):
        found = np.concatenate([result.arrays[name].numpy().ravel() for name in which])
        np.testing.assert_allclose(found, handed_out, atol=5e-7)


def test_a_node_that_took_part_last_time_gets_only_the_change(tmp_path):
    grid = LocalGrid(nodes_of(own_clients(), tmp_path))
    strategy = FewJoulesStrategy(TrainingOptions.of(**OPTIONS), clock=JumpingClock().clock())
    strategy.start(grid, network())
    bases = [m.content["fewjoules"]["base"] for m in grid.sent if "model" in m.content]
    assert bases == [-1] * 3 + [0] * 3 + [1] * 3 + [2] * 3
    rows = strategy.loop.ledger.rows()
    assert rows["payload_written"].all()
    sizes = {
        (m.content["fewjoules"]["model-round"], m.metadata.dst_node_id): m for m in grid.sent if "model" in m.content
    }
    for row in rows:
        message = sizes[row["round"] - 1, 100 + row["device"]]
        told = sum(len(payload_of(message.content["model"], name)) for name in ("weights", "buffers"))
        assert row["downlink_bytes"] == told


def test_a_node_that_was_away_gets_the_weights_that_changed_meanwhile(tmp_path):
    """Node 1 misses rounds 2 and 3: in round 4 it gets what changed since the model from before round 1."""
    grid = LocalGrid(nodes_of(own_clients(), tmp_path))
    away = grid.nodes[101]

    def stay_away(done, _arrays):
        grid.nodes.pop(101, None)
        if done == 3:
            grid.nodes[101] = away

    options = TrainingOptions.of(**OPTIONS | {"sparsity": np.full(3, 60.0), "evaluate_every": 1})
    strategy = FewJoulesStrategy(
        options, clock=JumpingClock().clock(), folder=tmp_path / "run", rules=RoundRules(deadline_seconds=5.0)
    )
    strategy.start(grid, network(), evaluate_fn=stay_away)
    told = [m.content["fewjoules"] for m in grid.sent if "model" in m.content and m.metadata.dst_node_id == 101]
    assert [(one["model-round"], one["base"], one["assigns"]) for one in told] == [(0, -1, True), (3, 0, True)]
    sent = {row["round"]: row["downlink_bytes"] for row in strategy.loop.ledger.rows() if row["device"] == 1}
    assert 0 < sent[4] < sent[1]
    assert (sent[2], sent[3]) == (0, 0)


def ordinary_app(data, seen):
    """What a Flower user has already: it knows nothing of FewJoules but the mod."""
    app = ClientApp(mods=[fewjoules_mod])
    inputs, targets = (torch.from_numpy(array) for array in data)

    @app.train()
    def train(message, context):
        net = network()
        arrays = named_arrays(message.content["arrays"])
        net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        config = message.content["config"]
        seen.append((sorted(config), config["server-round"]))
        optimiser = torch.optim.SGD(net.parameters(), lr=config["learning-rate"])
        for _ in range(config["local-steps"]):
            loss = cross_entropy(net(inputs), targets).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        told = MetricRecord({"train_loss": float(loss.detach()), "num-examples": len(targets)})
        arrays = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
        return Message(RecordDict({"arrays": array_record(arrays), "metrics": told}), reply_to=message)

    return app


def test_the_mod_makes_an_ordinary_app_sparse(tmp_path):
    """All data at each step, so that the app's own loop takes the very steps of the simulator."""
    seen = []
    options = TrainingOptions.of(**OPTIONS | {"batch_size": None})
    grid = LocalGrid(nodes_of([ordinary_app(data, seen) for data in CLIENTS], tmp_path))
    strategy = FewJoulesStrategy(options, clock=JumpingClock().clock())
    initial = array_record({name: tensor.numpy() for name, tensor in network().state_dict().items()})
    strategy.start(grid, initial)
    expected = simulated(options)
    state = strategy.loop.simulator.state
    np.testing.assert_allclose(state.weights, expected.weights, atol=2e-6)
    np.testing.assert_allclose(state.buffers, expected.buffers, atol=2e-6)
    assert [number for _, number in seen] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    rows = strategy.loop.ledger.rows()
    assert rows["entries"].tolist()[:3] == [strategy.loop.simulator._kept[i] for i in range(3)]


def test_an_order_for_an_earlier_round_changes_nothing(tmp_path):
    """A late message must not take back an upload that the server accepted."""
    grid = LocalGrid(nodes_of(own_clients(), tmp_path))
    FewJoulesStrategy(TrainingOptions.of(**OPTIONS), clock=JumpingClock().clock()).start(grid, network())
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.memory")}
    assert len(files) == 3
    late = next(message for message in grid.sent if "model" in message.content)
    (number,) = grid.push_messages([late])
    (reply,) = grid.pull_messages([number])
    assert "round 4 was answered already, got an order for round 1" in reply.error.reason
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.memory")} == files


def test_a_device_that_does_not_reply_is_booked_with_nothing(tmp_path):
    fleet = Fleet(joules_per_bit=np.full(3, 1e-6), joules_per_step=0.5, message_joules=2.0)
    grid = LocalGrid(nodes_of(own_clients(), tmp_path))
    grid.lost = lambda message, reply: "model" in message.content and message.metadata.dst_node_id == 101
    strategy = FewJoulesStrategy(TrainingOptions.of(**OPTIONS), fleet=fleet, clock=JumpingClock().clock())
    strategy.start(grid, network())
    rows = strategy.loop.ledger.rows()
    silent, others = rows[rows["device"] == 1], rows[rows["device"] != 1]
    assert not silent["delivered"].any()
    for name in ("local_steps", "samples", "entries", "payload_bytes", "uplink_joules", "compute_joules"):
        assert not silent[name].any(), name
        assert others[name].all(), name
    assert (others["uplink_joules"] > 2.0).all()


def test_a_round_waits_for_nodes_that_are_away_instead_of_using_up_its_attempts(tmp_path):
    grid, clock = LocalGrid(nodes_of(own_clients(), tmp_path)), JumpingClock()
    away = {}

    def leave_for_a_while(_round, _arrays):
        if not away:
            away.update(grid.nodes)
            grid.nodes.clear()
        return MetricRecord({"loss": 1.0})

    def sleep(seconds):
        JumpingClock.sleep(clock, seconds)
        if away and clock.seconds > 500.0:
            grid.nodes.update(away)

    strategy = FewJoulesStrategy(
        TrainingOptions.of(**OPTIONS, evaluate_every=1), clock=Clock(lambda: clock.seconds, sleep)
    )
    strategy.start(grid, network(), evaluate_fn=leave_for_a_while)
    assert strategy.loop.ledger.rows()["delivered"].all()
    assert away
    assert clock.seconds > 500.0


def test_a_round_whose_nodes_stay_away_ends_with_one_sentence(tmp_path):
    grid, clock = LocalGrid(nodes_of(own_clients(), tmp_path)), JumpingClock()
    rules = RoundRules(deadline_seconds=50.0, attempts=3)
    strategy = FewJoulesStrategy(TrainingOptions.of(**OPTIONS, evaluate_every=1), rules=rules, clock=clock.clock())
    with pytest.raises(FewJoulesError, match="round 2 had 0 accepted uploads after 3 attempts"):
        strategy.start(grid, network(), evaluate_fn=lambda _round, _arrays: grid.nodes.clear())
    assert clock.seconds == pytest.approx(150.0)


def test_a_server_may_evaluate_without_telling_a_loss(tmp_path):
    options = TrainingOptions.of(**OPTIONS | {"rounds": 2}, evaluate_every=1)
    for told in (None, MetricRecord({"accuracy": 0.5})):
        strategy = FewJoulesStrategy(options, clock=JumpingClock().clock())
        strategy.start(LocalGrid(nodes_of(own_clients(), tmp_path)), network(), evaluate_fn=lambda *_, told=told: told)
        assert strategy.loop.simulator.state.round == 2


def test_remote_devices_cannot_be_sent_back_so_a_guard_is_refused(tmp_path):
    strategy = FewJoulesStrategy(TrainingOptions.of(**OPTIONS, guard=True), clock=JumpingClock().clock())
    with pytest.raises(InvalidInputError, match=r"guard must be false or left out where devices are remote, got true"):
        strategy.start(LocalGrid(nodes_of(own_clients(), tmp_path)), network())


def test_remote_devices_are_available_when_they_are_online_so_a_trace_is_refused(tmp_path):
    options = TrainingOptions.of(**OPTIONS, availability=lambda _: np.ones(3, dtype=bool))
    strategy = FewJoulesStrategy(options, clock=JumpingClock().clock())
    with pytest.raises(InvalidInputError, match=r"availability must be left out where devices are remote"):
        strategy.start(LocalGrid(nodes_of(own_clients(), tmp_path)), network())


def test_a_test_loss_that_is_nan_ends_the_run(tmp_path):
    options = TrainingOptions.of(**OPTIONS | {"rounds": 2}, evaluate_every=1)
    strategy = FewJoulesStrategy(options, clock=JumpingClock().clock())
    with pytest.raises(DivergedError, match="the test loss after round 2 is NaN"):
        strategy.start(
            LocalGrid(nodes_of(own_clients(), tmp_path)),
            network(),
            evaluate_fn=lambda *_: MetricRecord({"loss": float("nan")}),
        )
