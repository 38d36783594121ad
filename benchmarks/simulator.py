"""The simulator beside its rivals, measured in one run: client-steps a second, everything included.

    python benchmarks/simulator.py [--device auto] [--quick] [--models lenet5] [--clients 12 100] [--json results.json]

A client-step is one local step of one client, with its share of sampling, top-k, error feedback, aggregation, counted
messages and ledger rows; batch 32, H = 5, random images of MNIST's or CIFAR-10's shape, 600 a client. Every contestant
has a process of its own (benchmarks/rivals) and they take turns; verdicts are on medians. On the processor all keep to
two cores. Every requirement ends in pass, MISS or skip; a miss never stops the run.
"""

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from report import describe_run, duration, print_table
from rivals.limits import work_of_step
from rivals.task import SHAPES, Record, Task
from rivals.turns import Contestant, ContestantError, Server

OURS, STEPS, LOOP, LIMITS = "FewJoules", "its local steps", "loop", "limits"
MODULES = {OURS: "simulated", LOOP: "loop", "Flower": "flower", "pfl": "apple_pfl", LIMITS: "limits"}
NEEDS = {"Flower": ("flwr", "ray"), "pfl": ("pfl",)}
HIDDEN_WORK = ("Flower",)  # done in processes of Ray
FULL_RIVALS = (LOOP, *NEEDS)
CORES = 2
CLIENTS = (12, 100)
DELTAS = (1000.0, 100.0, 4.5)
MAX_TURN_ROUNDS = 200
CPU_TIMES_LOOP = 1.5
GPU_TARGETS = {("lenet5", "tf32"): 40_000, ("resnet20-gn", "tf32"): 2_000, ("resnet20-gn", "bf16"): 3_000}
DELAY_LIMITS = {1000.0: 0.15, 100.0: 0.10, 4.5: 0.25}
OTHERS_LIMIT = 0.2  # cores; beyond it threaded rivals wait for each other's threads and look too slow


@dataclass(frozen=True, slots=True)
class Check:
    requirement: str
    verdict: str
    measured: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A task with what is measured on it: all rivals at the first delta, the loop beside FewJoules on a CPU at each."""

    task: Task
    deltas: tuple[float, ...]
    rivals: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        task = self.task
        return f"{task.model}, {task.clients} clients, {task.precision}, {task.device}"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many turns each contestant gets, and about how long one lasts."""

    turns: int
    turn_seconds: float


# --- what is measured ---------------------------------------------------------------------------------------------


def plans_of(
    device: str, models: Sequence[str], clients: Sequence[int], seed: int, alone: bool = False
) -> list[list[Plan]]:
    """Groups of plans: the contestants of a group are started together, so that their compilers work side by side."""
    kinds = gpu_kinds() if device == "cuda" else [("lenet5", "float32", DELTAS, FULL_RIVALS)]
    plans = [
        Plan(Task(model, count, precision, device, seed), deltas, () if alone else rivals)
        for model, precision, deltas, rivals in kinds
        for count in clients
        if model in models and (model != "resnet20" or count == max(clients))
    ]
    if device == "cpu":
        return [[plan] for plan in plans]
    families = {plan.task.model.split("-")[0] for plan in plans}
    return [[plan for plan in plans if plan.task.model.startswith(family)] for family in sorted(families)]


def gpu_kinds() -> list[tuple[str, str, tuple[float, ...], tuple[str, ...]]]:
    first = DELTAS[:1]
    return [
        ("lenet5", "tf32", DELTAS, FULL_RIVALS),
        ("lenet5", "bf16", first, ()),
        ("lenet5", "float32", first, ()),
        ("resnet20-gn", "tf32", DELTAS, FULL_RIVALS),
        ("resnet20-gn", "bf16", first, ()),
        ("resnet20", "tf32", first, ()),
    ]


def is_installed(rival: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in NEEDS.get(rival, ()))


def started(contestants: Sequence[Contestant], delta: float) -> list[Contestant]:
    """Those that got ready and ran a first round, all side by side; the others are named and closed."""
    waiting = ready_ones(contestants)
    for contestant in waiting:
        contestant.send(kind="rounds", rounds=1, delta=delta)
    return ready_ones(waiting)


def ready_ones(contestants: Sequence[Contestant]) -> list[Contestant]:
    """Those whose answer came; the others are named and closed."""
    ready = []
    for contestant in contestants:
        try:
            contestant.receive()
        except ContestantError as error:
            print(f"  left out: {error}")
            contestant.close()
        else:
            ready.append(contestant)
    return ready


def measure_group(plans: Sequence[Plan], pace: Pace) -> list[Record]:
    script = Path(__file__).resolve()
    start = time.perf_counter()
    ours = started([Contestant(script, OURS, plan.task) for plan in plans], plans[0].deltas[0])
    print(
        f"\n{len(ours)} of {len(plans)} simulators compiled and ran a round after {time.perf_counter() - start:.0f} s"
    )
    records = []
    for plan in plans:
        own = next((contestant for contestant in ours if contestant.task == plan.task), None)
        if own is None:
            continue
        names = [name for name in plan.rivals if is_installed(name)]
        rivals = started([Contestant(script, name, plan.task) for name in names], plan.deltas[0])
        found = []
        try:
            for delta in plan.deltas:
                found.append(measure(plan, delta, own, rivals, pace))
        except ContestantError as error:
            print(f"\n{plan.title}, delta {delta:g}: left out: {error}")
        for contestant in (own, *rivals):
            contestant.close()
        if found:
            print_speeds(plan, found)
        records += found
    return records


def measure(plan: Plan, delta: float, own: Contestant, rivals: Sequence[Contestant], pace: Pace) -> Record:
    """Turns of FewJoules, of its local steps alone (on a GPU) and of rivals, over and over."""
    entries = {OURS: (own, "rounds")}
    if plan.task.device == "cuda":
        entries[STEPS] = (own, "steps")
    for rival in rivals:
        if delta == plan.deltas[0] or (rival.name == LOOP and plan.task.device == "cpu"):
            entries[rival.name] = (rival, "rounds")
    answers, rounds = take_turns(entries, delta, pace)
    seconds = {name: [a["seconds"] / rounds[name] for a in found] for name, found in answers.items()}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    watched = [a["others_cores"] for name, found in answers.items() for a in found if name not in HIDDEN_WORK]
    return {
        "task": asdict(plan.task),
        "delta": delta,
        "execution": answers[OURS][0]["execution"],
        "payload_bytes": answers[OURS][-1]["payload_bytes"],
        "others_cores": statistics.mean(watched),
        "round_seconds": seconds,
        "rounds_a_turn": rounds,
        "client_steps_per_second": {name: plan.task.client_steps / median for name, median in medians.items()},
        "fewjoules_times": {name: median / medians[OURS] for name, median in medians.items()},
        "compression_and_ledger": medians[OURS] / medians[STEPS] - 1.0 if STEPS in medians else None,
    }


def take_turns(
    entries: dict[str, tuple[Contestant, str]], delta: float, pace: Pace
) -> tuple[dict[str, list[Record]], dict[str, int]]:
    """Answers of each contestant, and how many rounds a turn of its had; a rival that stops is named and left out."""
    rounds: dict[str, int] = {}
    answers: dict[str, list[Record]] = {name: [] for name in entries}
    for turn in range(1 + pace.turns):
        for name in list(answers):
            contestant, kind = entries[name]
            try:
                if turn == 0:
                    rounds[name] = rounds_of_turn(contestant, kind, delta, pace.turn_seconds)
                else:
                    answers[name].append(contestant.ask(kind=kind, rounds=rounds[name], delta=delta))
            except ContestantError as error:
                if contestant.name == OURS:
                    raise
                print(f"  left out at delta {delta:g}: {error}")
                del answers[name]
    return answers, rounds


def rounds_of_turn(contestant: Contestant, kind: str, delta: float, turn_seconds: float) -> int:
    """So many rounds as fill a turn, from the second of two untimed ones."""
    contestant.ask(kind=kind, rounds=1, delta=delta)
    seconds = contestant.ask(kind=kind, rounds=1, delta=delta)["seconds"]
    return max(1, min(MAX_TURN_ROUNDS, round(turn_seconds / seconds)))


def measure_limits(task: Task, precisions: Sequence[str]) -> Record:
    contestant = Contestant(Path(__file__).resolve(), LIMITS, task)
    try:
        contestant.receive()
        return contestant.ask(precisions=list(precisions))
    finally:
        contestant.close()


def distances(records: Sequence[Record], limits: Record) -> list[Record]:
    """Arithmetic and traffic of a client-step in the time it took, over what the machine reaches at best."""
    found = []
    for record in records:
        task = Task(**record["task"])
        work, speed = work_of_step(task), record["client_steps_per_second"][OURS]
        product = limits["product_flops_per_second"][task.precision]
        found.append(
            {
                "task": record["task"],
                "delta": record["delta"],
                **asdict(work),
                "flops_per_second": speed * work.flops,
                "share_of_product": speed * work.flops / product,
                "estimated_bytes_per_second": speed * work.estimated_bytes,
                "share_of_copy": speed * work.estimated_bytes / limits["copy_bytes_per_second"],
            }
        )
    return found


# --- tables and verdicts ------------------------------------------------------------------------------------------


def print_speeds(plan: Plan, records: Sequence[Record]) -> None:
    print(f"\n{plan.title} ({records[0]['execution']})")
    rows = []
    for record in records:
        for name, speed in record["client_steps_per_second"].items():
            times = record["fewjoules_times"][name]
            rounds = len(record["round_seconds"][name]) * record["rounds_a_turn"][name]
            rows.append(
                [f"{record['delta']:g}", name, f"{speed:,.0f}", duration(1 / speed), f"{times:.2f}", f"{rounds}"]
            )
    header = ["delta", "contestant", "client-steps/s", "a client-step", "FewJoules over it", "rounds"]
    print_table(header, rows, text_columns=2)
    others = max(record["others_cores"] for record in records)
    note = f"  cores that other processes kept busy meanwhile: {others:.2f}"
    print(note + ("; too many for ratios on a CPU" if others > OTHERS_LIMIT else ""))
    delays = [
        f"{100 * record['compression_and_ledger']:.1f} % at delta {record['delta']:g}"
        for record in records
        if record["compression_and_ledger"] is not None
    ]
    if delays:
        print(f"  compression, aggregation and ledger delay a round by {', '.join(delays)}")


def print_limits(limits: Record, found: Sequence[Record]) -> None:
    products = ", ".join(
        f"{precision} {speed / 1e9:,.0f} GFLOP/s" for precision, speed in limits["product_flops_per_second"].items()
    )
    copy = limits["copy_bytes_per_second"] / 1e9
    print(f"\nDistance to the limits of this machine: products of large matrices {products}; copy {copy:,.0f} GB/s")
    header = ["task", "delta", "MFLOP", "GFLOP/s", "of the product", "estimated MB", "GB/s", "of the copy"]
    rows = [
        [
            f"{f['task']['model']}, {f['task']['clients']}, {f['task']['precision']}",
            f"{f['delta']:g}",
            f"{f['flops'] / 1e6:,.0f}",
            f"{f['flops_per_second'] / 1e9:,.0f}",
            f"{100 * f['share_of_product']:.1f} %",
            f"{f['estimated_bytes'] / 1e6:,.1f}",
            f"{f['estimated_bytes_per_second'] / 1e9:,.0f}",
            f"{100 * f['share_of_copy']:.1f} %",
        ]
        for f in found
    ]
    print_table(header, rows)
    print("  of a client-step: products of forward and backward passes; bytes layer by layer, norms and ReLU for free.")


def found_record(
    records: Sequence[Record], model: str, clients: int, precision: str, delta: float = DELTAS[0]
) -> Record | None:
    """The measurement at this delta, if there is one."""
    wanted = {"model": model, "clients": clients, "precision": precision}
    for record in records:
        if record["delta"] == delta and wanted.items() <= record["task"].items():
            return record
    return None


def check_processor(records: Sequence[Record]) -> list[Check]:
    checks = []
    for clients in CLIENTS:
        requirement = f"LeNet5 on two cores, {clients} clients: at least {CPU_TIMES_LOOP} times the loop"
        record = found_record(records, "lenet5", clients, "float32")
        times = None if record is None else record["fewjoules_times"].get(LOOP)
        if record is not None and times is not None and record["others_cores"] > OTHERS_LIMIT:
            busy = f"{times:.2f} times while other processes kept {record['others_cores']:.2f} cores busy"
            checks.append(Check(requirement, "skip", busy))
            continue
        checks.append(verdict(requirement, times, lambda value: value >= CPU_TIMES_LOOP, "{:.2f} times"))
    return checks


def check_gpu(records: Sequence[Record]) -> list[Check]:
    checks = []
    for (model, precision), target in GPU_TARGETS.items():
        name = f"{model} {precision} on a GPU, {CLIENTS[-1]} clients, delta {DELTAS[0]:g}"
        record = found_record(records, model, CLIENTS[-1], precision)
        speed = None if record is None else record["client_steps_per_second"][OURS]
        checks.append(
            verdict(f"{name}: {target:,} client-steps/s", speed, lambda value, t=target: value >= t, "{:,.0f}")
        )
        checks += [check_delay(records, model, precision, delta) for delta in DELAY_LIMITS]
    return checks


def check_delay(records: Sequence[Record], model: str, precision: str, delta: float) -> Check:
    record, limit = found_record(records, model, CLIENTS[-1], precision, delta), DELAY_LIMITS[delta]
    delay = None if record is None else record["compression_and_ledger"]
    name = f"{model} {precision} on a GPU, {CLIENTS[-1]} clients, delta {delta:g}: delayed by at most {limit:.0%}"
    return verdict(name, delay, lambda value: value <= limit, "{:.1%}")


def verdict(requirement: str, value: float | None, is_met, form: str) -> Check:
    if value is None:
        return Check(requirement, "skip", "not measured")
    return Check(requirement, "pass" if is_met(value) else "MISS", form.format(value))


def print_checks(checks: Sequence[Check]) -> None:
    print("\nRequirements")
    print_table(
        ["requirement", "verdict", "measured"], [[c.requirement, c.verdict, c.measured] for c in checks], text_columns=3
    )


# --- the run ------------------------------------------------------------------------------------------------------


def keep_to_cores(count: int) -> int:
    """This process and those it starts use that many cores."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    allowed = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def about_run(options: argparse.Namespace, device: str, cores: int) -> Record:
    quick = (" --quick" if options.quick else "") + (" --alone" if options.alone else "")
    models, clients = " ".join(options.models), " ".join(map(str, options.clients))
    command = f"python benchmarks/simulator.py --device {device}{quick} --models {models} --clients {clients}"
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    packages = ("numpy", "numba", "torch", "triton", "flwr", "ray", "pfl")
    return describe_run(f"{command} --seed {options.seed}", options.seed, cores, packages, gpu)


def print_run(about: Record) -> None:
    machine = about["machine"]
    print(f"FewJoules simulator: {about['command']}")
    print(f"commit {about['git_commit']}, seed {about['seed']}, {about['started']}")
    print(f"{machine['processor']}, {machine['cores_used']} of {machine['cpu_count']} cores, {machine['platform']}")
    print(f"GPU: {machine['gpu'] or 'not used'}; load average before the run {machine['load_average']:.2f}")
    print(", ".join(f"{name} {version or 'missing'}" for name, version in about["packages"].items()))
    for rival in NEEDS:
        if not is_installed(rival):
            print(f"{rival}: not installed")


def run(options: argparse.Namespace, device: str) -> Record:
    start = time.perf_counter()
    cores = keep_to_cores(CORES if device == "cpu" else os.cpu_count() or 1)
    about = about_run(options, device, cores)
    print_run(about)
    pace = Pace(2, 0.1) if options.quick else Pace(5, 1.0 if device == "cpu" else 0.3)
    groups = plans_of(device, options.models, options.clients, options.seed, options.alone)
    records = [record for plans in groups for record in measure_group(plans, pace)]
    precisions = sorted({record["task"]["precision"] for record in records})
    limits = measure_limits(Task("lenet5", 1, "float32", device, options.seed), precisions)
    found = distances(records, limits)
    print_limits(limits, found)
    checks = check_processor(records) if device == "cpu" else check_gpu(records)
    print_checks(checks)
    seconds = time.perf_counter() - start
    print(f"\n{seconds:.0f} s; load average after the run {os.getloadavg()[0]:.2f}")
    measured = {"speeds": records, "limits": limits, "distances": found}
    return about | measured | {"checks": [asdict(c) for c in checks], "seconds": seconds}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the simulator's client-steps a second beside its rivals'.")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU if there is one")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that all runs, not how fast")
    parser.add_argument("--models", nargs="+", choices=tuple(SHAPES), default=list(SHAPES), help="on a CPU lenet5 only")
    parser.add_argument("--clients", nargs="+", type=int, default=list(CLIENTS), help="12 and 100")
    parser.add_argument("--alone", action="store_true", help="no rivals: a change against an earlier run")
    parser.add_argument("--seed", type=int, default=0, help="of images, weights and batches (0)")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="also write every number, as JSON")
    parser.add_argument("--contestant", choices=tuple(MODULES), help=argparse.SUPPRESS)
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if options.contestant:
        server = Server()
        contestant = importlib.import_module(f"rivals.{MODULES[options.contestant]}")
        contestant.compete(Task(**options.task), server.serve)
        return
    sys.stdout.reconfigure(line_buffering=True)
    has_gpu = torch.cuda.is_available()
    results = run(options, "cuda" if options.device == "cuda" or (options.device == "auto" and has_gpu) else "cpu")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
