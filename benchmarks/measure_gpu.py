"""Joules of local steps on a GPU, accounted for twice: python benchmarks/measure_gpu.py [--clients 12 100]

Runs what ``fewjoules measure step --device cuda`` runs, for LeNet5 on images like MNIST's and ResNet20 on images like
CIFAR-10's, random ones, with several numbers of clients as one batch. Beside it the script reads NVML's counter itself,
before and after each measurement. Prints the joules and seconds of a client's step, with idle power apart, and how far
the sum of all idle windows, warm-ups and trials is from the counter. Exits with 1 if that is over 3 %. Needs a GPU
and pynvml.
"""

import argparse
import math
import sys
import time

import numpy as np
import scipy.optimize
import scipy.special  # noqa: F401
import torch
from report import print_table

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.architectures import Images
from fewjoules.metering.costs import Costs
from fewjoules.metering.nvml import find
from fewjoules.metering.protocol import Bench, Protocol
from fewjoules.runs.device import choose_device, gpu_uuid
from fewjoules.runs.measuring.random_task import random_task
from fewjoules.runs.measuring.step import measure_steps

MODELS = {"lenet5": Images(1, 28, 28, 10), "resnet20": Images(3, 32, 32, 10)}  # MNIST's and CIFAR-10's
ALLOWED = 0.03
STEPS = 10


class Counter:
    """NVML's energy counter, read without the code that is under test."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._read, self._gpu = pynvml.nvmlDeviceGetTotalEnergyConsumption, pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def joules(self) -> float:
        return 1e-3 * self._read(self._gpu)


def options(clients: int, batch_size: int) -> TrainingOptions:
    return TrainingOptions.of(
        local_steps=STEPS, sparsity=np.ones(clients), rounds=1, learning_rate=0.01, batch_size=batch_size
    )


def measured(architecture: str, clients: int, sizes: list[int], seconds: float) -> tuple[Costs, list[list[str]], float]:
    """Return the costs, the rows of the table, and the relative difference of the two accountings."""
    device = choose_device("cuda")
    uuid = gpu_uuid(device)
    assert uuid is not None
    finding = find(uuid)
    if finding.problem is not None or finding.open is None:
        sys.exit(f"error: {finding}")
    counter = Counter(uuid)
    torch.zeros(1, device=device)
    meter = finding.open()
    bench = Bench(meter, Protocol(limit_seconds=seconds), say=lambda text: print(f"  {text}", file=sys.stderr))
    try:
        before, began = counter.joules(), time.perf_counter()
        costs = measure_steps(
            lambda: random_task(architecture, MODELS[architecture], device, clients=clients, samples=1024),
            lambda size: options(clients, size),
            bench,
            batch_sizes=sizes,
        )
        whole, wall = counter.joules() - before, time.perf_counter() - began
    finally:
        meter.close()
    accounted = math.fsum(window.joules or 0.0 for window in bench.windows)
    timed = math.fsum(window.seconds for window in bench.windows)
    difference = accounted / whole - 1.0
    print(
        f"{architecture}, {clients} clients: windows {accounted:.1f} J in {timed:.1f} s, counter {whole:.1f} J in "
        f"{wall:.1f} s, difference {difference:+.2%}"
    )
    kinds = sorted({window.kind for window in bench.windows})
    for kind in kinds:
        own = [window for window in bench.windows if window.kind == kind]
        joules, length = (math.fsum(getattr(one, name) or 0.0 for one in own) for name in ("joules", "seconds"))
        print(f"  {kind:<12} {len(own):4} windows {length:8.2f} s {joules:9.1f} J {joules / length:7.1f} W")
    return costs, [_row(architecture, clients, costs, number) for number in range(len(costs.points))], difference


def _row(architecture: str, clients: int, costs: Costs, number: int) -> list[str]:
    point = costs.points[number]
    assert costs.idle is not None
    net, gross = (point.trials.joules_estimate(idle) for idle in (costs.idle, None))
    seconds = point.trials.seconds_estimate()
    cells = [architecture, str(clients), point.label, str(net), str(gross), f"{costs.idle.mean * seconds.mean:.4g}"]
    return [*cells, str(seconds), f"{gross.mean / seconds.mean:.0f}", str(len(point.trials.seconds))]


def _fit_row(architecture: str, clients: int, costs: Costs) -> list[str]:
    assert costs.joules is not None
    fits = [*costs.joules.coefficients, *costs.seconds.coefficients]
    residual = max(costs.joules.largest_residual, costs.seconds.largest_residual)
    return [
        architecture,
        str(clients),
        *(f"{fit.value:.3g} [{fit.low:.3g}, {fit.high:.3g}]" for fit in fits),
        f"{residual:.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--clients", nargs="+", type=int, default=[12, 100])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of the trials of each batch size")
    chosen = parser.parse_args()
    rows, fits, worst = [], [], 0.0
    for architecture in chosen.models:
        for clients in chosen.clients:
            costs, own, difference = measured(architecture, clients, chosen.batch_sizes, chosen.seconds)
            rows += own
            fits.append(_fit_row(architecture, clients, costs))
            worst = max(worst, abs(difference))
    titles = ["model", "clients", "batch", "J a client-step", "with idle J", "idle J", "seconds", "W", "trials"]
    print_table(titles, rows)
    print_table(["model", "clients", "J a step", "J a sample", "s a step", "s a sample", "residual"], fits)
    print(f"largest difference of the two accountings: {worst:.2%} (allowed {ALLOWED:.0%})")
    sys.exit(worst > ALLOWED)


if __name__ == "__main__":
    main()
