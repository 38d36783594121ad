"""Rounds of text networks in the simulator, in the loop that everyone writes, and in a vmap of torch.func.

All three train the same clients for the same local steps and send the largest entries of their changes; the simulator
also counts every message and keeps a ledger. They take turns in one process. On a processor its
own time counts, not that of the clock, so that other work on the machine does not.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rivals import loop, simulated
from rivals.task import Task, new_model, set_arithmetic, synchronise
from rivals.vmapped import Stack
from torch.nn.utils import parameters_to_vector

Record = dict[str, Any]
DELTA = 100.0
WARM_UPS = 2


def speeds(task: Task, turns: int) -> Record:
    """Return the median local steps a second of all clients together, of each contestant."""
    set_arithmetic(task.precision)
    torch.manual_seed(task.seed)
    model, local = new_model(task).to(task.device), new_model(task).to(task.device)
    size = parameters_to_vector(model.parameters()).numel()
    k = max(1, round(size / DELTA))
    residuals = torch.zeros((task.clients, size), device=task.device)
    stack, simulator = Stack(task, k), simulated.new_simulator(task)
    simulated.set_delta(simulator, DELTA)
    contestants: dict[str, Callable[[], object]] = {
        "loop": lambda: loop.run_round(task, model, local, residuals, k),
        "vmap": stack.run_round,
        "simulator": lambda: simulated.train(simulator, 1),
    }
    clock = time.process_time if task.device == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(WARM_UPS + turns):
        for name, run_round in contestants.items():
            synchronise(task)
            began = clock()
            run_round()
            synchronise(task)
            if turn >= WARM_UPS:
                seconds[name].append(clock() - began)
    execution = simulator.execution.name
    simulator.close()
    found = {name: task.client_steps / statistics.median(times) for name, times in seconds.items()}
    return {"steps_per_second": found, "parameters": size, "execution": execution}
