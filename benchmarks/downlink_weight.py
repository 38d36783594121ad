"""How much the server's sparsity delays training beside the devices': python benchmarks/downlink_weight.py

Trains the embedded scenario with every H, sparsity of the devices and sparsity of the server of a grid, with several
seeds, until the target accuracy. Fits the law of docs/planner.md,

    K = tau / H (1 + c H^a s),    s = delta^q + w (delta_s^q - 1),

and prints w with its standard error: all five constants free, and with a and q of the scenario. Each process has a
core of its own.
"""

import argparse
import csv
import itertools
import multiprocessing
import os
import sys
from dataclasses import replace

import numpy as np
from report import describe_run, print_table

LOCAL_STEPS, SPARSITIES, SERVER = (1, 5, 20), (20.0, 100.0), (1.0, 5.0, 20.0, 100.0, 400.0)
MOST_STEPS, EVALUATE_STEPS = 6000, 10


def use_core(cores: "multiprocessing.Queue[int]") -> None:
    """Give the process a core, before anything counts them."""
    os.sched_setaffinity(0, {cores.get()})


def rounds_to_target(cell: tuple[int, float, float, int]) -> int | None:
    """Return the rounds to the target of one pilot run; None if it does not reach it."""
    import torch

    from fewjoules.engine.loop import TARGET
    from fewjoules.planner.schemes import unified
    from fewjoules.runs.task import options_for, prepare, varied
    from fewjoules.runs.training import train_task
    from fewjoules.scenario import Scenario

    steps, sparsity, server, seed = cell
    torch.set_num_threads(1)
    scenario = Scenario.embedded()
    task = varied(prepare(scenario, torch.device("cpu")), seed=seed, downlink="free", channel="average")
    base = options_for(task, unified(scenario.problem()))
    options = replace(
        base,
        local_steps=steps,
        sparsity=np.full(base.clients, sparsity),
        downlink_sparsity=server,
        rounds=MOST_STEPS // steps,
        evaluate_every=max(1, EVALUATE_STEPS // steps),
    )
    training = train_task(task, options)
    return training.rounds if training.reason == TARGET else None


def fitted(
    rows: list[tuple[int, float, float, float]], fixed: dict[str, float]
) -> tuple[dict[str, float], dict[str, float], float]:
    """Return the constants, their standard errors and the rms residual of ln K."""
    from scipy.optimize import least_squares

    H, delta, server, rounds = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    start = {"ln_tau": np.log(160.0), "ln_c": np.log(0.02), "a": 0.57, "q": 0.56, "w": 1.0}
    free = [name for name in start if name not in fixed]

    def residuals(x: np.ndarray) -> np.ndarray:
        law = start | fixed | dict(zip(free, x, strict=True))
        power = delta ** law["q"] + law["w"] * (server ** law["q"] - 1.0)
        return law["ln_tau"] - np.log(H) + np.log1p(np.exp(law["ln_c"]) * H ** law["a"] * power) - np.log(rounds)

    lower = [0.0 if name == "w" else -20.0 for name in free]
    found = least_squares(residuals, [start[name] for name in free], bounds=(lower, np.full(len(free), 20.0)))
    variance = 2.0 * found.cost / (rounds.size - len(free))
    errors = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)) * variance)
    constants = dict(zip(free, found.x.tolist(), strict=True))
    return constants, dict(zip(free, errors.tolist(), strict=True)), float(np.sqrt(np.mean(found.fun**2)))


def main() -> None:
    """Run the grid and print the fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--csv", metavar="FILE.csv", help="also write every pilot run")
    given = parser.parse_args()
    cells = list(itertools.product(LOCAL_STEPS, SPARSITIES, SERVER, range(given.seeds)))
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), given.processes):
        cores.put(core)
    with context.Pool(given.processes, use_core, (cores,)) as pool:
        rounds = []
        for number, found in enumerate(pool.imap(rounds_to_target, cells), start=1):
            rounds.append(found)
            print(f"\r{number} of {len(cells)} pilot runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    report(cells, rounds, given.csv)


def report(cells: list[tuple[int, float, float, int]], rounds: list[int | None], target: str | None) -> None:
    """Print a table of the means, and the fits."""
    if target is not None:
        with open(target, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["local_steps", "sparsity", "downlink_sparsity", "seed", "rounds"])
            writer.writerows([*cell, found or ""] for cell, found in zip(cells, rounds, strict=True))
    command = "What weight the server's sparsity has: python benchmarks/downlink_weight.py"
    run = describe_run(command, 0, len(os.sched_getaffinity(0)), ("numpy", "scipy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}\n{run['packages']}")
    table, rows = [], []
    for H, delta in itertools.product(LOCAL_STEPS, SPARSITIES):
        shown = []
        for server in SERVER:
            runs = [found for cell, found in zip(cells, rounds, strict=True) if cell[:3] == (H, delta, server)]
            met = [found for found in runs if found is not None]
            rows += [(H, delta, server, np.exp(np.mean(np.log(met))))] if len(met) == len(runs) else []
            shown.append(f"{np.mean(met):.0f}" if len(met) == len(runs) else f"{len(met)} of {len(runs)} met")
        table.append([str(H), f"{delta:g}", *shown])
    print_table(["H", "sparsity", *(f"server {server:g}" for server in SERVER)], table)
    for name, fixed in (("five constants free", {}), ("a = 0.568, q = 0.564", {"a": 0.568, "q": 0.564})):
        constants, errors, rms = fitted(rows, fixed)
        told = ", ".join(f"{key} = {value:.3g} +- {errors[key]:.1g}" for key, value in constants.items())
        print(f"{name}: {told}; rms of ln K {rms:.3f}")


if __name__ == "__main__":
    main()
