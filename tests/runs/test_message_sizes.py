"""Laws fitted to some messages of real training predict the ledger's bytes of others."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.physics.message_fit import MessageObservation, fit_message_size
from fewjoules.physics.message_size import MessageSize, least_entry_bits
from fewjoules.planner.schemes import unified
from fewjoules.runs.message_sizes import mean_broadcast, observed_broadcast, observed_messages
from fewjoules.runs.task import options_for, prepare, varied
from fewjoules.runs.training import Task, train_task
from fewjoules.scenario import Scenario

FITTED, PREDICTED = (5.0, 20.0, 100.0, 500.0), (10.0, 50.0, 200.0)
KINDS = {
    "float32": {},
    "int8": {"values": "int8"},
    "two-bit": {"values": "two-bit"},
    "ternary": {"compressor": "ternary"},
}


@pytest.fixture(scope="module")
def task():
    torch.set_num_threads(1)
    return varied(prepare(Scenario.embedded(), torch.device("cpu")), downlink="free", channel="average")


def trained(task, sparsities, kind):
    """A short training of the digits CNN in which each device has one of the sparsities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = options_for(task, unified(task.scenario.problem()))
    sparsity = np.resize(sparsities, base.clients)
    options = replace(
        base, sparsity=sparsity, rounds=12, local_steps=5, target_accuracy=None, evaluate_every=12, **KINDS[kind]
    )
    return train_task(task, options)


@pytest.fixture(scope="module")
def observations(task):
    return {kind: observed_messages(trained(task, (1.0, *FITTED, *PREDICTED), kind)) for kind in KINDS}


def split(observations, sparsities):
    """The observations at these sparsities; entries are whole numbers, so that theirs are near."""
    return [one for one in observations if min(abs(np.log(one.sparsity / s)) for s in sparsities) < 0.05]


@pytest.mark.parametrize("kind", KINDS)
def test_laws_predict_the_bytes_of_messages_that_they_were_not_fitted_to(task, observations, kind):
    least = least_entry_bits(2.0, task.scenario.rounds.exponent, batteries=False)
    known = [one for of_kind in observations.values() for one in split(of_kind, FITTED)]
    law = fit_message_size(task.scenario.parameters, known, least=least).laws[kind]
    others = split(observations[kind], PREDICTED)
    assert len(others) == len(PREDICTED)
    within = (
        0.045 if kind == "int8" else 0.03
    )  # messages of int8 have a kink where a table of frequencies begins to pay
    for other in others:
        assert float(law.bits(task.scenario.parameters, other.sparsity)) == pytest.approx(other.bits, rel=within)


@pytest.mark.parametrize("kind", KINDS)
def test_two_observations_of_a_kind_beside_float32_suffice_between_them(task, observations, kind):
    least = least_entry_bits(2.0, task.scenario.rounds.exponent, batteries=False)
    known = split(observations["float32"], FITTED) + split(observations[kind], (20.0, 200.0))
    law = fit_message_size(task.scenario.parameters, known, least=least).laws[kind]
    for other in split(observations[kind], (50.0, 100.0)):
        assert float(law.bits(task.scenario.parameters, other.sparsity)) == pytest.approx(other.bits, rel=0.03)


def test_formula_25_is_further_off(task, observations):
    for other in split(observations["float32"], (10.0, 50.0)):
        assert float(MessageSize.formula_25(32).bits(task.scenario.parameters, other.sparsity)) > 1.15 * other.bits


def test_a_law_of_float32_holds_for_dense_messages_too(task, observations):
    known = split(observations["float32"], (1.0, 5.0, 50.0))
    law = fit_message_size(task.scenario.parameters, known).laws["float32"]
    for other in split(observations["float32"], (1.0, 10.0, 20.0)):
        assert float(law.bits(task.scenario.parameters, other.sparsity)) == pytest.approx(other.bits, rel=0.03)


def test_observations_are_the_means_of_the_ledger_without_dense_messages_of_coarse_values(task):
    training = trained(task, (1.0, 20.0), "two-bit")
    (found,) = observed_messages(training)
    rows = training.loop.ledger.rows()
    sparse = rows[rows["device"] % 2 == 1]
    assert found.values == "two-bit"
    assert found.bits == pytest.approx(8.0 * sparse["payload_bytes"].mean())
    assert found.sparsity == pytest.approx(13_706 / sparse["entries"].mean())
    assert found.weight == sparse.size


def last_broadcast(training):
    return observed_broadcast(training.simulator.state, training.simulator.options)


@pytest.mark.parametrize("values", ["float32", "int8", "ternary"])
def test_the_last_broadcast_is_what_devices_receive_in_the_next_round(values):
    charged = varied(prepare(Scenario.embedded(), torch.device("cpu")), channel="average")
    base = options_for(charged, unified(charged.scenario.problem()))
    base = replace(base, local_steps=5, sparsity=np.full(base.clients, 4.0), target_accuracy=None, evaluate_every=9)
    server = {"downlink_sparsity": 10.0, "downlink_values": values}
    found = last_broadcast(train_task(charged, replace(base, rounds=4, **server)))
    rows = train_task(charged, replace(base, rounds=5, **server)).loop.ledger.rows()
    assert found.values == values
    assert 13_706 / found.sparsity == round(13_706 / 10.0)
    assert set(8.0 * rows["downlink_bytes"][rows["round"] == 5]) == {found.bits}


def test_a_dense_broadcast_of_coarse_values_follows_no_law(task):
    assert last_broadcast(trained(task, (1.0,), "float32")).values == "float32"
    base = options_for(task, unified(task.scenario.problem()))
    dense = replace(base, sparsity=np.ones(base.clients), rounds=1, downlink_sparsity=1.0, downlink_values="int8")
    assert last_broadcast(train_task(task, dense)) is None


def test_broadcasts_of_a_pilot_are_one_observation():
    seen = [MessageObservation("int8", 10.0, 300.0), MessageObservation("int8", 5.0, 500.0)]
    (mean,) = mean_broadcast(seen)
    assert (mean.values, mean.bits, mean.weight) == ("int8", 400.0, 2.0)
    assert 1.0 / mean.sparsity == pytest.approx(0.15), "entries, not sparsities, are averaged"
    assert mean_broadcast([]) == ()


def test_observations_leave_running_statistics_out():
    torch.manual_seed(0)
    inputs, labels = torch.randn(40, 16), torch.arange(40) % 4
    federation = Federation(Samples(inputs, labels), [np.arange(0, 20), np.arange(20, 40)])
    layers = nn.Linear(16, 64), nn.BatchNorm1d(64, affine=False), nn.ReLU(), nn.Linear(64, 4)
    found = []
    for model in (nn.Sequential(*layers), nn.Sequential(layers[0], *layers[2:])):
        task = Task(model=model, federation=federation, test=None, loss=cross_entropy, fleet=None)
        options = TrainingOptions.of(
            local_steps=1, sparsity=np.full(2, 10.0), rounds=2, learning_rate=0.1, batch_size=8
        )
        found += observed_messages(train_task(task, options))
    assert found[0].sparsity == found[1].sparsity
    assert found[0].bits == pytest.approx(found[1].bits, rel=0.05), "128 statistics alone take as much again"
