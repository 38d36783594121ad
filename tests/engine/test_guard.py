"""The guard: a run that blows up returns to a good state with half the step size, and what was spent stays booked.

The loss is a sum of squares with second derivatives of 2: a step of size above 1 leads away from the minimum, without
any rounding in doubt.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.engine.algorithm.downlink import Downlink, taken_up
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import plan_round
from fewjoules.engine.guard import BLOW_UP, MOST_RETURNS, SAMPLES, Level
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.simulator.federation import BatchSource
from fewjoules.engine.simulator.memory import needs_of
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import DivergedError, FewJoulesWarning
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint
from tests.engine.simulators import federation_of

ON = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FEATURES, COPIES = 4, 10
FLEET = Fleet(
    joules_per_bit=[1e-7, 2e-7, 3e-7],
    joules_per_step=1e-3,
    seconds_per_bit=1e-6,
    seconds_per_step=0.01,
    downlink_joules_per_bit=1e-8,
    downlink_seconds_per_bit=1e-7,
)
STEEP = {"schedule": "step", "decay_rounds": (23,), "decay_factor": 17.0}  # 1.7 from round 24 on, 0.85 after a return
HOPELESS = STEEP | {"decay_factor": 1e30}
LIVELY = {"participation": 0.7, "failure_probability": 0.2, "values": "bfloat16"}


# by a large loss, and by one that is not finite in each of three rounds
BLOW_UPS = pytest.mark.parametrize(("factor", "rounds"), [(17.0, 33), (1e30, 26)], ids=["large", "not finite"])


def clients():
    """Inputs 2 e_i, so that the mean square of an error has second derivatives of 2; targets differ by client."""
    inputs = np.tile(2.0 * np.eye(FEATURES, dtype=np.float32), (COPIES, 1))
    return [(inputs, np.full((len(inputs), 1), 1.0 + shift, dtype=np.float32)) for shift in (-0.1, 0.0, 0.1)]


def squares(outputs, targets):
    return (outputs - targets).square().mean(dim=1)


def make_loop(device="cpu", **changes):
    given = {"local_steps": 2, "sparsity": np.array([1.0, 2.0, 2.0]), "rounds": 40, "learning_rate": 0.1}
    given |= {"batch_size": None, "downlink": "charged", "evaluate_every": 1} | changes
    model, federation = nn.Linear(FEATURES, 1, bias=False), federation_of(clients(), device)
    nn.init.zeros_(model.weight)
    simulator = Simulator(model, federation, TrainingOptions.of(**given), loss=squares, fleet=FLEET)
    loop = TrainingLoop(simulator, RowLog(None, LEDGER), RowLog(None, METRICS))
    loop.evaluator = simulator.evaluator(model, squares, federation.samples)
    return loop


def trained(loop):
    """The loop after its run, with a warning for each return."""
    try:
        if loop.simulator.options.guard is False:
            loop.run()
        else:
            with pytest.warns(FewJoulesWarning, match=r"the guard returns to the model after round \d+"):
                loop.run()
    finally:
        loop.simulator.close()
    return loop


def assert_same_end(one, other):
    assert torch.equal(one.simulator.state.weights, other.simulator.state.weights)
    assert one.ledger.rows().tobytes() == other.ledger.rows().tobytes()
    assert one.metrics.rows().tobytes() == other.metrics.rows().tobytes()
    assert one.totals == other.totals


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("changes", [{}, LIVELY, {"evaluate_every": 100}], ids=["plain", "lively", "seldom evaluated"])
def test_a_run_that_blows_up_without_the_guard_ends_well_with_it(device, changes):
    steep = make_loop(device, guard=False, **STEEP | changes)
    assert trained(steep).metrics.rows()["train_loss"][-1] > 1e6
    guarded = trained(make_loop(device, **STEEP | changes))
    assert guarded.last_test[0] < 0.5
    assert len(guarded.simulator.state.returns) == 1


def test_a_run_that_never_reaches_its_target_without_the_guard_does_so_with_it():
    steep = {"learning_rate": 1.7, "target_loss": 0.1, "rounds": 20}
    for guard, reason in ((False, "rounds"), (None, "target loss")):
        loop = trained(make_loop(guard=guard, **steep))
        assert (loop.reason or "rounds") == reason
    assert len(loop.simulator.state.returns) == 1


def test_every_rate_after_a_return_is_halved():
    loop = trained(make_loop(**STEEP))
    (back,) = loop.simulator.state.returns
    rates = loop.metrics.rows()["learning_rate"]
    assert np.all(rates[:23] == 0.1)
    assert rates[23:back] == pytest.approx(1.7)
    assert rates[back:] == pytest.approx(0.85)


@pytest.mark.parametrize("device", ON)
@BLOW_UPS
def test_the_state_after_a_return_is_that_of_the_snapshot_before_the_latest(factor, rounds, device):
    """The run ends with the round that blew up; snapshots are due after rounds 10 and 20, so it is back at round 10."""
    kept = {"inner": "momentum", "momentum_state": "kept", "momentum": 0.3, "outer": "momentum", "outer_momentum": 0.2}
    options = STEEP | kept | LIVELY | {"decay_factor": factor}
    (back, *_) = trained(make_loop(device, **options | {"rounds": rounds})).simulator.state.returns
    there = trained(make_loop(device, **options | {"rounds": back})).simulator
    early = trained(make_loop(device, **options | {"rounds": 10, "guard": False})).simulator
    assert (there.state.round, there.state.returns) == (back, (back,))
    assert torch.equal(there.state.weights, early.state.weights)
    assert torch.equal(there.state.outer["velocity"], early.state.outer["velocity"])
    assert np.array_equal(there.state.accepted, early.state.accepted)
    found, expected = (one.backend.save().tensors() for one in (there, early))
    assert found.keys() == expected.keys() >= {"residual", "velocity", "steps"}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


@pytest.mark.parametrize("device", ON)
@BLOW_UPS
def test_rounds_that_were_undone_stay_booked(factor, rounds, device):
    loop = trained(make_loop(device, **STEEP | LIVELY | {"rounds": rounds, "decay_factor": factor}))
    ledger, metrics = loop.ledger.rows(), loop.metrics.rows()
    assert metrics["round"].tolist() == list(range(1, rounds + 1))
    assert np.array_equal(np.unique(ledger["round"]), np.arange(1, rounds + 1))
    kinds = ("uplink", "downlink", "tail", "compute", "codec")
    spent = math.fsum(math.fsum(ledger[f"{kind}_joules"]) for kind in kinds)
    assert loop.totals.joules == pytest.approx(spent, rel=1e-12)
    assert metrics["total_joules"][-1] == loop.totals.joules
    assert np.all(metrics["round_joules"] > 0.0)
    assert loop.totals.payload_bytes == ledger["payload_bytes"].sum()


def test_a_round_that_is_called_off_costs_all_but_the_uploads():
    loop = trained(make_loop(**HOPELESS | {"rounds": 24}))
    rows = loop.ledger.rows()
    before, off = (rows[rows["round"] == number] for number in (23, 24))
    assert np.array_equal(off["compute_joules"], before["compute_joules"])
    assert np.all(off["downlink_joules"] > 0.0)
    assert not off["payload_bytes"].any()
    assert not off["delivered"].any()
    assert math.isnan(loop.metrics.rows()["train_loss"][-1])


@BLOW_UPS
def test_devices_are_sent_and_charged_for_what_brings_them_back(factor, rounds):
    """Whatever model a device has, its message leads to the restored one, and the next round charges that message."""
    options = STEEP | LIVELY | {"participation": 0.34, "decay_factor": factor}
    (back, *_) = trained(make_loop(**options | {"rounds": rounds})).simulator.state.returns
    loop, models = make_loop(**options | {"rounds": back}), {}
    evaluate, simulator = loop.evaluator, loop.simulator

    def remember(weights, buffers):
        models[simulator.state.round] = weights.numpy().copy()
        return evaluate(weights, buffers)

    loop.evaluator = remember
    trained(loop)
    models[0] = np.zeros(FEATURES, dtype=np.float32)
    state, downlink = simulator.state, Downlink(simulator.state, simulator.options)
    held = state.held_rounds(np.arange(3))
    assert held.max() == back - 1
    assert held.min() < back - 1
    for one in held.tolist():
        message = downlink.message(one)
        reached = taken_up(models.get(one), message.payload, assigns=message.assigns)
        assert np.array_equal(reached, state.weights.numpy())
    rows = trained(make_loop(**options | {"rounds": back + 1})).ledger.rows()
    for row in rows[rows["round"] == back + 1]:
        assert row["downlink_bytes"] == downlink.message(int(held[row["device"]])).size_bytes


def test_after_three_returns_a_run_that_blows_up_again_is_an_error_that_says_so():
    loop = make_loop(**HOPELESS)
    says = r"client \d .* round 27 is .*; the guard had returned 3 times, after rounds 24, 25, 26"
    with pytest.warns(FewJoulesWarning) as told, pytest.raises(DivergedError, match=says):
        loop.run()
    loop.simulator.close()
    assert len(told) == MOST_RETURNS
    assert loop.metrics.rows()["round"].tolist() == list(range(1, 27))


def test_without_the_guard_the_first_number_that_is_not_finite_is_the_end():
    loop = make_loop(guard=False, **HOPELESS)
    with pytest.raises(DivergedError, match=r"of round 24 is (inf|nan); a smaller learning rate may help$"):
        loop.run()
    loop.simulator.close()


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("changes", [{}, LIVELY], ids=["plain", "lively"])
def test_a_healthy_run_has_the_same_bits_with_and_without_the_guard(changes, device):
    ends = []
    for guard in (None, True, False):
        loop = make_loop(device, guard=guard, **changes)
        loop.run()
        loop.simulator.close()
        ends.append(loop)
    assert ends[0].simulator.state.returns == ()
    for other in ends[1:]:
        assert_same_end(ends[0], other)


class SaveOnce:
    """Writes a checkpoint after one round."""

    def __init__(self, path, number):
        self.path, self.number, self.loop = path, number, None

    def is_due(self):
        return self.loop.simulator.state.round == self.number

    def save(self, loop):
        save_checkpoint(self.path, loop, {})


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("number", [5, 15, 23, 24, 25, 26, 33])
def test_a_run_that_is_resumed_returns_as_it_would_have(number, device, tmp_path):
    given = STEEP | LIVELY | {"averaging": 0.3}
    whole = trained(make_loop(device, **given))
    (back,) = whole.simulator.state.returns
    assert 24 <= back < 33
    first = make_loop(device, **given)
    first.saver = SaveOnce(tmp_path / "checkpoint", number)
    first.saver.loop = first
    trained(first)
    again = make_loop(device, **given)
    rest = load_checkpoint(tmp_path / "checkpoint", {}, again.simulator)
    assert again.simulator.state.returns == ((back,) if number >= back else ())
    for log, rows in ((again.ledger, whole.ledger.rows()), (again.metrics, whole.metrics.rows())):
        log.append(rows[rows["round"] <= number])
    again.totals, again.last_test, again.guard = rest["totals"], rest["last_test"], rest["guard"]
    again.run() if number >= back else trained(again)
    again.simulator.close()
    assert_same_end(again, whole)


class SaveAlways(SaveOnce):
    """Saves after every round, so that every round is recorded before the next one starts."""

    def is_due(self):
        return True

    def save(self, loop):
        pass


@pytest.mark.parametrize("seed", [7, 11, 19])  # whose losses are now above that of the first model, now below
def test_to_what_a_run_returns_does_not_depend_on_when_it_is_saved(seed, tmp_path):
    standstill = {"learning_rate": 1e-9, "schedule": "step", "decay_rounds": (30,), "decay_factor": 1.7e9}
    ends = []
    for saver in (None, SaveAlways(tmp_path, 0)):
        loop = make_loop(evaluate_every=100, participation=0.4, seed=seed, **standstill)
        loop.saver = saver
        ends.append(trained(loop))
    assert_same_end(*ends)


def test_batches_drawn_ahead_are_trained_with_the_rate_of_their_round():
    options, sizes = TrainingOptions.of(local_steps=2, sparsity=np.ones(3), rounds=9, learning_rate=0.1), np.full(3, 40)
    plan = plan_round(options, np.ones(3, np.int64), sizes, np.zeros(3, np.int64), 5)
    source = BatchSource(federation_of(clients()), seed=0)
    source.prepare(plan)
    found = source.batches(replace(plan, rates=0.5 * plan.rates))
    assert found.rates.tolist() == [0.05, 0.05]
    assert np.array_equal(found.numbers, source.batches(plan).numbers)


def test_the_step_of_an_outer_adam_is_halved_too():
    """Its size does not depend on that of the local steps."""
    outer = {"outer": "adam", "outer_rate": 0.5, "outer_epsilon": 1e-12, "outer_momentum": 0.0}
    ends = []
    for returns in ((), (7,)):
        loop = make_loop(rounds=1, sparsity=np.ones(3), local_steps=1, guard=False, **outer)
        loop.simulator.state = replace(loop.simulator.state, returns=returns)
        loop.run()
        loop.simulator.close()
        ends.append(loop.simulator.state.weights)
    assert torch.allclose(ends[1], 0.5 * ends[0])
    assert ends[0].all()


# --- When a loss is a blow-up


def level_after(*rounds, samples=SAMPLES):
    level = Level()
    for loss in rounds:
        level = level.after(loss, loss, samples)
    return level


def test_a_loss_blows_up_above_a_multiple_of_the_first():
    assert not level_after(2.0, BLOW_UP * 2.0).blown_up
    assert level_after(2.0, 1.01 * BLOW_UP * 2.0).blown_up
    assert not level_after(2.0, 0.001, 2.0).blown_up


def test_a_loss_below_zero_blows_up_as_far_above_itself():
    assert not level_after(-1.0, -2.0).blown_up
    assert not level_after(-1.0, 1.0).blown_up
    assert level_after(-1.0, 1.01).blown_up


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_blows_up_at_once(loss):
    assert level_after(loss, samples=1).blown_up


def test_a_first_round_that_blows_up_is_compared_with_its_first_step():
    assert Level().after(2.3, 1e5, SAMPLES).blown_up


def test_a_lucky_first_batch_means_nothing():
    assert not level_after(1e-6, *[1.0] * 300, samples=1).blown_up
    assert level_after(1e-6, *[1.0] * 300, *[50.0] * 20, samples=1).blown_up


def test_a_single_bad_sample_late_in_a_run_means_nothing():
    assert not level_after(*[1.0] * 300, 100.0, samples=1).blown_up


def test_states_worse_than_the_first_are_not_kept():
    assert level_after(2.0, 1.9).healthy
    assert not level_after(2.0, 2.1).healthy
    assert not Level().healthy


# --- For users


def test_the_memory_of_snapshots_is_counted_once_a_run_is_long_enough_for_them():
    def needed(**changes):
        simulator = make_loop(**changes).simulator
        simulator.close()
        return sum(need.bytes for need in needs_of(simulator, rows_in_memory=False))

    weights = 4 * FEATURES
    residuals = 3 * weights
    for rounds, snapshots in ((10, 0), (11, 1), (20, 1), (21, 2), (1000, 2)):
        earlier_weights = min(2, snapshots + 1) * weights  # those before the first round are a snapshot too
        guarded = needed(rounds=rounds) - needed(rounds=rounds, guard=False)
        assert guarded == snapshots * residuals + earlier_weights


def test_a_run_tells_its_returns():
    with pytest.warns(FewJoulesWarning, match="return 1 of at most 3"):
        run = fj.train(
            nn.Linear(FEATURES, 1, bias=False),
            clients=clients(),
            local_steps=2,
            sparsity=1.0,
            rounds=40,
            learning_rate=0.1,
            batch_size=None,
            loss=squares,
            **STEEP,
        )
    assert len(run.returns) == 1
    assert run.metrics["learning_rate"][-1] == pytest.approx(0.85)
