"""Weights, metrics and ledger of many small trainings as hashes: a change that should change nothing is held to them.

    python benchmarks/same_runs.py --json before.json                      at the commit before
    python benchmarks/same_runs.py --compare before.json                   after; names every training that differs

Every compressor and kind of values, failures, sampling, growing batches, momentum, schedules, charged downlink, drawn
channels, models with statistics and with dropout, and runs of the command line, one of them stopped and resumed.
Hashes hold for one machine, torch version and device; the ledger is compared in the columns it had at first.
"""

import argparse
import hashlib
import importlib
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

PACKAGE = "fewjoules"
CLIENTS = 6
SHAPE = (1, 8, 8)
LEDGER = (
    *("round", "device", "delivered", "local_steps", "samples", "entries", "payload_bytes", "uplink_joules"),
    *("uplink_seconds", "planned_uplink_joules", "downlink_bytes", "downlink_joules", "downlink_seconds"),
    *("compute_joules", "compute_seconds"),
)
METRICS = (
    *("round", "epochs", "batch_size", "learning_rate", "train_loss", "train_accuracy", "test_loss", "test_accuracy"),
    *("round_joules", "round_seconds", "total_joules", "total_payload_bytes"),
)
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one-step": {"local_steps": 1},
    "dense": {"sparsity": 1.0},
    "no-feedback": {"error_feedback": False},
    "random-k": {"compressor": "random-k"},
    "ternary": {"compressor": "ternary"},
    "qsgd": {"compressor": "qsgd", "levels": 7},
    "qsgd-without-feedback": {"compressor": "qsgd", "error_feedback": False},
    "none": {"compressor": "none"},
    "none-int8": {"compressor": "none", "values": "int8"},
    "float16": {"values": "float16"},
    "bfloat16": {"values": "bfloat16"},
    "int8": {"values": "int8"},
    "qsgd-values": {"values": "qsgd"},
    "random-k-qsgd-values": {"compressor": "random-k", "values": "qsgd"},
    "failures": {"failure_probability": 0.3, "failures": {2: {0, 4}}},
    "ternary-failures": {"compressor": "ternary", "failure_probability": 0.3},
    "qsgd-failures": {"compressor": "qsgd", "failure_probability": 0.3},
    "sampling": {"participation": 0.5},
    "sampling-failures": {"participation": 0.5, "failure_probability": 0.3, "weighting": "samples"},
    "growth": {"batch_growth": 1.1, "batch_size": 4},
    "all-data": {"batch_size": None},
    "momentum": {"momentum": 0.9},
    "cosine": {"schedule": "cosine"},
    "step": {"schedule": "step", "decay_rounds": (2, 5), "decay_factor": 0.5},
    "downlink": {"downlink": "charged", "participation": 0.5},
    "drawn": {"channel": "drawn"},
    "samples": {"weighting": "samples"},
    "everything": {
        "participation": 0.7,
        "failure_probability": 0.2,
        "batch_growth": 1.05,
        "momentum": 0.5,
        "values": "int8",
        "weighting": "samples",
        "schedule": "cosine",
        "downlink": "charged",
        "channel": "drawn",
    },
}
MODELS = ("plain", "everything", "sampling-failures")  # also trained with each of these runs
SCENARIO = """
[model]
architecture = "cnn"
[rounds]
kind = "power-law"
tau = 200.0
c = 0.03
a = 0.5
q = 0.5
[limits]
sparsity = {min = 1.0, max = 400.0}
local_steps = {min = 1, max = 5}
[[device]]
count = 6
joules_per_step = 1e-3
joules_per_bit = 1e-7
[training]
data = "digits"
learning_rate = 0.1
rounds = 12
batch_growth = 1.01
participation = 0.67
failure_probability = 0.2
seed = 3
"""


def network(kind: str) -> nn.Module:
    """A small seeded model; statistics, random numbers or a layer that vmap cannot run are extra."""
    middle = {"cnn": [], "norm": [nn.BatchNorm2d(6)], "dropout": [nn.Dropout(0.3)]}[kind]
    model = nn.Sequential(nn.Conv2d(1, 6, 3), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(216, 40), nn.Linear(40, 10))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1, generator=generator)
    return model


def made_up_data() -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((10, *SHAPE), dtype=np.float32)

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 10, size)
        return patterns[labels] + rng.standard_normal((size, *SHAPE), dtype=np.float32), labels

    return [draw(size) for size in (20, 35, 50, 28, 64, 41)], draw(200)


def fleet() -> Any:
    fj, fading = importlib.import_module(PACKAGE), importlib.import_module(f"{PACKAGE}.physics.fading")
    return fj.Fleet(
        joules_per_bit=np.linspace(1e-8, 6e-8, CLIENTS),
        joules_per_step=1e-3,
        seconds_per_bit=1e-7,
        seconds_per_step=1e-2,
        joules_per_sample=1e-5,
        downlink_joules_per_bit=1e-9,
        downlink_seconds_per_bit=1e-9,
        fading=[fading.Fading("rayleigh", 3.0, 1.5)] * CLIENTS,
    )


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def hashes_of(run: Any) -> dict[str, str]:
    columns = {"ledger": (run.ledger, LEDGER), "metrics": (run.metrics, METRICS)}
    found = {name: digest([rows[c].tobytes() for c in names]) for name, (rows, names) in columns.items()}
    return {"weights": digest([tensor.numpy().tobytes() for tensor in run.model.state_dict().values()])} | found


def trained(kind: str, device: str, **changes: Any) -> dict[str, str]:
    fj = importlib.import_module(PACKAGE)
    clients, test = made_up_data()
    options = {"local_steps": 3, "sparsity": [1.0, 3.0, 10.0, 30.0, 100.0, 300.0], "rounds": 8, "learning_rate": 0.05}
    options |= {"batch_size": 8, "seed": 5, "device": device, "downlink": "free"} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hashes_of(fj.train(network(kind), clients=clients, test=test, fleet=fleet(), **options))


def of_command(folder: Path, *arguments: str) -> None:
    """A run of the command in its own process; a run that was stopped is no error."""
    done = subprocess.run([sys.executable, "-m", PACKAGE, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 130):
        raise RuntimeError(done.stderr)


def hashes_of_folder(folder: Path) -> dict[str, str]:
    from safetensors.numpy import load_file

    log = importlib.import_module(f"{PACKAGE}.ledger.parquet")
    schema = importlib.import_module(f"{PACKAGE}.ledger.schema")
    tables = (("ledger", schema.LEDGER, LEDGER), ("metrics", schema.METRICS, METRICS))
    found = {}
    for name, table, columns in tables:
        rows = log.read_table(folder / f"{name}.parquet", table)
        found[name] = digest([rows[column].tobytes() for column in columns])
    weights = load_file(folder / "model.safetensors")
    return {"weights": digest([weights[name].tobytes() for name in sorted(weights)])} | found


def of_command_line() -> dict[str, dict[str, str]]:
    """A run in one go, and one killed at its sixth round and resumed."""
    stop = (
        f"import os, signal, sys; import {PACKAGE}.ledger.log as log; append = log.RowLog.append\n"
        "def killing(self, rows):\n"
        "    append(self, rows)\n"
        "    if self.table.name == 'metrics' and rows['round'][0] == 6: os.kill(os.getpid(), signal.SIGKILL)\n"
        "log.RowLog.append = killing\n"
        f"from {PACKAGE}.cli import main; main()"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.toml").write_text(SCENARIO, encoding="utf-8")
        common = ("train", "scenario.toml", "--device", "cpu", "--checkpoint-seconds", "0")
        of_command(folder, *common, "--out", "whole")
        subprocess.run([sys.executable, "-c", stop, *common, "--out", "killed"], cwd=folder, capture_output=True)
        of_command(folder, "train", "--resume", "killed", "--checkpoint-seconds", "0")
        return {"command": hashes_of_folder(folder / "whole"), "resumed": hashes_of_folder(folder / "killed")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--package", default=PACKAGE, help=argparse.SUPPRESS)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), help="only these, with the plain model")
    parser.add_argument("--json", type=Path, help="write the hashes here")
    parser.add_argument("--compare", type=Path, help="hashes to compare with")
    given = parser.parse_args()
    globals()["PACKAGE"] = given.package
    found = {}
    for kind in ("cnn", "norm", "dropout"):
        for name in RUNS if kind == "cnn" else MODELS:
            if name not in given.runs or (kind != "cnn" and given.runs != list(RUNS)):
                continue
            found[f"{kind} {name}"] = trained(kind, given.device, precision=given.precision, **RUNS[name])
    if given.device == "cpu" and given.runs == list(RUNS):
        found |= of_command_line()
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before = json.loads(given.compare.read_text(encoding="utf-8")) if given.compare is not None else found
    differing = [
        f"{name}: {', '.join(part for part in ('weights', 'metrics', 'ledger') if found[name][part] != parts[part])}"
        for name, parts in before.items()
        if name in found and found[name] != parts
    ]
    print("\n".join(differing))
    print(f"{len(found) - len(differing)} of {len(found)} trainings are the same to the bit")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
