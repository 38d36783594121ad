"""Brute force over recipes: python benchmarks/recipe_grid.py --task mnist --out grid.jsonl

Trains every optimiser, step size, H, sparsity and value kind of a grid to the target of a task and writes the curve of
each run, one JSON object a line: loss and accuracy on data kept aside from training and on the test set, of the last
model and of the mean of recent ones, and the mean bits of a message. What a run costs on devices follows from its steps
and bits, so that one grid serves fleets of every cost. Runs that are in the file already are not repeated. ``--best N``
trains only the N cheapest recipes of the file at each price of a bit, with other seeds.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.tuning.arms import AVERAGING

HELD_ASIDE = 0.1
PRICES = (1.0, 1000.0)  # of a bit, times those of the scenario
MODELS = {"last": "test_accuracy", "mean": "mean_test_accuracy"}  # columns of the curves


@dataclass(frozen=True, kw_only=True)
class GridTask:
    """A scenario of the reproduction (or the embedded one) with a target and the cells of its grid."""

    scenario: str | None
    target: float
    most_steps: int
    precision: str
    optimisers: dict[str, tuple[dict[str, Any], tuple[float, ...]]]
    cells: tuple[tuple[int, float], ...]
    ternary_cells: tuple[tuple[int, float], ...] = ()
    evaluate_steps: int = 10


def optimisers(
    plain: tuple[float, ...], heavy: tuple[float, ...], light: tuple[float, ...], adam: tuple[float, ...]
) -> dict[str, Any]:
    """Return the optimisers of a grid; ``heavy`` are the step sizes with momentum 0.9, ``light`` with 0.6."""
    return {
        "plain": ({}, plain),
        "outer 0.9": ({"outer": "nesterov", "outer_momentum": 0.9}, heavy),
        "outer 0.6": ({"outer": "nesterov", "outer_momentum": 0.6}, light),
        "inner reset": ({"inner": "momentum", "momentum": 0.9, "momentum_state": "reset"}, heavy),
        "inner kept": ({"inner": "momentum", "momentum": 0.9, "momentum_state": "kept"}, heavy),
        "inner cleared": ({"inner": "momentum", "momentum": 0.9, "momentum_state": "cleared"}, heavy),
        "adam": ({"inner": "adamw", "residual_decay": 0.95}, adam),
    }


_MNIST = optimisers((0.1, 0.2, 0.4), (0.02, 0.05, 0.1, 0.2), (0.05, 0.1, 0.2), (0.001, 0.002, 0.005))
_FEW = ((1, 30.0), (4, 100.0), (16, 30.0))
_CIFAR = {
    name: (options, rates)
    for name, (options, rates) in optimisers((0.2, 0.4, 0.8), (0.05, 0.1), (0.1, 0.2), (0.002, 0.004, 0.008)).items()
    if name not in ("inner reset", "inner kept")
}
TASKS = {
    "digits": GridTask(
        scenario=None,
        target=0.95,
        most_steps=1500,
        precision="float32",
        optimisers=optimisers((0.1, 0.2, 0.4, 0.8), (0.05, 0.1, 0.2), (0.1, 0.2, 0.4), (0.005, 0.01, 0.02)),
        cells=tuple(itertools.product((1, 5, 20, 50), (1.0, 20.0, 100.0, 400.0))),
    ),
    "mnist": GridTask(
        scenario="fig2cd.toml",
        target=0.985,
        most_steps=1500,
        precision="tf32",
        optimisers=_MNIST,
        cells=(
            *((1, 1.0), (1, 30.0), (1, 300.0), (1, 1000.0), (4, 1.0), (4, 100.0), (4, 1000.0), (8, 1.0), (8, 100.0)),
            *((16, 30.0), (16, 300.0), (50, 30.0), (50, 300.0)),
        ),
        ternary_cells=((1, 300.0), (1, 1000.0), (4, 100.0), (4, 1000.0), (8, 100.0), (16, 300.0), (50, 300.0)),
    ),
    "mnist-dirichlet": GridTask(
        scenario="fig2cd-dirichlet.toml", target=0.985, most_steps=2500, precision="tf32", optimisers=_MNIST, cells=_FEW
    ),
    "writers": GridTask(
        scenario="fig2cd-writers.toml", target=0.985, most_steps=1500, precision="tf32", optimisers=_MNIST, cells=_FEW
    ),
    "cifar10": GridTask(
        scenario="fig2ab.toml",
        target=0.65,
        most_steps=1500,
        precision="bf16",
        optimisers=_CIFAR,
        cells=((1, 8.0), (1, 100.0), (5, 8.0)),
        ternary_cells=((50, 8.0), (5, 100.0), (50, 100.0), (1, 250.0)),
        evaluate_steps=50,
    ),
}

Spec = dict[str, Any]


def specs_of(task: GridTask, seed: int) -> list[Spec]:
    """Return the runs of a grid, the cheapest kinds first."""
    cells = [(cell, "float32") for cell in task.cells] + [(cell, "ternary") for cell in task.ternary_cells]
    return [
        {"optimiser": name, "options": options, "rate": rate, "H": H, "delta": delta, "values": values, "seed": seed}
        for (H, delta), values in cells
        for name, (options, rates) in task.optimisers.items()
        for rate in rates
        if not (H == 1 and name == "inner reset")  # which is plain there
    ]


class Bench:
    """The task of one process, with compiled steps that its runs share."""

    def __init__(self, name: str, device: str, data_dir: str | None) -> None:
        import torch

        from fewjoules.runs.device import choose_device
        from fewjoules.runs.task import prepare

        torch.set_num_threads(1)
        self.grid = TASKS[name]
        scenario = _scenario(self.grid)
        self.task = prepare(scenario, choose_device(device), data_dir)
        self.graphs: dict[Any, Any] = {}
        self.precision = self.grid.precision if self.task.device.type == "cuda" else "float32"

    def run(self, spec: Spec) -> dict[str, Any]:
        """Train one run to the target on both sets, or to the limit of steps; return its curve."""
        from fewjoules.engine.algorithm.options import TrainingOptions
        from fewjoules.errors import DivergedError
        from fewjoules.runs.holdout import hold_out
        from fewjoules.runs.task import varied
        from fewjoules.runs.training import in_memory, train_task

        began = time.monotonic()
        whole = varied(self.task, seed=spec["seed"])
        task = hold_out(whole, HELD_ASIDE, spec["seed"])
        H, clients = spec["H"], len(task.federation.parts)
        options = TrainingOptions.of(
            local_steps=H,
            sparsity=np.full(clients, spec["delta"]),
            rounds=max(1, self.grid.most_steps // H),
            learning_rate=spec["rate"],
            batch_size=self.task.training.batch_size,
            seed=spec["seed"],
            compressor="ternary" if spec["values"] == "ternary" else "top-k",
            precision=self.precision,
            downlink="free",
            evaluate_every=max(1, self.grid.evaluate_steps // H),
            averaging=AVERAGING,
            **spec["options"],
        )
        names = ("loss", "accuracy", "test_loss", "test_accuracy", "mean_accuracy", "mean_test_accuracy")
        curve: dict[str, list[float]] = {name: [] for name in ("steps", *names)}
        seen: dict[str, Any] = {}

        def opened(simulator: Any) -> Any:
            seen["simulator"] = simulator
            seen["aside"] = simulator.evaluator(task.model, task.loss, task.test)
            seen["test"] = simulator.evaluator(task.model, task.loss, whole.test)
            return in_memory(simulator)

        def note(report: Any) -> None:
            if report.round % options.evaluation_rounds and report.round != options.rounds:
                return
            state = seen["simulator"].state
            if state.round != report.round:
                return
            last, mean = (state.weights, state.buffers), state.result
            found = (*seen["aside"](*last), *seen["test"](*last), report.test_accuracy, seen["test"](*mean)[1])
            curve["steps"].append(report.round * H)
            for name, value in zip(names, found, strict=True):
                curve[name].append(round(value, 5))

        def done() -> bool:
            best = [max(curve[key], default=0.0) for key in names if "accuracy" in key]
            blown_up = bool(curve["loss"]) and not curve["loss"][-1] < 50.0
            return min(best) >= self.grid.target or blown_up

        reason = "diverged"
        try:
            training = train_task(
                replace(task, fleet=None),
                options,
                opened=opened,
                on_round=note,
                should_stop=done,
                graphs=self.graphs,
                keep_diverged=True,
            )
            reason = training.reason
            rows = training.loop.ledger.rows()
            seen["bits"] = 8.0 * float(rows["payload_bytes"].mean())
        except DivergedError:
            pass
        return spec | {
            "curve": curve,
            "reason": reason,
            "message_bits": seen.get("bits"),
            "seconds": round(time.monotonic() - began, 2),
        }


def _scenario(grid: GridTask) -> Any:
    from fewjoules.scenario import Scenario
    from fewjoules_reproduction.embedded import embedded_scenario

    return Scenario.embedded() if grid.scenario is None else embedded_scenario(grid.scenario)


_bench: list[Bench] = []


def _start(cores: Any, name: str, device: str, data_dir: str | None) -> None:
    core = cores.get()
    if device == "cpu":
        os.sched_setaffinity(0, {core})
    _bench.append(Bench(name, device, data_dir))


def _run(spec: Spec) -> dict[str, Any]:
    try:
        return _bench[0].run(spec)
    except Exception as error:
        return spec | {"reason": f"{type(error).__name__}: {error}", "curve": {}}


def key_of(spec: Spec) -> str:
    """Return what tells a run from the others."""
    return json.dumps({key: spec[key] for key in ("optimiser", "rate", "H", "delta", "values", "seed")})


def report(task: GridTask, runs: list[dict[str, Any]]) -> None:
    """Print the steps of every run to the target on the test set, and the cheapest runs for two prices of a bit."""
    from report import print_table

    for values in dict.fromkeys(run["values"] for run in runs):
        own = [run for run in runs if run["values"] == values]
        cells = sorted({(run["H"], run["delta"]) for run in own})
        print(f"\nlocal steps to {task.target:.1%} on the test set / on the data kept aside, {values} values")
        rows = []
        for name, rate in sorted({(run["optimiser"], run["rate"]) for run in own}):
            found = {(run["H"], run["delta"]): run for run in own if (run["optimiser"], run["rate"]) == (name, rate)}
            rows.append([f"{name} {rate:g}", *(_both(found.get(cell), task.target) for cell in cells)])
        print_table(["optimiser", *(f"{H} x {delta:g}" for H, delta in cells)], rows)
    _print_law(task, [run for run in runs if run["values"] == "float32"])
    for scale in PRICES:
        print(f"\nthe cheapest runs with bits {scale:g} times as dear, to the target on the test set")
        rows = []
        for joules, model, run in cheapest(task, runs, scale)[:12]:
            recipe = (f"{run['optimiser']} {run['rate']:g}", f"{run['H']} x {run['delta']:g}", run["values"], model)
            rows.append([*recipe, str(run["seed"]), f"{joules:.3g}"])
        print_table(["optimiser", "H x sparsity", "values", "model", "seed", "J"], rows, text_columns=4)


def cheapest(task: GridTask, runs: list[dict[str, Any]], scale: float) -> list[tuple[float, str, dict[str, Any]]]:
    """Return joules, model and run, the fewest joules first, with bits so many times as dear."""
    fleet, found = _scenario(task).fleet, []
    for model, column in MODELS.items():
        for run in runs:
            steps = _steps_to(run, task.target, column)
            if steps is not None and run["message_bits"] is not None:
                bits = scale * float(np.sum(fleet.joules_per_bit)) * run["message_bits"] / run["H"]
                found.append((steps * (float(np.sum(fleet.joules_per_step)) + bits), model, run))
    return sorted(found, key=lambda one: one[0])


def best_specs(task: GridTask, runs: list[dict[str, Any]], most: int, seeds: list[int]) -> list[Spec]:
    """Return the runs of the cheapest recipes at each price with other seeds."""
    chosen: dict[str, Spec] = {}
    for scale in PRICES:
        own = {key_of(run): run for _, _, run in cheapest(task, runs, scale)}
        chosen |= dict(list(own.items())[:most])
    keys = ("optimiser", "options", "rate", "H", "delta", "values")
    return [{key: run[key] for key in keys} | {"seed": seed} for run in chosen.values() for seed in seeds]


def _print_law(task: GridTask, runs: list[dict[str, Any]]) -> None:
    """Fit the rounds law to the best optimiser and step size of every cell, by the steps on the data kept aside."""
    from fewjoules.convergence.fit import PilotRuns, fit_power_law_rounds
    from fewjoules.errors import InvalidInputError

    best: dict[tuple[int, float], int] = {}
    for run in runs:
        steps, cell = _steps_to(run, task.target, "accuracy"), (run["H"], run["delta"])
        if steps is not None:
            best[cell] = min(steps, best.get(cell, steps))
    H, delta = (np.array(column, dtype=np.float64) for column in zip(*best, strict=True))
    try:
        fit = fit_power_law_rounds(PilotRuns(sparsity=delta, local_steps=H, rounds=np.array(list(best.values())) / H))
    except InvalidInputError as error:
        print(f"\nno law of {len(best)} cells: {error}")
        return
    ends = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in fit.intervals.items())
    rms = float(np.sqrt(np.mean(fit.log_residuals**2)))
    print(f"\nlaw of the best of each of {len(best)} cells: {fit.model}, rms of ln K {rms:.3f}; 95 %: {ends}")


def _steps_to(run: dict[str, Any], target: float, column: str) -> int | None:
    curve = run["curve"]
    pairs = zip(curve.get("steps", ()), curve.get(column, ()), strict=True)
    return next((steps for steps, value in pairs if value >= target), None)


def _both(run: dict[str, Any] | None, target: float) -> str:
    if run is None or not run["curve"].get("steps"):
        return "" if run is None or run["reason"] not in ("diverged", "interrupted") else "x"
    return "/".join(str(_steps_to(run, target, column) or "-") for column in ("test_accuracy", "accuracy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1000])
    parser.add_argument("--values", choices=["float32", "ternary"], help="only runs with these values")
    parser.add_argument("--best", type=int, help="only so many of the cheapest recipes of the file, at each price")
    parser.add_argument("--report", action="store_true", help="only print the tables of the file")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further run after so long")
    given = parser.parse_args()
    if given.report:
        report(TASKS[given.task], [json.loads(line) for line in given.out.read_text().splitlines()])
        return
    task, runs = TASKS[given.task], []
    if given.out.exists():
        runs = [json.loads(line) for line in given.out.read_text().splitlines()]
    specs = [spec for seed in given.seeds for spec in specs_of(task, seed)]
    if given.best is not None:
        specs = best_specs(task, runs, given.best, given.seeds)
    done = set(map(key_of, runs))
    specs = [spec for spec in specs if key_of(spec) not in done]
    specs = [spec for spec in specs if given.values in (None, spec["values"])]
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), given.processes):
        cores.put(core)
    began = time.monotonic()
    with (
        context.Pool(given.processes, _start, (cores, given.task, given.device, given.data_dir)) as pool,
        given.out.open("a") as out,
    ):
        for number, record in enumerate(pool.imap_unordered(_run, specs), start=1):
            out.write(json.dumps(record) + "\n")
            out.flush()
            print(
                f"\r{given.task}: {number} of {len(specs)}, {time.monotonic() - began:.0f} s", end="", file=sys.stderr
            )
            if time.monotonic() - began > given.seconds:
                pool.terminate()
                break
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
