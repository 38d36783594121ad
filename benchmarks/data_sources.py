"""Client-steps per second and memory of samples in memory, on disk and in data sets, beside each other.

    python benchmarks/data_sources.py [--clients 100] [--samples 1000] [--rounds 12] [--turns 3]

Each kind of data trains in a process of its own, and they take turns; the file on disk is in the page
cache, which is not counted as memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

import fewjoules as fj
from fewjoules.engine.models.networks import build

SHAPE = (1, 28, 28)
KINDS = (
    "arrays in memory",
    "arrays on disk",
    "data set in memory",
    "data set, read again",
)
ARCHITECTURES = ("softmax", "cnn")
LOCAL_STEPS, BATCH = 5, 32


class Images(Dataset):
    """Images that are decoded one by one, as a data set of files does it."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        return torch.from_numpy(np.array(self.inputs[number])), int(self.labels[number])


def given(kind, folder, clients):
    """Arguments of ``fewjoules.train`` for a kind of data."""
    on_disk = np.load(folder / "x.npy", mmap_mode="r")
    labels = np.load(folder / "y.npy")
    parts = np.array_split(np.arange(len(labels)), clients)
    if kind == "arrays in memory":
        return {"data": (np.array(on_disk), labels), "clients": parts}
    if kind == "arrays on disk":
        return {"data": (on_disk, labels), "clients": parts}
    memory_gib = 0.0 if kind.endswith("again") else 64.0
    return {"data": Images(on_disk, labels), "clients": parts, "data_memory_gib": memory_gib}


def own_mib():
    """Memory of this process that is no page of a file, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


def measured(kind, architecture, folder, clients, rounds):
    """Train and return client-steps per second without the first two rounds, and the most memory beyond the start."""
    channels, height, width = SHAPE
    model = build(architecture, channels=channels, height=height, width=width, classes=10, seed=0)
    times, memory = [], [own_mib()]

    def note(report):
        times.append(time.perf_counter())
        memory.append(own_mib())

    options = {"local_steps": LOCAL_STEPS, "batch_size": BATCH, "sparsity": 100.0, "learning_rate": 0.01}
    run = fj.train(
        model, rounds=rounds, device="cpu", on_round=note,
        **options, **given(kind, folder, clients),
    )  # fmt: skip
    rate = clients * LOCAL_STEPS * (len(times) - 2) / (times[-1] - times[1])
    weights = torch.cat([one.detach().flatten() for one in run.model.parameters()])
    return {"rate": rate, "mib": max(memory) - memory[0], "weights": float(weights.double().sum())}


def in_a_process(kind, architecture, folder, arguments):
    command = [sys.executable, __file__, "--kind", kind, "--architecture", architecture, "--folder", str(folder)]
    command += ["--clients", str(arguments.clients), "--rounds", str(arguments.rounds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--samples", type=int, default=1000, help="of each client")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    for hidden in ("--kind", "--architecture", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kind is not None:
        found = measured(
            arguments.kind, arguments.architecture, Path(arguments.folder), arguments.clients, arguments.rounds
        )
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, draws = Path(name), np.random.default_rng(0)
        count = arguments.clients * arguments.samples
        np.save(folder / "x.npy", draws.standard_normal((count, *SHAPE), dtype=np.float32))
        np.save(folder / "y.npy", draws.integers(10, size=count))
        size = (folder / "x.npy").stat().st_size / 2**20
        print(f"{arguments.clients} clients with {arguments.samples} images of {SHAPE}, {size:.0f} MiB in all")
        print(f"H = {LOCAL_STEPS}, batch {BATCH}, {os.cpu_count()} cores; medians of {arguments.turns} turns")
        for architecture in ARCHITECTURES:
            found = {kind: [] for kind in KINDS}
            for _ in range(arguments.turns):
                for kind in KINDS:
                    found[kind].append(in_a_process(kind, architecture, folder, arguments))
            usual = np.median([one["rate"] for one in found[KINDS[0]]])
            print(f"\n{architecture:28} client-steps/s   x in memory   MiB more")
            for kind, turns in found.items():
                rate, mib = (np.median([one[key] for one in turns]) for key in ("rate", "mib"))
                same = {one["weights"] for one in turns} == {one["weights"] for one in found[KINDS[0]]}
                print(f"{kind:28} {rate:14,.0f} {rate / usual:13.2f} {mib:10,.0f}{'' if same else '   OTHER WEIGHTS'}")


if __name__ == "__main__":
    main()
