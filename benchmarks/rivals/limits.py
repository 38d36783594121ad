"""The limits of the machine: a large matrix product and a large copy, and what a local step asks of both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from rivals.task import BATCH, SHAPES, Record, Serve, Task, cores, new_model, set_arithmetic, synchronise

REPEATS = 7
GPU_SIDE, CPU_SIDE = 8192, 2048
GPU_COPY_FLOATS, CPU_COPY_FLOATS = 1 << 28, 1 << 25


@dataclass(frozen=True, slots=True)
class Work:
    """What one local step of one client takes, counted layer by layer."""

    flops: int
    estimated_bytes: int


def compete(task: Task, serve: Serve) -> None:
    torch.set_num_threads(cores())

    def answer(request: Record) -> Record:
        products = {precision: product_flops_per_second(task, precision) for precision in request["precisions"]}
        return {"product_flops_per_second": products, "copy_bytes_per_second": copy_bytes_per_second(task)}

    serve(answer)


def product_flops_per_second(task: Task, precision: str) -> float:
    set_arithmetic(precision)
    side = GPU_SIDE if task.device == "cuda" else CPU_SIDE
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn((side, side), device=task.device).to(kind) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * side**3 / median_seconds(task, lambda: torch.matmul(left, right, out=out))


def copy_bytes_per_second(task: Task) -> float:
    """Bytes read and written."""
    floats = GPU_COPY_FLOATS if task.device == "cuda" else CPU_COPY_FLOATS
    source = torch.ones(floats, device=task.device)
    target = torch.zeros_like(source)
    return 8 * floats / median_seconds(task, lambda: target.copy_(source))


def median_seconds(task: Task, action: Callable[[], object]) -> float:
    seconds = []
    for _ in range(2 + REPEATS):
        synchronise(task)
        start = time.perf_counter()
        action()
        synchronise(task)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def work_of_step(task: Task) -> Work:
    """Products of forward and backward passes, and bytes where normalisation and activations cost no traffic.

    A layer reads its input in both passes and writes that input's gradient; it writes its output and reads the
    output's gradient twice. The first layer needs no gradient of its input. Each weight is read in both passes, its
    gradient written and read, and itself read and written by the step.
    """
    model = new_model(task)
    layers: list[tuple[int, int, int]] = []  # multiply-adds, floats in, floats out of one sample

    def note(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        layers.append((multiply_adds(layer, output), inputs[0].numel(), output.numel()))

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.MaxPool2d):
            layer.register_forward_hook(note)
    with torch.no_grad():
        model.eval()(torch.zeros((1, *SHAPES[task.model])))
    products = 3 * sum(count for count, _, _ in layers) - layers[0][0]
    activations = sum(3 * before + 3 * after for _, before, after in layers) - layers[0][1]
    weights = sum(parameter.numel() for parameter in model.parameters())
    activation_bytes = 2 if task.precision == "bf16" else 4
    return Work(2 * BATCH * products, BATCH * activations * activation_bytes + 6 * 4 * weights)


def multiply_adds(layer: nn.Module, output: torch.Tensor) -> int:
    if isinstance(layer, nn.Conv2d):
        rows, columns = layer.kernel_size
        return output.numel() * layer.in_channels * rows * columns
    return layer.in_features * layer.out_features if isinstance(layer, nn.Linear) else 0
