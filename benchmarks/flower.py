"""FewJoules on Flower beside plain FedAvg on Flower: seconds a round, and bytes on the wire.

    python benchmarks/flower.py [--quick] [--json results.json]

A SuperLink and three SuperNodes run on this machine. Both contestants are Flower apps (benchmarks/deployed) with the
same models, samples and local steps; plain FedAvg is written as Flower's users write it, with all defaults except that
no client evaluates. They take turns on the same deployment, run by run. Bytes are counted at the sockets by a TCP proxy
between each node and the SuperLink. A run's first round also delivers the app, starts FewJoules's workers and sends
the whole model; it is told apart. Every requirement ends in pass, MISS or skip; a miss never stops the run.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from deployed.round_marks import read_marks
from deployed.wire import Wire
from report import Record, describe_run, print_table

from fewjoules.datasets.load import load
from fewjoules.files import whole_file
from fewjoules.integrations.flower.loopback import Loopback
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER

NODES = 3
APPS = Path(__file__).resolve().parent / "deployed"
FEDAVG, FEWJOULES, EMPTY = "plain FedAvg", "FewJoules", "empty messages"
FOLDERS = {FEDAVG: "plain-fedavg", FEWJOULES: "fewjoules-rounds", EMPTY: "empty-messages"}
PARAMETERS = {"digits": 13_706, "lenet5": 431_080, "wide": 25_001_862}
TITLES = {"digits": "CNN on 8x8 digits", "lenet5": "LeNet5", "wide": "MLP"}
DIGITS_SPARSITY = 100.0
BATCH, LEARNING_RATE, CLIENT_SAMPLES = 16, 0.05, 400
FASTER_POLLS = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}  # Flower's own setting, 1 s unless told
MOST_OF_FEDAVG = 0.5
RUN_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an app on a deployment."""

    contestant: str
    rounds: int
    local_steps: int = 1
    sparsity: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of one deployment, in their order; all nodes hold the same model."""

    title: str
    model: str
    runs: tuple[Run, ...]
    secure: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    requirement: str
    verdict: str
    measured: str


# --- what is measured ---------------------------------------------------------------------------------------------


def plans_of(quick: bool) -> list[Plan]:
    steps = 10
    rounds, turns = (2, 1) if quick else (4, 2)
    ours = Run(FEWJOULES, rounds, steps, DIGITS_SPARSITY)
    turn = (ours, Run(FEDAVG, rounds, steps))
    empty = Run(EMPTY, 2 if quick else 4)
    digits = Plan("Flower's settings", "digits", turns * turn + (empty,), idle_seconds=10.0 if quick else 60.0)
    sparse = [Run(FEWJOULES, 2 if quick else 3, 1, sparsity) for sparsity in (100.0, 1000.0)]
    dense = Run(FEDAVG, 2 if quick else 3)
    if quick:
        return [digits, Plan("Flower's settings", "lenet5", (sparse[0], dense))]
    return [
        digits,
        Plan(
            "faster polls", "digits", (Run(FEWJOULES, 6, steps, DIGITS_SPARSITY),), False, tuple(FASTER_POLLS.items())
        ),
        Plan("Flower's settings", "lenet5", (*sparse, dense)),
        Plan("Flower's settings, TLS and keys", "lenet5", (sparse[1], dense), secure=True),
        Plan("Flower's settings", "wide", (sparse[1], dense)),
    ]


def measure(plan: Plan, folder: Path) -> Record:
    """Start a deployment behind counting proxies and run the apps on it, one after the other."""
    folder.mkdir()
    print(f"\n{TITLES[plan.model]}, {PARAMETERS[plan.model]:,} parameters; {plan.title}", flush=True)
    path = os.pathsep.join(filter(None, [str(APPS), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, **dict(plan.environment)}
    with Wire(NODES) as wire:
        deployment = Loopback(
            folder / "flower",
            node_configs(plan.model, folder),
            secure=plan.secure,
            environment=environment,
            superlink_addresses=wire.addresses,
        )
        wire.superlink = lambda: deployment.address
        with deployment:
            idle = measure_idle(wire, plan.idle_seconds)
            runs = [measure_run(deployment, wire, plan, run, folder / f"run-{i}") for i, run in enumerate(plan.runs)]
    return {
        "title": plan.title,
        "model": plan.model,
        "parameters": PARAMETERS[plan.model],
        "secure": plan.secure,
        "environment": dict(plan.environment),
        "idle": idle,
        "runs": runs,
    }


def measure_idle(wire: Wire, seconds: float) -> Record | None:
    """What nodes send and receive while no app runs."""
    if not seconds:
        return None
    start = time.monotonic()
    time.sleep(seconds)
    return {"seconds": seconds, "traffic": [asdict(node) for node in wire.between(start, start + seconds)]}


def measure_run(deployment: Loopback, wire: Wire, plan: Plan, run: Run, folder: Path) -> Record:
    folder.mkdir()
    marks, load_before = folder / "marks.jsonl", os.getloadavg()[0]
    config = run_config(plan.model, run, folder, marks)
    began = deployment.run(APPS / FOLDERS[run.contestant], config)
    if began.wait(RUN_SECONDS) != 0:
        sys.exit(f"{run.contestant} failed on {plan.model}:\n{began.log_text()[-3000:]}")
    ends = read_marks(marks)
    payloads = payloads_of(plan, run, folder)
    rounds = [
        {"seconds": end - start, "traffic": [asdict(node) for node in wire.between(start, end)], "payload": payload}
        for (start, end), payload in zip(itertools.pairwise(ends), payloads, strict=True)
    ]
    seconds = ", ".join(f"{each['seconds']:.1f}" for each in rounds)
    loads = [load_before, os.getloadavg()[0]]
    print(f"  {run.contestant}: rounds of {seconds} s; load average {loads[0]:.1f} to {loads[1]:.1f}", flush=True)
    return {**asdict(run), "load_average": loads, "rounds": rounds}


def run_config(model: str, run: Run, folder: Path, marks: Path) -> dict[str, str | int | float]:
    config: dict[str, str | int | float] = {"rounds": run.rounds, "marks": str(marks)}
    if run.contestant == EMPTY:
        return config
    config |= {"model": model, "local-steps": run.local_steps, "batch-size": BATCH, "learning-rate": LEARNING_RATE}
    if run.contestant == FEWJOULES:
        config |= {"sparsity": run.sparsity, "clients": NODES, "folder": str(folder)}
    return config


def payloads_of(plan: Plan, run: Run, folder: Path) -> list[Record]:
    """Bytes of weights up and down, a round and node: FewJoules's by its ledger, FedAvg's are 4 a parameter."""
    if run.contestant == FEWJOULES:
        rows = read_table(folder / "ledger.parquet", LEDGER)
        of_round = [rows[rows["round"] == number] for number in range(1, run.rounds + 1)]
        return [
            {"up_bytes": float(own["payload_bytes"].mean()), "down_bytes": float(own["downlink_bytes"].mean())}
            for own in of_round
        ]
    size = 0.0 if run.contestant == EMPTY else 4.0 * PARAMETERS[plan.model]
    return [{"up_bytes": size, "down_bytes": size}] * run.rounds


def node_configs(model: str, folder: Path) -> list[dict[str, str | int]]:
    configs = []
    for node, (inputs, targets) in enumerate(node_samples(model)):
        path = folder / f"data-{node}.npz"
        np.savez(path, inputs=inputs, targets=targets)
        state = folder / f"state-{node}"
        configs.append({"client-id": f"node-{node}", "model": model, "data": str(path), "state-dir": str(state)})
    return configs


def node_samples(model: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same number of samples for each node: digits, or random images of MNIST's shape."""
    if model == "digits":
        data = load("digits")
        images, labels = data.train_images.astype(np.float32) / 16.0, data.train_labels.astype(np.int64)
    else:
        random = np.random.default_rng(0)
        images = random.standard_normal((NODES * CLIENT_SAMPLES, 1, 28, 28), dtype=np.float32)
        labels = random.integers(10, size=len(images))
    return [(images[node::NODES][:CLIENT_SAMPLES], labels[node::NODES][:CLIENT_SAMPLES]) for node in range(NODES)]


# --- medians, tables and verdicts ---------------------------------------------------------------------------------


def later_rounds(runs: Sequence[Record]) -> list[Record]:
    """The rounds after the first of each run."""
    return [each for run in runs for each in run["rounds"][1:]]


def runs_of(record: Record, contestant: str, sparsity: float | None = None) -> list[Record]:
    return [
        run
        for run in record["runs"]
        if run["contestant"] == contestant and (sparsity is None or run["sparsity"] == sparsity)
    ]


def median_seconds(runs: Sequence[Record]) -> float:
    return statistics.median(each["seconds"] for each in later_rounds(runs))


def wire_bytes(rounds: Sequence[Record], way: str) -> float:
    """The median over rounds of the mean over nodes."""
    return statistics.median(statistics.mean(node[way] for node in each["traffic"]) for each in rounds)


def payload_bytes(rounds: Sequence[Record], way: str) -> float:
    return statistics.median(each["payload"][way] for each in rounds)


def kinds(record: Record) -> list[tuple[str, float]]:
    """Contestants with their sparsities, each once."""
    return list(dict.fromkeys((run["contestant"], run["sparsity"]) for run in record["runs"]))


def name_of(contestant: str, sparsity: float) -> str:
    return f"{contestant}, sparsity {sparsity:g}" if contestant == FEWJOULES else contestant


def print_times(records: Sequence[Record]) -> None:
    print("\nSeconds a round: medians of the rounds after a run's first")
    rows = []
    for record in records:
        dense = runs_of(record, FEDAVG)
        for contestant, sparsity in kinds(record):
            runs = runs_of(record, contestant, sparsity)
            seconds, later = median_seconds(runs), later_rounds(runs)
            over = f"{seconds / median_seconds(dense):.2f}" if dense else ""
            low, high = min(each["seconds"] for each in later), max(each["seconds"] for each in later)
            first = statistics.median(run["rounds"][0]["seconds"] for run in runs)
            rows.append(
                [
                    TITLES[record["model"]],
                    record["title"],
                    name_of(contestant, sparsity),
                    f"{seconds:.1f}",
                    f"{low:.1f} to {high:.1f}",
                    f"{len(later)}",
                    f"{first:.1f}",
                    over,
                ]
            )
    header = ["model", "deployment", "contestant", "median s", "all", "rounds", "first s", "over plain FedAvg"]
    print_table(header, rows, text_columns=3)


def print_traffic(records: Sequence[Record]) -> None:
    print("\nBytes a node and round inside TCP, counted at the sockets: medians of the rounds after a run's first")
    rows = []
    for record in records:
        for contestant, sparsity in kinds(record):
            runs = runs_of(record, contestant, sparsity)
            later, firsts = later_rounds(runs), [run["rounds"][0] for run in runs]
            up, down = wire_bytes(later, "up_bytes"), wire_bytes(later, "down_bytes")
            sent, received = payload_bytes(later, "up_bytes"), payload_bytes(later, "down_bytes")
            rows.append(
                [
                    TITLES[record["model"]] + (", TLS" if record["secure"] else ""),
                    name_of(contestant, sparsity),
                    f"{up:,.0f}",
                    f"{sent:,.0f}",
                    f"{up - sent:,.0f}",
                    f"{down:,.0f}",
                    f"{received:,.0f}",
                    f"{down - received:,.0f}",
                    f"{wire_bytes(firsts, 'down_bytes'):,.0f}",
                ]
            )
    header = ["model", "contestant", "up", "payload", "the rest", "down", "payload", "the rest", "down, first round"]
    print_table(header, rows, text_columns=2)
    print("  payload: FewJoules's as its ledger has it, 4 bytes a parameter for FedAvg; the rest is Flower's.")
    for record in records:
        if record["idle"] is not None:
            print_idle(record["idle"])


def print_idle(idle: Record) -> None:
    up, down = (
        statistics.mean(node[way] for node in idle["traffic"]) / idle["seconds"] for way in ("up_bytes", "down_bytes")
    )
    print(
        f"  an idle node sends {up:,.0f} and receives {down:,.0f} bytes a second: polls each 3 s, heartbeats each 30 s."
    )


def check_rounds(records: Sequence[Record]) -> list[Check]:
    requirement = f"digits, Flower's own settings: a round in at most {MOST_OF_FEDAVG:g} of plain FedAvg's time"
    record = records[0]
    ratio = median_seconds(runs_of(record, FEWJOULES)) / median_seconds(runs_of(record, FEDAVG))
    return [Check(requirement, "pass" if ratio <= MOST_OF_FEDAVG else "MISS", f"{ratio:.2f}")]


# --- the run ------------------------------------------------------------------------------------------------------


def about_run(quick: bool) -> Record:
    command = "python benchmarks/flower.py" + (" --quick" if quick else "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return describe_run(command, 0, cores, ("numpy", "torch", "flwr"))


def print_run(about: Record) -> None:
    machine = about["machine"]
    print(f"FewJoules on Flower: {about['command']}")
    print(f"commit {about['git_commit']}, {about['started']}")
    print(f"{machine['processor']}, {machine['cores_used']} of {machine['cpu_count']} cores, {machine['platform']}")
    print(f"load average before the run {machine['load_average']:.2f}")
    print(", ".join(f"{name} {version or 'missing'}" for name, version in about["packages"].items()))
    settings = " ".join(f"{name}={value}" for name, value in FASTER_POLLS.items())
    print(f"three nodes on this machine; faster polls: {settings}, which only FewJoules is given")


def run(quick: bool) -> Record:
    start = time.perf_counter()
    about = about_run(quick)
    print_run(about)
    folder = Path(tempfile.mkdtemp(prefix="fewjoules-flower-"))
    try:
        records = [measure(plan, folder / f"deployment-{i}") for i, plan in enumerate(plans_of(quick))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_times(records)
    print_traffic(records)
    checks = check_rounds(records)
    print("\nRequirements")
    cells = [[check.requirement, check.verdict, check.measured] for check in checks]
    print_table(["requirement", "verdict", "measured"], cells, text_columns=3)
    seconds = time.perf_counter() - start
    print(f"\n{seconds:.0f} s; load average after the run {os.getloadavg()[0]:.2f}")
    return about | {"deployments": records, "checks": [asdict(check) for check in checks], "seconds": seconds}


def write_json(path: Path, found: Mapping[str, object]) -> None:
    with whole_file(path) as stream:
        stream.write((json.dumps(found, indent=1) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure FewJoules on Flower beside plain FedAvg on Flower.")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that all runs, not how fast")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="also write every number, as JSON")
    options = parser.parse_args()
    found = run(options.quick)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
