"""Flower's simulation: its FedAvg on Ray, a client to a core, without compression and ledger."""

import os
import time
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional

from rivals.task import (
    LEARNING_RATE,
    LOCAL_STEPS,
    Record,
    Serve,
    Task,
    autocast,
    client_samples,
    cores,
    draw_batches,
    new_model,
    set_arithmetic,
)

GPU_CLIENTS = 8  # at once on one GPU

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def compete(task: Task, serve: Serve) -> None:
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        return train_client(task, message, int(context.node_config["partition-id"]))

    @server.main()
    def main(grid, context):
        arrays = ArrayRecord(new_model(task).state_dict())

        def answer(request: Record) -> Record:
            nonlocal arrays
            strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=task.clients, min_available_nodes=task.clients)
            start = time.perf_counter()
            arrays = strategy.start(grid, arrays, num_rounds=request["rounds"]).arrays
            return {"seconds": time.perf_counter() - start}

        serve(answer)

    gpu = task.device == "cuda"
    at_once = GPU_CLIENTS if gpu else cores()
    resources = {"num_cpus": 1, "num_gpus": 1 / GPU_CLIENTS if gpu else 0.0}
    ray = {"num_cpus": at_once, "num_gpus": int(gpu), "log_to_driver": False}
    run_simulation(server, client, task.clients, backend_config={"init_args": ray, "client_resources": resources})


@lru_cache(maxsize=1)
def local_model(task: Task) -> nn.Module:
    torch.set_num_threads(1)
    set_arithmetic(task.precision)
    return new_model(task).to(task.device)


def train_client(task: Task, message, client: int):
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    model = local_model(task)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    images, labels = client_samples(task, client)
    for batch in draw_batches(task.device):
        optimizer.zero_grad()
        with autocast(task):
            outputs = model(images[batch])
        functional.cross_entropy(outputs.float(), labels[batch]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": LOCAL_STEPS})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
