"""Local steps are measured as the simulator takes them, and messages as devices write them."""

import numpy as np
import pytest
import torch

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.architectures import Images
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.metering.protocol import TRIAL, WARM_UP, Bench, Protocol
from fewjoules.runs.device import choose_device, gpu_uuid
from fewjoules.runs.measuring.random_task import random_task
from fewjoules.runs.measuring.scenario import (
    codec_measurement,
    step_measurement,
    usual_batch_sizes,
    usual_sparsities,
)
from fewjoules.scenario import Scenario
from tests.scenario.test_training_scenario import RATE, SCENARIO, trained_with

CPU = torch.device("cpu")
QUICK = Protocol(window_seconds=0.001, least_trials=2, limit_seconds=0.0)


def scenario_of(text):
    return Scenario.from_text(text, "test.toml", None)


def simulator_of(clients, **options):
    task = random_task("mlp", Images(1, 8, 8, 10), CPU, clients=clients, samples=64)
    chosen = TrainingOptions.of(
        local_steps=3, sparsity=np.ones(clients), rounds=5, learning_rate=0.1, batch_size=8, **options
    )
    return Simulator(task.model, task.federation, chosen, loss=task.loss)


@pytest.mark.parametrize("clients", [1, 5])
@pytest.mark.parametrize("options", [{}, {"inner": "adamw"}, {"momentum": 0.9, "momentum_state": "kept"}])
def test_steps_alone_are_the_steps_of_the_first_round_and_change_nothing(clients, options, monkeypatch):
    taken, really = [], torch.autograd.grad

    def counted(*arguments, **named):
        taken.append(1)
        return really(*arguments, **named)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    untouched, measured = simulator_of(clients, **options), simulator_of(clients, **options)
    taken.clear()
    steps = measured.steps_alone()
    for _ in range(3):
        steps()
    alone = len(taken)
    one, other = (simulator.start_round()() for simulator in (untouched, measured))
    assert alone / 3 == (len(taken) - alone) / 2
    assert torch.equal(untouched.state.weights, measured.state.weights)
    assert one.train_loss == other.train_loss
    for simulator in (untouched, measured):
        simulator.close()


@pytest.mark.gpu
@pytest.mark.parametrize("clients", [1, 12])
def test_steps_alone_run_on_a_gpu(clients):
    task = random_task("mlp", Images(1, 8, 8, 10), choose_device("cuda"), clients=clients, samples=64)
    options = TrainingOptions.of(
        local_steps=3, sparsity=np.ones(clients), rounds=5, learning_rate=0.1, batch_size=8, momentum=0.9
    )
    simulator = Simulator(task.model, task.federation, options, loss=task.loss)
    before = simulator.state.weights.clone()
    steps = simulator.steps_alone()
    for _ in range(3):
        steps()
    torch.cuda.synchronize()
    assert torch.equal(simulator.state.weights, before)
    assert gpu_uuid(choose_device("cuda")).startswith("GPU-")
    simulator.close()


class Clock:
    """Tells the samples and client-steps that the simulator has trained in place of seconds."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def test_costs_of_a_step_are_those_of_one_client_by_fixed_and_sample(monkeypatch):
    clock = Clock()
    really = Simulator.steps_alone

    def charged(simulator):
        steps, options = really(simulator), simulator.options

        def take():
            steps()
            clock.seconds += options.clients * options.local_steps * (0.5 + 0.25 * options.batch_size)

        return take

    monkeypatch.setattr(Simulator, "steps_alone", charged)
    bench = Bench(None, QUICK, clock=clock)
    costs = step_measurement(scenario_of(SCENARIO), CPU, clients=3, batch_sizes=[4, 8, 16])(bench)
    assert [one.value for one in costs.seconds.coefficients] == [pytest.approx(0.5), pytest.approx(0.25)]
    assert [point.label for point in costs.points] == ["batch 4", "batch 8", "batch 16"]
    assert {window.kind for window in bench.windows} >= {WARM_UP, TRIAL}


@pytest.mark.parametrize("compressor", ["top-k", "chunked-top-k", "random-k", "none", "ternary", "qsgd"])
def test_messages_of_every_compressor_are_measured(compressor):
    scenario = scenario_of(trained_with(f'compressor = "{compressor}"'))
    writing, reading = codec_measurement(scenario, sparsities=[2.0, 10.0, 50.0])(Bench(None, QUICK))
    entries = [point.terms for point in writing.points]
    kept = [(650.0, 325.0), (650.0, 65.0), (650.0, 13.0)]
    assert entries == (kept if compressor in ("top-k", "chunked-top-k", "random-k", "ternary") else [(650.0,)])
    assert all(point.trials.seconds_estimate().mean > 0.0 for point in (*writing.points, *reading.points))


def test_usual_sizes_follow_the_scenario():
    assert usual_batch_sizes(scenario_of(SCENARIO)) == [16, 32, 64, 128]
    assert usual_batch_sizes(scenario_of(trained_with("batch_size = 1"))) == [1, 2, 4]
    assert usual_sparsities(scenario_of(SCENARIO)) == [3.0, 10.0, 30.0, 100.0]
    with pytest.raises(InvalidInputError, match=r"give --batch-sizes"):
        usual_batch_sizes(scenario_of(trained_with('batch_size = "all"')))


def test_options_of_fleets_and_channels_do_not_disturb():
    text = trained_with(
        'channel = "drawn"',
        'downlink = "charged"',
        "participation = 0.5",
        'sampling = "energy"',
        "target_accuracy = 0.9",
        "batch_growth = 1.1",
        "downlink_sparsity = 10",
    )
    costs = step_measurement(scenario_of(text), CPU, clients=1, batch_sizes=[2, 4])(Bench(None, QUICK))
    assert len(costs.points) == 2


def test_a_recipe_is_measured_in_place_of_the_training():
    recipe = """
[recipe]
name = "dense"
optimiser = {learning_rate = 0.2, batch_size = 4}
message = {compressor = "none"}
rounds = {kind = "paper", alpha = 1e-4, beta = 1.0}
"""
    scenario = scenario_of(SCENARIO.replace(RATE, "") + recipe)
    assert usual_batch_sizes(scenario) == [2, 4, 8, 16]
    writing, _ = codec_measurement(scenario, sparsities=[2.0, 10.0])(Bench(None, QUICK))
    assert [point.terms for point in writing.points] == [(650.0,)]
