"""pfl itself on very many users, run by an interpreter that has pfl and torch.

    python crowd_pfl.py USERS COHORT ROUNDS

Prints the processor seconds of a round and the memory in use, as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional

from rivals.crowd import BATCH, LEARNING_RATE, LOCAL_STEPS, SAMPLES, first_sample, new_model, pool


class Classifier(nn.Module):
    """pfl asks the module itself for its loss and metrics."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.network(inputs)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.train()
        return functional.cross_entropy(self(inputs), labels)

    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, object]:
        return {}


def main(users: int, cohort: int, rounds: int) -> None:
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl draws its users from it
    inputs, labels = pool()

    def user(number: int) -> Dataset:
        own = slice(first_sample(number), first_sample(number) + SAMPLES)
        return Dataset([inputs[own], labels[own]])

    data = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(users))))
    network = Classifier(new_model())
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    steps = NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=LOCAL_STEPS,
        local_learning_rate=LEARNING_RATE,
        local_batch_size=BATCH,
    )
    backend = SimulatedBackend(training_data=data, val_data=data)

    def run(count: int) -> float:
        params = NNAlgorithmParams(
            central_num_iterations=count,
            evaluation_frequency=10**9,
            train_cohort_size=cohort,
            val_cohort_size=0,
        )
        began = time.process_time()
        FederatedAveraging().run(params, backend, model, steps, send_metrics_to_platform=False)
        return (time.process_time() - began) / count

    run(1)
    seconds = [run(1) for _ in range(rounds)]
    with open("/proc/self/statm", encoding="ascii") as stream:
        memory = int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(json.dumps({"seconds": sorted(seconds)[len(seconds) // 2], "memory": memory}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
