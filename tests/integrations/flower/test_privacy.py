"""Flower's differential privacy: its client mod works inside ours, everything around ours is refused."""

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.errors import FewJoulesError
from fewjoules.integrations.flower.backend import RoundRules
from fewjoules.integrations.flower.mod import fewjoules_mod
from fewjoules.integrations.flower.records import array_record, named_arrays
from fewjoules.integrations.flower.strategy import FewJoulesStrategy
from tests.integrations.flower.grid import JumpingClock, LocalGrid

CLIENTS, ROUNDS = 3, 3
ARRAYS = {
    "dense": np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5),
    "scale": np.ones(3, np.float32),
    "norm.running_mean": np.zeros(3, np.float32),
}
OPTIONS = TrainingOptions.of(local_steps=1, sparsity=np.full(CLIENTS, 2.0), rounds=ROUNDS, learning_rate=0.1)


def app_with(*mods):
    """An ordinary app, whose weights shrink by a tenth in each round."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        arrays = {name: array * np.float32(0.9) for name, array in named_arrays(message.content["arrays"]).items()}
        told = MetricRecord({"train_loss": 1.0, "num-examples": 1})
        return Message(RecordDict({"arrays": array_record(arrays), "metrics": told}), reply_to=message)

    return app


def grid_of(folder, apps):
    return LocalGrid(
        {
            100 + number: {"app": app, "config": {"client-id": str(number), "state-dir": str(folder / str(number))}}
            for number, app in enumerate(apps)
        }
    )


def strategy_of():
    return FewJoulesStrategy(OPTIONS, rules=RoundRules(deadline_seconds=10.0), clock=JumpingClock().clock())


def trained(folder, apps):
    strategy = strategy_of()
    strategy.start(grid_of(folder, apps), array_record(ARRAYS))
    return strategy.loop.simulator.state.weights.numpy()


def noise(clipping_norm=1e6, sensitivity=1e-9):
    return LocalDpMod(clipping_norm, sensitivity=sensitivity, epsilon=1.0, delta=1e-5)


def test_local_noise_inside_ours_changes_only_by_the_noise(tmp_path):
    plain = trained(tmp_path / "plain", [app_with(fewjoules_mod)] * CLIENTS)
    noised = trained(tmp_path / "noised", [app_with(fewjoules_mod, noise())] * CLIENTS)
    start = np.concatenate([ARRAYS["dense"].ravel(), ARRAYS["scale"]])
    assert np.abs(plain - start).max() > 0.05
    np.testing.assert_allclose(noised, plain, atol=1e-6)


def test_the_update_is_noised_before_it_is_made_sparse(tmp_path):
    """Much noise: still half of the entries travel, and none of them is what the app computed."""
    grid = grid_of(tmp_path, [app_with(fewjoules_mod, noise(sensitivity=1.0))] * CLIENTS)
    strategy = strategy_of()
    strategy.start(grid, array_record(ARRAYS), num_rounds=1)
    rows = strategy.loop.ledger.rows()
    start = np.concatenate([ARRAYS["dense"].ravel(), ARRAYS["scale"]])
    assert rows["entries"].tolist() == [12] * CLIENTS
    moved = strategy.loop.simulator.state.weights.numpy() - start
    assert np.abs(moved).max() > 1.0


def test_clipping_inside_ours_limits_the_update(tmp_path):
    """One client in one round: what it sends has at most the norm that it was clipped to."""
    grid = grid_of(tmp_path, [app_with(fewjoules_mod, noise(clipping_norm=0.01))] * CLIENTS)
    strategy = strategy_of()
    strategy.start(grid, array_record(ARRAYS), num_rounds=1)
    start = np.concatenate([ARRAYS["dense"].ravel(), ARRAYS["scale"]])
    moved = np.linalg.norm(strategy.loop.simulator.state.weights.numpy() - start)
    assert 0.001 < moved < 0.01001


def test_local_noise_around_ours_is_told_and_the_others_train(tmp_path, caplog):
    """A node with the mods in the other order would add noise to a payload."""
    good = [app_with(fewjoules_mod)] * CLIENTS
    found = trained(tmp_path / "with", [*good, app_with(noise(), fewjoules_mod)])
    assert caplog.text.count("node 103 did not introduce itself: Flower's error 6: LocalDpMod expects exactly one") == 1
    np.testing.assert_array_equal(found, trained(tmp_path / "without", good))


def test_noise_that_is_put_around_ours_later_counts_as_lost(tmp_path, caplog):
    """The app of client 2 is changed after it has introduced itself; it keeps what it computed."""
    grid = grid_of(tmp_path / "wrong", [app_with(fewjoules_mod)] * CLIENTS)

    def tampered(message, reply):
        if "model" not in message.content and message.metadata.dst_node_id == 102:
            grid.nodes[102]["app"] = app_with(noise(), fewjoules_mod)
        return reply

    grid.tampered = tampered
    strategy = strategy_of()
    strategy.start(grid, array_record(ARRAYS))
    told = [one.getMessage() for one in caplog.records if "of client 2 is refused" in one.getMessage()]
    assert len(told) == ROUNDS
    assert all(
        f"round {number}: the reply of client 2 is refused: Flower" in text for number, text in enumerate(told, 1)
    )
    lost = grid_of(tmp_path / "lost", [app_with(fewjoules_mod)] * CLIENTS)
    lost.lost = lambda message, _reply: "model" in message.content and message.metadata.dst_node_id == 102
    expected = strategy_of()
    expected.start(lost, array_record(ARRAYS))
    weights = [one.loop.simulator.state.weights.numpy() for one in (strategy, expected)]
    np.testing.assert_array_equal(*weights)


def test_a_strategy_around_ours_is_refused_with_the_reason(tmp_path):
    wrapped = DifferentialPrivacyServerSideFixedClipping(strategy_of(), 1.0, 1.0, CLIENTS)
    grid = grid_of(tmp_path, [app_with(fewjoules_mod)] * CLIENTS)
    with pytest.raises(
        FewJoulesError, match=r"cannot be wrapped by another strategy.*mods=\[fewjoules_mod, LocalDpMod"
    ):
        wrapped.start(grid, array_record(ARRAYS), num_rounds=1)
    assert grid.sent == []
