"""Joules and seconds of local steps, as the simulator takes them, fitted as a fixed part and a part per sample."""

import contextlib
import warnings
from collections.abc import Callable, Sequence

import torch

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import FewJoulesWarning
from fewjoules.metering.costs import Costs, Point, costs_of
from fewjoules.metering.estimate import Estimate
from fewjoules.metering.protocol import Bench, Trials
from fewjoules.runs.device import using
from fewjoules.runs.memory import require_memory
from fewjoules.runs.training import Task


def measure_steps(
    new_task: Callable[[], Task],
    options_of: Callable[[int], TrainingOptions],
    bench: Bench,
    *,
    batch_sizes: Sequence[int],
    with_idle: bool = False,
) -> Costs:
    """Measure steps with batches of each size, by the options for it; costs are those of one step of one client.

    ``with_idle`` says of which joules the trials must narrow the interval: with idle power in them or not.
    """
    with bench.preparing("data and model"):
        task = new_task()
        with (
            using(task.federation.device),
            contextlib.closing(_new_simulator(task, options_of(max(batch_sizes)))) as one,
        ):
            require_memory(one, rows_in_memory=False)
        _wait(task)
    idle = bench.idle_watts()
    taken_off = None if with_idle else idle
    points = []
    with using(task.federation.device):
        for size in sorted(set(batch_sizes)):
            trials = _trials(task, options_of(size), bench, taken_off, f"batch {size}")
            points.append(Point(f"batch {size}", (1.0, float(size)), trials))
    return costs_of(points, idle)


def _trials(task: Task, options: TrainingOptions, bench: Bench, idle: Estimate | None, name: str) -> Trials:
    with bench.preparing(f"{name}: preparation, in which kernels may compile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewJoulesWarning)  # the first simulator has said it
            simulator = _new_simulator(task, options)
        steps = simulator.steps_alone()
        steps()
        _wait(task)

    def work(times: int) -> None:
        for _ in range(times):
            steps()
        _wait(task)

    try:
        return bench.measure(name, work, pieces=options.clients * options.local_steps, idle=idle)
    finally:
        simulator.close()


def _new_simulator(task: Task, options: TrainingOptions) -> Simulator:
    return Simulator(task.model, task.federation, options, loss=task.loss)


def _wait(task: Task) -> None:
    device = task.federation.device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
