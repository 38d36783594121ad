"""The loop everyone writes: client after client in PyTorch, with top-k and error feedback, without a ledger."""

import time

import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rivals.task import (
    LEARNING_RATE,
    Record,
    Serve,
    Task,
    autocast,
    client_samples,
    cores,
    draw_batches,
    new_model,
    set_arithmetic,
    synchronise,
)


def compete(task: Task, serve: Serve) -> None:
    torch.set_num_threads(cores())
    torch.manual_seed(task.seed)
    set_arithmetic(task.precision)
    model, local = new_model(task).to(task.device), new_model(task).to(task.device)
    size = parameters_to_vector(model.parameters()).numel()
    residuals = torch.zeros((task.clients, size), device=task.device)

    def answer(request: Record) -> Record:
        k = max(1, round(size / request["delta"]))
        start = time.perf_counter()
        for _ in range(request["rounds"]):
            run_round(task, model, local, residuals, k)
        synchronise(task)
        return {"seconds": time.perf_counter() - start}

    serve(answer)


def run_round(task: Task, model: torch.nn.Module, local: torch.nn.Module, residuals: torch.Tensor, k: int) -> None:
    weights = parameters_to_vector(model.parameters()).detach()
    state = model.state_dict()
    mean = torch.zeros_like(weights)
    buffers = {name: torch.zeros_like(b) for name, b in model.named_buffers() if b.is_floating_point()}
    for client in range(task.clients):
        local.load_state_dict(state)
        train_client(task, local, client)
        update = weights - parameters_to_vector(local.parameters()).detach() + residuals[client]
        positions = torch.topk(update.abs(), k).indices
        values = update[positions]
        mean.index_add_(0, positions, values, alpha=1.0 / task.clients)
        update[positions] = 0.0
        residuals[client] = update
        for name, buffer in local.named_buffers():
            if name in buffers:
                buffers[name] += buffer / task.clients
    vector_to_parameters(weights - mean, model.parameters())
    for name, buffer in model.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])


def train_client(task: Task, local: torch.nn.Module, client: int) -> None:
    local.train()
    optimizer = torch.optim.SGD(local.parameters(), lr=LEARNING_RATE)
    images, labels = client_samples(task, client)
    for batch in draw_batches(task.device):
        optimizer.zero_grad()
        with autocast(task):
            outputs = local(images[batch])
        loss = functional.cross_entropy(outputs.float().flatten(0, -2), labels[batch].flatten())  # tokens, if text
        loss.backward()
        optimizer.step()
