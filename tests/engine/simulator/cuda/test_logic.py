"""What the GPU's clients do with messages, memories and means, carried out on the processor against its own clients.

Kernels and graphs are stood in for by their twins; test_cuda.py has them on a real GPU.
"""

import sys
import types

import numpy as np
import pytest
import torch

from fewjoules.codec.select import top_k_with_feedback
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.models.networks import build
from fewjoules.engine.simulator.cuda import backend as gpu
from fewjoules.engine.simulator.cuda import messages as gpu_messages
from fewjoules.engine.simulator.federation import Federation
from fewjoules.engine.simulator.local import Samples, train_stack
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.physics.fleet import Fleet

CLIENTS = 5


class Here:
    def synchronize(self):
        pass


def select_rows(updates, residuals, counts, left):
    rows = zip(updates.numpy(), residuals.numpy(), counts, left.numpy(), strict=True)
    sent = [top_k_with_feedback(update, residual, k, out=rest)[0] for update, residual, k, rest in rows]
    positions, values = (np.concatenate([getattr(one, name) for one in sent]) for name in ("positions", "values"))
    return torch.from_numpy(positions), torch.from_numpy(values), torch.zeros(len(counts))


def train_here(self, state, task, part):
    clients = part.stop - part.start
    local, buffers = state.weights.repeat(clients, 1), state.buffers.repeat(clients, 1)
    progress = train_stack(self._model, self.samples, task.batches.of(part), local, buffers, self.options.momentum)
    return state.weights - local, progress, buffers


@pytest.fixture
def without_gpu(monkeypatch):
    twins = types.ModuleType("fewjoules.engine.simulator.cuda.topk")
    twins.select_rows, twins.rows_with_nan, twins.forget_selections = select_rows, lambda _: [], lambda: None
    monkeypatch.setitem(sys.modules, "fewjoules.engine.simulator.cuda.topk", twins)
    for module in (gpu, gpu_messages):
        monkeypatch.setattr(module, "to_host", lambda *tensors: ([tensor.clone() for tensor in tensors], Here()))
    monkeypatch.setattr(gpu.GpuClients, "_train", train_here)


def after(rounds, backend, chunk, architecture="cnn", **given):
    settings = {"local_steps": 2, "sparsity": np.array([1.0, 5.0, 20.0, 50.0, 100.0]), "rounds": 9}
    options = TrainingOptions(**settings | {"learning_rate": 0.05, "batch_size": 8} | given)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((100, 1, 8, 8), dtype=np.float32))
    samples = Samples(images, torch.from_numpy(rng.integers(0, 10, 100)))
    costs = {"joules_per_bit": 1e-7, "joules_per_step": np.full(CLIENTS, 0.01), "downlink_joules_per_bit": 1e-8}
    model = build(architecture, channels=1, height=8, width=8, classes=10, seed=1)
    federation = Federation(samples, np.split(np.arange(100), [10, 30, 60, 80]))
    simulator = Simulator(model, federation, options, loss=cross_entropy, fleet=Fleet(**costs), chunk=chunk)
    if backend == "gpu":
        simulator._clients = gpu.GpuClients(
            model, cross_entropy, samples, options, chunk=chunk, stacked=True, seeded=False, compiled=False
        )
    rows = np.concatenate([simulator.start_round()().rows for _ in range(rounds)])
    simulator.close()
    return simulator.state, rows


@pytest.mark.parametrize("chunk", [2, 5])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"participation": 0.6, "failure_probability": 0.4},
        {"error_feedback": False, "failure_probability": 0.4},
        {"downlink": "charged"},
        {"sparsity": np.ones(CLIENTS), "failure_probability": 0.4, "participation": 0.6},
        {"compressor": "none", "failure_probability": 0.4},
        {"compressor": "ternary", "failure_probability": 0.4},
        {"compressor": "random-k", "participation": 0.6},
        {"compressor": "qsgd", "failure_probability": 0.4},
        {"compressor": "qsgd", "error_feedback": False},
        {"values": "qsgd", "participation": 0.6},
        {"values": "int8", "failure_probability": 0.4},
        {"weighting": "samples", "momentum": 0.5},
    ],
    ids=str,
)
def test_rounds_are_the_processors(without_gpu, given, chunk):
    (here, booked), (there, booked_there) = (after(3, backend, chunk, **given) for backend in ("processor", "gpu"))
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there.memories, here.memories, rtol=1e-5, atol=2e-6)
    for column in ("round", "device", "delivered", "entries", "samples", "downlink_bytes"):
        np.testing.assert_array_equal(booked_there[column], booked[column])
    np.testing.assert_allclose(booked_there["payload_bytes"], booked["payload_bytes"], atol=4)


def test_buffers_are_averaged_and_charged_as_on_the_processor(without_gpu):
    (here, booked), (there, booked_there) = (after(2, backend, 5, "resnet20") for backend in ("processor", "gpu"))
    np.testing.assert_allclose(there.buffers, here.buffers, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(booked_there["payload_bytes"], booked["payload_bytes"], atol=4)
