"""What the rounds law says for partial participation: python benchmarks/participation.py

Trains the embedded scenario with 24 clients, of which all or a part take part in each round, with every partition, H
and sparsity of a grid and several seeds, until the target accuracy. Fits

    K(n) = K(N) (1 + v (N/n - 1))

with a K(N) of its own for each partition, H and sparsity, and one v for all cells, for each partition and for each
cell. N/n - 1 is N times the variance 1/n - 1/N that a uniform draw of n out of N clients adds to their mean.

Then trains with 6 of the 24 clients in each round, drawn uniformly and by energy, where everything takes half of them
ten times the joules, and prints joules and rounds to the target.
"""

import argparse
import csv
import itertools
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from report import describe_run, print_table

CLIENTS, PARTICIPANTS = 24, (24, 12, 6, 3)
DRAWN, DEAR = 6, 10.0  # where a uniform draw is compared with one by energy
PARTITIONS = {"iid": {}, "dirichlet 0.5": {"partition": "dirichlet", "dirichlet_concentration": 0.5}}
LOCAL_STEPS, SPARSITIES = (1, 5, 20), (1.0, 20.0, 100.0)
MOST_STEPS, EVALUATE_STEPS = 6000, 10
Cell = tuple[str, int, float, int, int]  # partition, H, sparsity, participants, seed


def rounds_to_target(cell: Cell) -> int | None:
    """Return the rounds to the target of one pilot run; None if it does not reach it."""
    import torch

    from fewjoules.engine.loop import TARGET
    from fewjoules.planner.schemes import unified
    from fewjoules.runs.task import options_for, prepare, varied
    from fewjoules.runs.training import train_task
    from fewjoules.scenario import Scenario

    partition, steps, sparsity, participants, seed = cell
    torch.set_num_threads(1)
    scenario = more_clients(Scenario.embedded())
    changes = {"seed": seed, "downlink": "free", "channel": "average", "participation": participants / CLIENTS}
    task = varied(prepare(scenario, torch.device("cpu")), **changes | PARTITIONS[partition])
    base = options_for(task, unified(scenario.problem()))
    options = replace(
        base,
        local_steps=steps,
        sparsity=np.full(base.clients, sparsity),
        rounds=MOST_STEPS // steps,
        evaluate_every=max(1, EVALUATE_STEPS // steps),
    )
    training = train_task(task, options)
    return training.rounds if training.reason == TARGET else None


def more_clients(embedded: Any) -> Any:
    """Return the embedded scenario with ``CLIENTS`` devices."""
    text = embedded.text.replace("count = 3", f"count = {CLIENTS // 4}")
    return type(embedded).from_text(text, "four-groups", embedded.folder)


def joules_to_target(sampling: str, seed: int) -> tuple[float, int] | None:
    """Return joules and rounds of a training on dear and cheap devices; None if it does not reach the target."""
    import torch

    from fewjoules.engine.loop import TARGET
    from fewjoules.physics.fleet import COSTS
    from fewjoules.planner.schemes import unified
    from fewjoules.runs.task import options_for, prepare, varied
    from fewjoules.runs.training import train_task
    from fewjoules.scenario import Scenario

    torch.set_num_threads(1)
    scenario = more_clients(Scenario.embedded())
    given = {"seed": seed, "participation": DRAWN / CLIENTS, "sampling": sampling}
    task = varied(prepare(scenario, torch.device("cpu")), **given)
    fleet, dear = scenario.fleet, np.where(np.arange(CLIENTS) % 2, DEAR, 1.0)
    costs = {name: getattr(fleet, name) for name in COSTS if "joules" in name or name == "tail_watts"}
    costs = {name: None if column is None else column * dear for name, column in costs.items()}
    base = options_for(task, unified(task.scenario.problem()))
    options = replace(base, local_steps=5, sparsity=np.full(CLIENTS, 20.0), rounds=MOST_STEPS // 5, evaluate_every=2)
    training = train_task(replace(task, fleet=fleet.changed(**costs)), options)
    return (training.loop.totals.joules, training.rounds) if training.reason == TARGET else None


def fitted(rows: list[tuple[str, int, float, int, float]]) -> tuple[float, float, float]:
    """Return v, its standard error and the rms residual of ln K; every partition, H and sparsity has its own K(N)."""
    from scipy.optimize import least_squares

    settings = sorted({row[:3] for row in rows})
    index = np.array([settings.index(row[:3]) for row in rows])
    missing = CLIENTS / np.array([row[3] for row in rows], dtype=np.float64) - 1.0
    log_rounds = np.log([row[4] for row in rows])

    def residuals(x: np.ndarray) -> np.ndarray:
        return x[1:][index] + np.log1p(x[0] * missing) - log_rounds

    start = [0.1, *(log_rounds[index == one].min() for one in range(len(settings)))]
    found = least_squares(residuals, start, bounds=([0.0] + [-20.0] * len(settings), 20.0))
    freedom = log_rounds.size - len(start)
    variance = 2.0 * found.cost / max(1, freedom)
    error = float(np.sqrt(np.linalg.pinv(found.jac.T @ found.jac)[0, 0] * variance))
    return float(found.x[0]), error, float(np.sqrt(np.mean(found.fun**2)))


def report(cells: list[Cell], rounds: list[int | None], arguments: str) -> None:
    """Print the geometric means, and the fits."""
    command = f"What the rounds law says for partial participation: python benchmarks/participation.py {arguments}"
    run = describe_run(command, 0, len(os.sched_getaffinity(0)), ("numpy", "scipy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}\n{run['packages']}")
    table, rows = [], []
    for setting in itertools.product(PARTITIONS, LOCAL_STEPS, SPARSITIES):
        shown, own = [], []
        for participants in PARTICIPANTS:
            runs = [k for cell, k in zip(cells, rounds, strict=True) if cell[:4] == (*setting, participants)]
            met = [k for k in runs if k is not None]
            if met and len(met) == len(runs):
                own.append((*setting, participants, float(np.exp(np.mean(np.log(met))))))
            shown.append(f"{np.exp(np.mean(np.log(met))):.1f}" if met == runs and met else f"{len(met)} of {len(runs)}")
        rows += own
        law = fitted(own)[0] if len(own) > 2 else float("nan")
        table.append([setting[0], str(setting[1]), f"{setting[2]:g}", *shown, f"{law:.3f}"])
    print_table(["partition", "H", "sparsity", *(f"n = {n}" for n in PARTICIPANTS), "v"], table)
    _print_fits(rows)


def compare_draws(seeds: int) -> None:
    """Print what a uniform draw and one by energy take."""
    table = []
    for sampling in ("uniform", "energy"):
        found = [joules_to_target(sampling, seed) for seed in range(seeds)]
        met = [one for one in found if one is not None]
        joules, rounds = (np.exp(np.mean(np.log(column))) for column in zip(*met, strict=True))
        table.append([sampling, f"{joules:.3g}", f"{rounds:.1f}", f"{joules / rounds:.3g}", f"{len(met)} of {seeds}"])
    print(f"{DRAWN} of {CLIENTS} clients in each round, half of them {DEAR:g} times as dear; H = 5, sparsity 20:")
    print_table(["sampling", "joules", "rounds", "joules a round", "target met"], table)


def _print_fits(rows: list[tuple[str, int, float, int, float]]) -> None:
    kinds: Iterable[tuple[str, list[tuple[str, int, float, int, float]]]] = [
        ("all", rows),
        *((f"{name}", [row for row in rows if row[0] == name]) for name in PARTITIONS),
        *((f"H = {steps}", [row for row in rows if row[1] == steps]) for steps in LOCAL_STEPS),
        *((f"sparsity {delta:g}", [row for row in rows if row[2] == delta]) for delta in SPARSITIES),
    ]
    for name, own in kinds:
        v, error, rms = fitted(own)
        print(f"{name}: v = {v:.3f} +- {error:.3f}; rms of ln K {rms:.3f} over {len(own)} means")


def main() -> None:
    """Run the grid, one pilot after the other, and print the fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", metavar="FILE.csv", help="also write every pilot run; runs that it holds are not made")
    given = parser.parse_args()
    cells = list(itertools.product(PARTITIONS, LOCAL_STEPS, SPARSITIES, PARTICIPANTS, range(given.seeds)))
    known = _known(given.csv)
    for number, cell in enumerate(sorted(cells, key=lambda one: one[4]), start=1):
        if cell not in known:
            known[cell] = rounds_to_target(cell)
            _append(given.csv, cell, known[cell])
        print(f"\r{number} of {len(cells)} pilot runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    report(cells, [known[cell] for cell in cells], f"--seeds {given.seeds}")
    compare_draws(2 * given.seeds)


def _known(path: str | None) -> dict[Cell, int | None]:
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {(p, int(h), float(d), int(n), int(s)): int(k) if k else None for p, h, d, n, s, k in rows}


def _append(path: str | None, cell: Cell, rounds: int | None) -> None:
    if path is None:
        return
    new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["partition", "local_steps", "sparsity", "participants", "seed", "rounds"])
        writer.writerow([*cell, rounds or ""])


if __name__ == "__main__":
    main()
