"""Apple's pfl: federated averaging of the same model with its simulated backend, without compression and ledger."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rivals.task import (
    BATCH,
    LEARNING_RATE,
    LOCAL_STEPS,
    Record,
    Serve,
    Task,
    client_samples,
    cores,
    draw_batches,
    new_model,
    set_arithmetic,
    synchronise,
)


class Classifier(nn.Module):
    """pfl asks the module itself for its loss and metrics."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(images)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.train()
        return functional.cross_entropy(self(images).float(), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> Record:
        return {}


def compete(task: Task, serve: Serve) -> None:
    os.environ["PFL_PYTORCH_DEVICE"] = task.device
    torch.set_num_threads(cores())
    torch.manual_seed(task.seed)
    np.random.seed(task.seed)  # noqa: NPY002 (pfl draws its users from it)
    set_arithmetic(task.precision)
    run_rounds = new_federation(task)

    def answer(request: Record) -> Record:
        start = time.perf_counter()
        run_rounds(request["rounds"])
        synchronise(task)
        return {"seconds": time.perf_counter() - start}

    serve(answer)


def new_federation(task: Task):
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    def user(client: int) -> Dataset:
        images, labels = client_samples(task, client)
        drawn = draw_batches(task.device).flatten()
        return Dataset([images[drawn], labels[drawn]])

    data = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(task.clients))))
    backend = SimulatedBackend(training_data=data, val_data=data)
    network = Classifier(new_model(task)).to(task.device)
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        amp_dtype=torch.bfloat16 if task.precision == "bf16" else None,
    )
    steps = NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=LOCAL_STEPS,
        local_learning_rate=LEARNING_RATE,
        local_batch_size=BATCH,
    )

    def run_rounds(rounds: int) -> None:
        params = NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=task.clients,
            val_cohort_size=0,
        )
        FederatedAveraging().run(params, backend, model, steps, send_metrics_to_platform=False)

    return run_rounds
