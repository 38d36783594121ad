"""How many clients train at a time; cuda/test_cuda.py has the chunks of a real GPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fewjoules.engine.simulator.execution import gpu_chunk
from tests.engine.simulators import simulator_of

SIZES = st.integers(1, 10**10)


@given(st.integers(2**30, 2**38), SIZES, SIZES)
def test_what_a_chunk_needs_at_the_very_least_fits_unless_it_is_one_client(total, activations, weights):
    chunk = gpu_chunk(total, activations=activations, weights=weights)
    assert chunk >= 1
    # an activation and its gradient; weights before and after a step, and their gradient
    assert chunk == 1 or chunk * 4 * (2 * activations + 3 * weights) <= total / 2


@given(st.integers(2**30, 2**38), SIZES, SIZES, st.integers(2, 100))
def test_larger_clients_train_fewer_at_a_time_and_larger_gpus_more(total, activations, weights, factor):
    chunk = gpu_chunk(total, activations=activations, weights=weights)
    assert gpu_chunk(total, activations=factor * activations, weights=weights) <= chunk
    assert gpu_chunk(total, activations=activations, weights=factor * weights) <= chunk
    assert gpu_chunk(factor * total, activations=activations, weights=weights) >= chunk


def test_a_hundred_clients_of_a_large_model_are_split_on_a_usual_gpu():
    resnet50 = 25_557_032
    assert gpu_chunk(16 * 2**30, activations=10**6, weights=resnet50) < 100
    assert gpu_chunk(139 * 2**30, activations=32 * 20_000, weights=431_080) > 100


def execution_of(outputs, clients):
    """How a linear layer trains on batches of 100 samples, which give 100 floats for each output."""
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((100, 2), dtype=np.float32), rng.integers(0, 10, 100)) for _ in range(clients)]
    options = {"local_steps": 1, "sparsity": [10.0] * clients, "rounds": 1, "learning_rate": 0.1, "batch_size": 100}
    simulator = simulator_of(nn.Linear(2, outputs), data, options)
    simulator.close()
    assert simulator.execution.activations == 100 * outputs
    return simulator.execution


@pytest.mark.parametrize(
    ("outputs", "chunk"), [(100, 5), (1800, 5), (2000, 5), (2500, 4), (2621, 4), (2622, 1), (40_000, 1)]
)
def test_on_a_processor_clients_are_stacked_where_four_or_more_fit_the_cache(outputs, chunk):
    """Ten clients in two stacks or more; 2**20 floats fit."""
    found = execution_of(outputs, clients=10)
    assert (found.chunk, found.stacked) == (chunk, chunk > 1)


@pytest.mark.parametrize(("clients", "chunk"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 3), (6, 3), (7, 4)])
def test_on_a_processor_clients_are_stacked_from_three_at_a_time_on(clients, chunk):
    found = execution_of(100, clients)
    assert (found.chunk, found.stacked) == (chunk, chunk > 1)
