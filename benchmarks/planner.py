"""The planner beside its rivals, measured in one run: SCIP, SciPy multi-start and the paper's Algorithm 2.

    python benchmarks/planner.py [--quick] [--scip-seconds 60] [--seed 0] [--out results.json]

Times are wall-clock seconds on at most two cores. Every requirement ends in pass, MISS or skip; a miss never stops
the run. SCIP keeps its default feasibility tolerance, with which it is fastest, so its own gap is taken at its
word; ``proved gap`` re-evaluates its point in (27) as written.
"""

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # on vectors this short, waiting BLAS threads slow SciPy down severalfold

import numpy as np
from report import describe_run, duration, print_table

import fewjoules as fj
from fewjoules.arrays import FloatArray
from fewjoules.physics.points import OperatingPoints
from fewjoules.planner import benders

T = TypeVar("T")
Record = dict[str, Any]

CORES = 2
LOCAL_STEPS = range(1, 51)
SPARSITY = (4.4817, 1000.0)
GAP_LIMIT = 1e-9
GROWTH_TOLERANCE = 1.1  # two timings of the same work differ by this much on a shared machine
GROWTH_TURNS = 5
STARTS = 4
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Timing:
    best_seconds: float
    median_seconds: float
    processor_seconds: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Check:
    requirement: str
    verdict: str
    measured: str


def timed(call: Callable[[], T], repeats: int, warm_up: int = 0) -> tuple[T, Timing]:
    """The last result, with the wall-clock time and the least processor time (all threads) of a call."""
    seconds, processor = [], []
    for _ in range(warm_up + repeats):
        start, start_processor = time.perf_counter(), time.process_time()
        result = call()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    kept = seconds[warm_up:]
    return result, Timing(min(kept), statistics.median(kept), min(processor[warm_up:]), repeats)


# --- the problems -------------------------------------------------------------------------------------------------


def random_fleet(devices: int, seed: int) -> fj.Fleet:
    rng = np.random.default_rng([seed, devices])
    return fj.Fleet(
        joules_per_bit=1e-8 * 10.0 ** rng.uniform(-1.0, 1.0, devices),
        joules_per_step=1e-3 * 10.0 ** rng.uniform(-1.0, 1.0, devices),
    )


def small_problem(devices: int, seed: int) -> fj.ControlProblem:
    """A ResNet-20 fleet; beta grows so that H and most sparsities stay inside their limits."""
    rounds = fj.PaperRounds(alpha=1e-4, beta=1000.0 * (devices / 12) ** 1.5)
    return fj.ControlProblem(
        fleet=random_fleet(devices, seed),
        rounds=rounds,
        parameters=269_722,
        sparsity=SPARSITY,
        local_steps=LOCAL_STEPS,
    )


def large_problem(devices: int, seed: int) -> fj.ControlProblem:
    """A ResNet-18 fleet: messages large enough to lift every sparsity off its limits."""
    return fj.ControlProblem(
        fleet=random_fleet(devices, seed),
        rounds=fj.PowerLawRounds(tau=2059.0, c=0.0043, a=0.5, q=0.6),
        parameters=11_173_962,
        sparsity=SPARSITY,
        local_steps=LOCAL_STEPS,
    )


def whole_problem(devices: int, seed: int) -> fj.ControlProblem:
    """The large problem with all that a round costs: samples, tails, downlink, coding and three operating points."""
    rng = np.random.default_rng([seed, devices, 1])

    def some(low: float, high: float) -> FloatArray:
        return 10.0 ** rng.uniform(low, high, devices)

    slow, fast = some(-3.0, -1.0), rng.uniform(0.2, 0.6, (2, devices))
    joules = some(-4.0, -2.0) * np.array([np.ones(devices), *(1.0 + 0.5 * (1.0 - fast))])
    points = OperatingPoints.of(joules, slow * np.array([np.ones(devices), *fast]))
    large = large_problem(devices, seed)
    fleet = fj.Fleet(
        joules_per_bit=large.fleet.joules_per_bit,
        downlink_joules_per_bit=some(-9.5, -7.5),
        tail_watts=some(-1.0, 0.2),
        tail_seconds=some(-1.0, 1.0),
        promotion_joules=some(-2.0, 0.0),
        codec_joules_per_parameter=some(-9.0, -8.0),
        codec_joules_per_entry=some(-8.0, -6.0),
        operating_points=points,
        **points.at(points.cheapest()),
    )
    return replace(large, fleet=fleet.with_batch(32), downlink=None)


def measure_planner(problem: fj.ControlProblem, repeats: int, warm_up: int) -> Record:
    plan, timing = timed(lambda: fj.solve(problem), repeats, warm_up)
    low, high = problem.sparsity
    costs = problem.fleet.joules_per_bit
    return {
        "devices": problem.devices,
        "different_channels": int(np.unique(costs).size),
        "energy_joules": plan.energy_joules,
        "lower_bound_joules": plan.lower_bound_joules,
        "certified_gap": plan.relative_gap,
        "local_steps": plan.local_steps,
        "sparsity_min": float(plan.sparsity.min()),
        "sparsity_max": float(plan.sparsity.max()),
        "share_at_a_bound": float(np.mean((plan.sparsity <= low) | (plan.sparsity >= high))),
        "tangents": plan.effort["tangents"],
        "best_seconds": timing.best_seconds,
        "median_seconds": timing.median_seconds,
        "processor_seconds": timing.processor_seconds,
        "repeats": timing.repeats,
    }


# --- rivals -------------------------------------------------------------------------------------------------------


def rival(name: str, problem: fj.ControlProblem, H: int, sparsity: FloatArray, optimum: Record) -> Record:
    energy = problem.costs(H, np.clip(sparsity, *problem.sparsity)).energy_joules
    excess = energy / optimum["energy_joules"] - 1.0
    return {"solver": name, "local_steps": H, "energy_joules": energy, "excess_over_optimum": excess}


def timing_record(timing: Timing, optimum: Record) -> Record:
    return {
        "best_seconds": timing.best_seconds,
        "median_seconds": timing.median_seconds,
        "processor_seconds": timing.processor_seconds,
        "repeats": timing.repeats,
        "times_fewjoules": timing.median_seconds / optimum["median_seconds"],
    }


def scip_model(problem: fj.ControlProblem, seconds: float) -> tuple[Any, Any, list[Any]]:
    """Problem (27) for SCIP: its model, the variable H, and one variable y = ln delta + kappa ln 2 a device.

    In y the bits of a message are d 2^kappa / ln 2 times y exp(-y), a form that SCIP recognises as convex. The
    convex sums s = mean(delta^2) and r (mean bits a parameter, weighted by cost) get a variable each, and so do K
    and F. All that is left to branch on is then K >= alpha M H s + beta / (sqrt(M) H) and E >= K F, in three
    dimensions whatever the number of devices. Of nine formulations tried this one closed its gap soonest.
    """
    from pyscipopt import Model, exp, quicksum

    rounds, low, high = problem.rounds, *problem.sparsity
    kappa = problem.value_bits + 1
    shift = kappa * math.log(2.0)
    costs = problem.fleet.joules_per_bit * problem.parameters
    total, weights = float(costs.sum()), (costs / costs.sum()).tolist()
    per_step = float(problem.fleet.joules_per_step.sum())
    M = problem.devices

    def bits(delta: float) -> float:
        return (math.log2(delta) + kappa) / delta

    model = Model()
    model.hideOutput()
    model.setParam("limits/time", seconds)
    model.setParam("limits/gap", GAP_LIMIT)
    H = model.addVar(vtype="I", lb=min(problem.local_steps), ub=max(problem.local_steps))
    y = [model.addVar(lb=math.log(low) + shift, ub=math.log(high) + shift) for _ in range(M)]
    s = model.addVar(lb=low**2, ub=high**2)
    r = model.addVar(lb=bits(high), ub=bits(low))
    K, F, E = (model.addVar(lb=0.0, ub=None) for _ in range(3))
    model.addCons(quicksum(exp(2.0 * v - 2.0 * shift) for v in y) / M <= s)
    model.addCons(quicksum(w / math.log(2.0) * v * exp(shift - v) for w, v in zip(weights, y, strict=True)) <= r)
    model.addCons(rounds.alpha * M * H * s + rounds.beta / math.sqrt(M) / H <= K)
    model.addCons(total * r + per_step * H <= F)
    model.addCons(K * F <= E)
    model.setObjective(E)
    return model, H, y


def measure_scip(problem: fj.ControlProblem, seconds: float, optimum: Record) -> Record | None:
    try:
        model, H, y = scip_model(problem, seconds)
    except ImportError:
        return None
    _, timing = timed(model.optimize, 1)
    record = {
        "solver": f"SCIP {model.version()}",
        "status": model.getStatus(),
        "primal_joules": model.getPrimalbound(),
        "dual_joules": model.getDualbound(),
        "gap": model.getGap(),
        "nodes": model.getNNodes(),
        "limit_seconds": seconds,
    }
    if model.getNSols() > 0:
        delta = np.exp(np.array([model.getVal(v) for v in y]) - (problem.value_bits + 1) * math.log(2.0))
        point = rival(record["solver"], problem, round(model.getVal(H)), delta, optimum)
        record |= point | {"proved_gap": 1.0 - record["dual_joules"] / point["energy_joules"]}
    return record | timing_record(timing, optimum)


def log_energy(
    x: FloatArray, H: int, rounds: fj.PaperRounds, costs: FloatArray, kappa: int, per_step: float
) -> tuple[float, FloatArray]:
    """ln(K F) of (27) with its gradient, at x = ln delta."""
    square, scaled = np.exp(2.0 * x), costs * np.exp(-x)
    bits = x / math.log(2.0) + kappa
    K = rounds.alpha * H * square.sum() + rounds.beta / (math.sqrt(x.size) * H)
    F = scaled @ bits + H * per_step
    slope = (2.0 * rounds.alpha * H / K) * square + scaled * (1.0 / math.log(2.0) - bits) / F
    return math.log(K * F), slope


def multi_start(problem: fj.ControlProblem, seed: int) -> tuple[int, FloatArray, FloatArray]:
    """The best H and x of STARTS random starts for every H, and the value of each start, shape (choices, starts)."""
    from scipy.optimize import Bounds, minimize

    low, high = np.log(problem.sparsity)
    bounds = Bounds(np.full(problem.devices, low), np.full(problem.devices, high))
    costs = problem.fleet.joules_per_bit * problem.parameters
    constants = problem.rounds, costs, problem.value_bits + 1, float(problem.fleet.joules_per_step.sum())
    rng = np.random.default_rng([seed, 1])
    best, values = (math.inf, 0, costs), np.empty((len(LOCAL_STEPS), STARTS))
    for i, j in np.ndindex(values.shape):
        H, start = LOCAL_STEPS[i], rng.uniform(low, high, problem.devices)
        options = {"ftol": 1e-12, "gtol": 1e-8, "maxiter": 1000}
        found = minimize(
            log_energy, start, args=(H, *constants), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        values[i, j] = found.fun
        best = min(best, (found.fun, H, found.x), key=lambda candidate: candidate[0])
    return best[1], best[2], values


def measure_scipy(problem: fj.ControlProblem, seed: int, optimum: Record) -> Record:
    (H, x, values), timing = timed(lambda: multi_start(problem, seed), repeats=1, warm_up=1)
    record = rival("SciPy L-BFGS-B", problem, H, np.exp(x), optimum) | timing_record(timing, optimum)
    spread = float(np.expm1(values.max(axis=1) - values.min(axis=1)).max())
    return record | {"starts_for_each_local_steps": STARTS, "spread_between_starts": spread}


def measure_benders(problem: fj.ControlProblem, name: str, repairs: Sequence[str], optimum: Record) -> Record:
    answer, timing = timed(lambda: benders.solve(problem, repairs=repairs), 3)
    record = rival(name, problem, answer.local_steps, answer.sparsity, optimum)
    return record | timing_record(timing, optimum) | dict(answer.effort)


def measure_small(devices: int, seed: int, scip_seconds: float) -> Record:
    problem = small_problem(devices, seed)
    optimum = measure_planner(problem, repeats=50, warm_up=5)
    scip = measure_scip(problem, scip_seconds, optimum)
    others = [
        measure_scipy(problem, seed, optimum),
        measure_benders(problem, "Algorithm 2 as published", (), optimum),
        measure_benders(problem, "Algorithm 2 repaired", tuple(benders.REPAIRS), optimum),
    ]
    return {"planner": optimum, "scip": scip, "others": others}


# --- large fleets, memory, command line ---------------------------------------------------------------------------


def transcendental_pass_seconds(array: FloatArray) -> float:
    """One thread, one log and one exp of every entry: the least that any tangent has to compute."""
    scratch = np.empty_like(array)
    _, timing = timed(lambda: np.exp(np.log(array, out=scratch), out=scratch), 5, 1)
    return timing.best_seconds


def measure_whole(devices: int, seed: int) -> Record:
    return measure_planner(whole_problem(devices, seed), repeats=5, warm_up=1)


def measure_large(devices: int, seed: int) -> Record:
    problem = large_problem(devices, seed)
    record = measure_planner(problem, repeats=max(5, min(30, 1_500_000 // devices)), warm_up=1)
    one_pass = transcendental_pass_seconds(problem.fleet.joules_per_bit)
    tangent = record["best_seconds"] / record["tangents"]
    return record | {
        "nanoseconds_a_device_and_tangent": 1e9 * tangent / devices,
        "nanoseconds_a_device_exp_log_pass": 1e9 * one_pass / devices,
        "tangent_over_exp_log_pass": tangent / one_pass,
    }


def measure_growth(sizes: Sequence[int], seed: int) -> list[Record]:
    """How the time a device grows from size to size: sizes take turns, so that a slow spell hits all of them."""
    problems = [large_problem(devices, seed) for devices in sizes]
    repeats = [max(1, min(20, 300_000 // devices)) for devices in sizes]
    turns = [
        [timed(partial(fj.solve, p), n)[1].best_seconds / p.devices for p, n in zip(problems, repeats, strict=True)]
        for _ in range(GROWTH_TURNS)
    ]
    ratios = np.array(turns)[:, 1:] / np.array(turns)[:, :-1]
    return [
        {"from_devices": a, "to_devices": b, "turns": column.tolist(), "median": float(np.median(column))}
        for (a, b), column in zip(itertools.pairwise(sizes), ratios.T, strict=True)
    ]


def peak_rss_bytes() -> int:
    """Peak of this process image alone: ru_maxrss would keep the peak of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_worker(devices: int, seed: int, whole: bool) -> Record:
    baseline = peak_rss_bytes()
    problem, building = timed(lambda: (whole_problem if whole else large_problem)(devices, seed), 1)
    _, solving = timed(lambda: fj.solve(problem), 1)
    return {
        "devices": devices,
        "peak_rss_bytes": peak_rss_bytes(),
        "baseline_rss_bytes": baseline,
        "build_seconds": building.best_seconds,
        "first_solve_seconds": solving.best_seconds,
    }


def child_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}


def measure_memory(devices: int, seed: int, *, whole: bool = False) -> Record:
    command = [sys.executable, __file__, "--memory-worker", str(devices), "--seed", str(seed)]
    command += ["--whole"] if whole else []
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment())
    return json.loads(done.stdout) if done.returncode == 0 else {"devices": devices, "error": done.stderr[-500:]}


def processor_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def process_record(arguments: Sequence[str]) -> Record:
    seconds, code, before = [], 0, processor_seconds(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        start = time.perf_counter()
        code |= subprocess.run([sys.executable, *arguments], capture_output=True, env=child_environment()).returncode
        seconds.append(time.perf_counter() - start)
    return {
        "command": " ".join(["python", *arguments]),
        "exit_code": code,
        "seconds": seconds,
        "median_seconds": statistics.median(seconds),
        "mean_processor_seconds": (processor_seconds(resource.RUSAGE_CHILDREN) - before) / len(seconds),
    }


def measure_command() -> Record:
    """The embedded scenario has 12 devices; an interpreter that only imports NumPy is the least it could cost."""
    return process_record(["-m", "fewjoules", "plan"]) | {"floor": process_record(["-c", "import numpy"])}


# --- verdicts -----------------------------------------------------------------------------------------------------


def check(requirement: str, passed: bool, measured: str) -> Check:
    return Check(requirement, "pass" if passed else "MISS", measured)


def check_seconds(requirement: str, best: float, median: float, limit: float) -> Check:
    measured = f"median {duration(median)}, {median / limit:.2f} of the limit (best {duration(best)})"
    return check(requirement, median <= limit, measured)


def skip(requirement: str, reason: str) -> Check:
    return Check(requirement, "skip", reason)


def check_agreement(small: Record) -> Check:
    """No rival may beat the plan by more than its gap, nor SCIP prove the plan impossible."""
    planner, scip = small["planner"], small["scip"]
    found = [r["excess_over_optimum"] for r in small["others"]]
    dual = 0.0
    if scip is not None:
        found.append(scip.get("excess_over_optimum", math.inf))
        dual = scip["dual_joules"] / planner["energy_joules"] - 1.0
    passed = min(found) >= -GAP_LIMIT and dual <= 1e-6
    measured = f"cheapest rival {min(found):+.1e}"
    if scip is not None and scip["status"] == "optimal":
        passed = passed and scip["excess_over_optimum"] <= 1e-6
        measured += f", SCIP's optimum {scip['excess_over_optimum']:+.1e}"
    return check(f"{planner['devices']} devices: no rival beats the plan", passed, measured)


def check_twelve(small: Record) -> list[Check]:
    planner, scip = small["planner"], small["scip"]
    faster = "12 devices: at least 100 times faster than SCIP"
    return [
        check_seconds("12 devices: at most 10 ms", planner["best_seconds"], planner["median_seconds"], 0.010),
        skip(faster, "SCIP is not installed")
        if scip is None
        else check(faster, scip["times_fewjoules"] >= 100.0, scip_ratio(scip)),
    ]


def check_forty(small: Record) -> list[Check]:
    gap, scip = small["planner"]["certified_gap"], small["scip"]
    checks = [check("40 devices: certified to 1e-9", gap <= GAP_LIMIT, f"gap {gap:.1e}")]
    requirement = "40 devices: SCIP still has a gap after 60 s"
    if scip is None:
        return [*checks, skip(requirement, "SCIP is not installed")]
    measured = f"SCIP's gap {scip['gap']:.1e} after {duration(scip['median_seconds'])}"
    if scip["gap"] > GAP_LIMIT and scip["limit_seconds"] < 60.0:
        return [*checks, skip(requirement, measured)]
    return [*checks, check(requirement, scip["gap"] > GAP_LIMIT, measured)]


def check_large(large: Sequence[Record]) -> list[Check]:
    return [
        check(
            f"{record['devices']:,} devices: all different, certified to 1e-9",
            record["different_channels"] == record["devices"] and record["certified_gap"] <= GAP_LIMIT,
            f"gap {record['certified_gap']:.1e}",
        )
        for record in large
    ]


def check_growth(growth: Record) -> Check:
    requirement = f"{growth['from_devices']:,} to {growth['to_devices']:,} devices: no worse than linear"
    turns = f"{min(growth['turns']):.2f} to {max(growth['turns']):.2f}"
    measured = f"time a device grows {growth['median']:.2f} times (in {GROWTH_TURNS} turns {turns})"
    return check(requirement, growth["median"] <= GROWTH_TOLERANCE, measured)


def check_million(largest: Record, memory: Record, what: str = "") -> list[Check]:
    fast, lean = f"1,000,000 devices{what}: at most 2 s", f"1,000,000 devices{what}: at most 1 GiB"
    if largest["devices"] < 1_000_000:
        return [skip(fast, "left out by --quick"), skip(lean, "left out by --quick")]
    checks = [check_seconds(fast, largest["best_seconds"], largest["median_seconds"], 2.0)]
    if "error" in memory:
        return [*checks, check(lean, False, "the process failed")]
    peak = memory["peak_rss_bytes"] / GIB
    return [*checks, check(lean, peak <= 1.0, f"peak {peak:.3f} GiB")]


def check_command(command: Record) -> Check:
    requirement = "command plan on 12 devices: at most 1.5 s"
    if command["exit_code"] != 0:
        return check(requirement, False, f"exit code {command['exit_code']}")
    return check_seconds(requirement, min(command["seconds"]), command["median_seconds"], 1.5)


# --- what is printed ----------------------------------------------------------------------------------------------


def scip_ratio(scip: Record) -> str:
    return f"{'at least ' if scip['status'] == 'timelimit' else ''}{scip['times_fewjoules']:,.0f} times"


def describe(planner: Record) -> str:
    return (
        f"{planner['tangents']} tangents, H = {planner['local_steps']}, "
        f"sparsity {planner['sparsity_min']:.4g} to {planner['sparsity_max']:.4g}, "
        f"{100 * planner['share_at_a_bound']:.0f} % of devices at a bound"
    )


def small_rows(small: Record) -> list[list[str]]:
    planner, scip = small["planner"], small["scip"]
    own = [duration(planner["best_seconds"]), duration(planner["median_seconds"]), "1", str(planner["local_steps"])]
    rows = [["FewJoules", *own, "0", f"{planner['certified_gap']:.1e}"]]
    for record in [scip, *small["others"]] if scip is not None else small["others"]:
        rows.append(
            [
                record["solver"],
                duration(record["best_seconds"]),
                duration(record["median_seconds"]),
                f"{'>= ' if record.get('status') == 'timelimit' else ''}{record['times_fewjoules']:,.1f}",
                str(record.get("local_steps", "-")),
                f"{record['excess_over_optimum']:+.1e}" if "excess_over_optimum" in record else "no plan",
                f"{record['proved_gap']:.1e}" if "proved_gap" in record else "none",
            ]
        )
    return rows


def print_small(small: Record) -> None:
    planner, scip = small["planner"], small["scip"]
    print(f"\n{planner['devices']} devices, K of the paper, H in 1..50: {describe(planner)}")
    header = ["solver", "best", "median", "times FewJoules", "H", "energy over optimum", "proved gap"]
    print_table(header, small_rows(small))
    if scip is None:
        print("  SCIP is not installed (pip install pyscipopt): left out.")
    else:
        print(
            f"  SCIP: {scip['status']} after {scip['nodes']:,} nodes, primal {scip['primal_joules']:.9g} J, "
            f"dual {scip['dual_joules']:.9g} J, own gap {scip['gap']:.1e}; FewJoules {planner['energy_joules']:.9g} J"
        )
    print(f"  SciPy: {STARTS} starts for each H end up to {small['others'][0]['spread_between_starts']:.1e} apart")


def print_large(large: Sequence[Record]) -> None:
    print(f"\nLarge fleets, power law, all channels different, H in 1..50: {describe(large[-1])}")
    header = ["devices", "best", "median", "processor", "tangents", "gap", "ns/device/tangent", "log+exp", "ratio"]
    rows = [
        [
            f"{record['devices']:,}",
            duration(record["best_seconds"]),
            duration(record["median_seconds"]),
            duration(record["processor_seconds"]),
            str(record["tangents"]),
            f"{record['certified_gap']:.1e}",
            f"{record['nanoseconds_a_device_and_tangent']:.1f}",
            f"{record['nanoseconds_a_device_exp_log_pass']:.1f} ns",
            f"{record['tangent_over_exp_log_pass']:.2f}",
        ]
        for record in large
    ]
    print_table(header, rows)
    print("  processor: least seconds summed over threads; log+exp: one NumPy thread, one of each for a device;")
    print("  ratio: a tangent, with its share of sorting and of the final plan, over that pass, from the best times.")


def print_whole(record: Record) -> None:
    print(f"\nThe largest with samples, tails, downlink, coding and three points each: {describe(record)}")
    print(
        f"  best {duration(record['best_seconds'])}, median {duration(record['median_seconds'])}, "
        f"gap {record['certified_gap']:.1e}"
    )


def print_processes(memories: Sequence[Record], command: Record) -> None:
    print("\nFresh processes")
    for memory in memories:
        if "error" in memory:
            print(f"  fleet of {memory['devices']:,}: failed: {memory['error']}")
            continue
        over = memory["peak_rss_bytes"] - memory["baseline_rss_bytes"]
        print(
            f"  fleet of {memory['devices']:,} built in {duration(memory['build_seconds'])} and first solved in "
            f"{duration(memory['first_solve_seconds'])}: peak {memory['peak_rss_bytes'] / 2**20:.0f} MiB, "
            f"{over / 2**20:.0f} MiB over the imported package, {over / memory['devices']:.0f} bytes a device"
        )
    ratio = command["median_seconds"] / command["floor"]["median_seconds"]
    print(
        f"  {command['command']}: median {duration(command['median_seconds'])}, of the processor "
        f"{duration(command['mean_processor_seconds'])}; {ratio:.1f} times an interpreter that only imports NumPy"
    )


def print_checks(checks: Sequence[Check]) -> None:
    print("\nRequirements")
    rows = [[c.requirement, c.verdict, c.measured] for c in checks]
    print_table(["requirement", "verdict", "measured"], rows, text_columns=3)


# --- the run ------------------------------------------------------------------------------------------------------


def keep_to_cores(cores: int) -> int:
    """Stay on that many cores, children too; the number in use (all where the system cannot say)."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, chosen)
    return len(chosen)


def about_run(options: argparse.Namespace, cores: int) -> Record:
    quick = " --quick" if options.quick else ""
    command = f"python benchmarks/planner.py{quick} --scip-seconds {options.scip_seconds:g} --seed {options.seed}"
    return describe_run(command, options.seed, cores, ("numpy", "scipy", "pyscipopt"))


def run(options: argparse.Namespace, cores: int) -> Record:
    about = about_run(options, cores)
    machine, packages = about["machine"], about["packages"]
    print(f"FewJoules planner: {about['command']}")
    print(f"{machine['processor']}, {cores} of {machine['cpu_count']} cores, {machine['platform']}")
    print(f"load average before the run {machine['load_average']:.2f}; others' work inflates the times")
    print(", ".join(f"{name} {version or 'missing'}" for name, version in packages.items()))
    small = []
    for devices in (12, 40):
        small.append(measure_small(devices, options.seed, options.scip_seconds))
        print_small(small[-1])
    sizes = [10_000, 100_000] if options.quick else [10_000, 100_000, 1_000_000]
    large = [measure_large(devices, options.seed) for devices in sizes]
    print_large(large)
    whole = measure_whole(sizes[-1], options.seed)
    print_whole(whole)
    growth = measure_growth(sizes, options.seed)
    memory, command = measure_memory(sizes[-1], options.seed), measure_command()
    whole_memory = measure_memory(sizes[-1], options.seed, whole=True)
    print_processes([memory, whole_memory], command)
    checks = [
        *check_twelve(small[0]),
        *check_forty(small[1]),
        *(check_agreement(record) for record in small),
        *check_large(large),
        *(check_growth(record) for record in growth),
        *check_million(large[-1], memory),
        *check_large([whole]),
        *check_million(whole, whole_memory, " with all that a round costs"),
        check_command(command),
    ]
    print_checks(checks)
    print(f"\nload average after the run {os.getloadavg()[0]:.2f}")
    verdicts = [{"requirement": c.requirement, "verdict": c.verdict, "measured": c.measured} for c in checks]
    measured = {
        "small": small,
        "large": large,
        "whole": whole,
        "whole_memory": whole_memory,
        "growth": growth,
        "memory": memory,
        "command_line": command,
    }
    return about | measured | {"checks": verdicts}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the planner beside SCIP, SciPy and the paper's Algorithm 2.")
    parser.add_argument("--quick", action="store_true", help="5 s for SCIP, and no more than 100,000 devices")
    parser.add_argument("--scip-seconds", type=float, help="time limit of each SCIP run (60; 5 with --quick)")
    parser.add_argument("--seed", type=int, default=0, help="of the fleets and the random starts (0)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write every number, as JSON")
    parser.add_argument("--memory-worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scip_seconds is None:
        options.scip_seconds = 5.0 if options.quick else 60.0
    return options


def main() -> None:
    options = parse_options()
    if options.memory_worker is not None:
        print(json.dumps(memory_worker(options.memory_worker, options.seed, options.whole)))
        return
    results = run(options, keep_to_cores(CORES))
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
