"""How many clients a processor should train at a time: python benchmarks/stacks.py

Local steps a second, of the processor's own time, of ten clients that train one by one and in stacks of several sizes,
in turns in one process with one thread. The first column is what FewJoules chooses by itself.
"""

import statistics
import sys
import time

import torch
from report import describe_run, print_table
from rivals import simulated, task

from fewjoules.engine.simulator import execution

CLIENTS, TURNS = 10, 4
DELTA = 100.0
CHUNKS = (None, 1, 2, 3, 5, 10)  # None: as chosen
MODELS = {"cnn, 8 x 8 pixels": ("cnn", (1, 8, 8)), "cnn, 16 x 16 pixels": ("cnn", (1, 16, 16))}
MODELS |= {"lenet5": ("lenet5", (1, 28, 28)), "gpt-tiny": ("gpt-tiny", None)}


def steps_per_second(name: str) -> tuple[int, dict[int | None, float]]:
    """Return the activations of a client's batch, and the speed with each number of clients at a time."""
    model, shape = MODELS[name]
    if shape is not None:
        task.SHAPES[model] = shape
    task.samples.cache_clear()
    chosen, simulators = execution._chosen, {}
    for chunk in CHUNKS:
        execution._chosen = lambda *given, own=chunk: chosen(*given[:-1], own)
        simulators[chunk] = simulated.new_simulator(task.Task(model, CLIENTS, "float32", "cpu", 0))
        simulated.set_delta(simulators[chunk], DELTA)
    execution._chosen = chosen
    seconds: dict[int | None, list[float]] = {chunk: [] for chunk in CHUNKS}
    for turn in range(1 + TURNS):
        for chunk, simulator in simulators.items():
            began = time.process_time()
            simulated.train(simulator, 1)
            if turn > 0:
                seconds[chunk].append(time.process_time() - began)
    activations = simulators[None].execution.activations
    for simulator in simulators.values():
        simulator.close()
    steps = CLIENTS * task.LOCAL_STEPS
    return activations, {chunk: steps / statistics.median(times) for chunk, times in seconds.items()}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        activations, found = steps_per_second(name)
        rows.append([name, f"{activations:,}", *(f"{found[chunk]:.0f}" for chunk in CHUNKS)])
    run = describe_run(" ".join(["python", *sys.argv]), 0, 1, ("numpy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}")
    print(
        f"local steps a second of the processor's time, {CLIENTS} clients, batches of {task.BATCH}, median of {TURNS}"
    )
    print_table(["model", "activations", "as chosen", *map(str, CHUNKS[1:])], rows)


if __name__ == "__main__":
    main()
