"""The one way in which a task is trained: from the first round, on from where another ended, and until it diverges."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Samples
from fewjoules.errors import DivergedError, InvalidInputError
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.training import DIVERGED, Task, continued, train_task
from tests.engine.simulators import federation_of
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([5, 3, 6, 4], 4, 3, 1)
FLEET = Fleet(
    joules_per_bit=[1e-7, 2e-7, 3e-7, 4e-7],
    joules_per_step=1e-3,
    seconds_per_bit=1e-6,
    seconds_per_step=0.01,
    downlink_joules_per_bit=1e-8,
    downlink_seconds_per_bit=1e-7,
)
EVERYTHING = {
    "participation": 0.5,
    "failure_probability": 0.3,
    "downlink": "charged",
    "inner": "momentum",
    "momentum_state": "cleared",
    "outer": "adam",
    "outer_rate": 0.02,
    "values": "int8",
}


def task(**changes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    test = Samples(*(torch.from_numpy(array) for array in CLIENTS[0]))
    usual = {"model": model, "federation": federation_of(CLIENTS), "test": test, "loss": cross_entropy, "fleet": FLEET}
    return Task(**usual | changes)


def options(**changes):
    usual = {"local_steps": 2, "sparsity": np.array([1.0, 2.0, 4.0, 9.0]), "rounds": 5, "learning_rate": 0.1}
    return TrainingOptions.of(**usual | {"batch_size": 2, "evaluate_every": 1, "seed": 3} | changes)


def assert_same_end(one, other):
    """Model, what clients keep, and every row of both logs."""
    assert one.rounds == other.rounds
    assert torch.equal(one.simulator.state.weights, other.simulator.state.weights)
    assert torch.equal(one.simulator.state.buffers, other.simulator.state.buffers)
    kept, others = (run.simulator.backend.save().tensors() for run in (one, other))
    assert kept.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in kept.items())
    assert one.loop.ledger.rows().tobytes() == other.loop.ledger.rows().tobytes()
    assert one.loop.metrics.rows().tobytes() == other.loop.metrics.rows().tobytes()
    assert one.loop.totals == other.loop.totals


# --- Going on where another training ended


@pytest.mark.parametrize("given_options", [{}, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("stop", [1, 3])
def test_training_in_two_parts_is_training_in_one(stop, given_options):
    whole = train_task(task(), options(**given_options))
    first = train_task(task(), options(rounds=stop, **given_options))
    assert (first.rounds, first.reason) == (stop, "rounds")
    both = train_task(task(), options(**given_options), opened=continued(first))
    assert both.reason == "rounds"
    assert_same_end(both, whole)


def test_what_goes_on_may_have_other_options():
    """Three rounds of two steps, then two of one with everything sent."""
    first = train_task(task(), options(rounds=3))
    both = train_task(task(), options(local_steps=1, sparsity=np.ones(4), learning_rate=0.02), opened=continued(first))
    ledger, metrics = both.loop.ledger.rows(), both.loop.metrics.rows()
    assert metrics["round"].tolist() == [1, 2, 3, 4, 5]
    assert metrics["learning_rate"].tolist() == [0.1, 0.1, 0.1, 0.02, 0.02]
    assert [set(ledger["local_steps"][ledger["round"] == number]) for number in (3, 4)] == [{2}, {1}]
    everything = both.simulator.parameters.size
    assert np.all(ledger["entries"][ledger["round"] >= 4] == everything)
    assert np.all(np.diff(metrics["total_joules"]) > 0.0)


def test_what_goes_on_may_do_without_the_guard():
    first = train_task(task(), options(rounds=3))
    assert first.loop.guard is not None
    both = train_task(task(), options(guard=False), opened=continued(first))
    assert both.loop.guard is None


def test_a_residual_is_sent_by_whoever_goes_on():
    """Everything is sent in round 4: what was kept back until then arrives, and nothing is left."""
    first = train_task(task(), options(rounds=3))
    assert first.simulator.backend.save().tensors()["residual"].any()
    both = train_task(task(), options(rounds=4, sparsity=np.ones(4)), opened=continued(first))
    assert not both.simulator.backend.save().tensors()["residual"].any()


def test_a_reason_to_stop_does_not_stop_what_goes_on():
    first = train_task(task(), options(target_accuracy=0.0))
    assert (first.rounds, first.reason) == (1, "target accuracy")
    both = train_task(task(), options(), opened=continued(first))
    assert (both.rounds, both.reason) == (5, "rounds")


def test_whoever_watched_watches_on():
    seen = []
    first = train_task(task(), options(rounds=2), on_round=lambda report: seen.append(report.round))
    train_task(task(), options(rounds=3), opened=continued(first))
    assert seen == [1, 2, 3]


# --- The rest


def test_a_training_that_diverges_is_an_error_unless_it_is_to_be_kept():
    bare, steep = (
        task(model=nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))),
        options(learning_rate=1e30, guard=False),
    )
    with pytest.raises(DivergedError, match=r"client \d.*round \d"):
        train_task(bare, steep)
    kept = train_task(bare, steep, keep_diverged=True)
    assert kept.reason == DIVERGED
    assert kept.loop.metrics.rows().size < 5


def test_other_errors_are_not_kept():
    with pytest.raises(InvalidInputError, match="sparsity"):
        train_task(task(), options(sparsity=np.ones(3)), keep_diverged=True)


def test_nothing_is_opened_before_everything_was_checked():
    test = Samples(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InvalidInputError, match="test inputs"):
        train_task(task(test=test), options(), opened=lambda _: pytest.fail("opened"))


def test_a_training_can_be_stopped_and_says_so():
    rounds = []
    stopped = train_task(
        task(),
        options(),
        on_round=lambda report: rounds.append(report.round),
        should_stop=lambda: len(rounds) >= 2,
    )
    assert stopped.reason == "interrupted"
    assert stopped.rounds < 5


def test_the_trained_model_is_a_copy_with_the_global_weights_and_buffers():
    given_task = task()
    before = reference.flat(given_task.model)
    trained = train_task(given_task, options())
    model = trained.trained_model(given_task.model)
    assert np.array_equal(reference.flat(given_task.model), before)
    assert np.array_equal(reference.flat(model), trained.simulator.state.weights.double().numpy())
    assert torch.equal(torch.cat([model[1].running_mean, model[1].running_var]), trained.simulator.state.buffers)
    assert not model.training


def test_without_a_test_set_or_a_fleet_a_task_is_trained_all_the_same():
    bare = train_task(replace(task(), test=None, fleet=None), options())
    assert bare.rounds == 5
    assert np.isnan(bare.loop.metrics.rows()["test_accuracy"]).all()
    assert np.isnan(bare.loop.totals.joules)


def test_a_training_does_not_go_on_with_options_that_keep_something_else():
    first = train_task(task(), options(rounds=2))
    with pytest.raises(InvalidInputError, match="was residual; with these options they keep residual, velocity"):
        train_task(task(), options(inner="momentum", momentum_state="kept"), opened=continued(first))
