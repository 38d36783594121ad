"""Two ranks beside one process, each with one thread on a core of its own: seconds of a round, measured in turns.

    python benchmarks/ranks.py [--turns 5] [--clients 16] [--rounds 8]

Beside them, two processes train apart at the same time, with nothing to exchange: what they lose to sharing the machine
(caches, memory, other work) is none of the ranks' fault, and twice one process by that is as fast as ranks can be.
Processor seconds do not count the time in which other work has the cores, or in which a rank waits for the other.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Any

from report import describe_run, print_table

WARM_UP = 2  # rounds


def work(clients: int, rounds: int) -> dict[str, Any]:
    """Train as this process was started: alone or as a rank; return the median seconds of a round and a digest."""
    import hashlib

    import numpy as np
    import torch
    from torch import nn

    import fewjoules as fj

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU()
    )
    model = nn.Sequential(*model, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    data = [(rng.random((200, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 200)) for _ in range(clients)]
    seen: list[tuple[float, float]] = []
    run = fj.train(
        model,
        clients=data,
        local_steps=5,
        sparsity=50.0,
        rounds=rounds + WARM_UP,
        learning_rate=0.05,
        batch_size=32,
        on_round=lambda _report: seen.append((time.perf_counter(), time.process_time())),
    )
    wall, processor = np.median(np.diff(seen, axis=0)[WARM_UP - 1 :], axis=0).tolist()
    weights = torch.cat([p.detach().reshape(-1) for p in run.model.parameters()]).numpy()
    return {"seconds": wall, "processor": processor, "digest": hashlib.sha256(weights.tobytes()).hexdigest()}


def start(arguments: list[str], core: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a worker with one thread on one core."""
    usual = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, __file__, "--work", *arguments],
        env=os.environ | usual | environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=partial(os.sched_setaffinity, 0, {core}),
    )


def finished(workers: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Wait for workers and return what they measured."""
    told = [worker.communicate()[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    return [json.loads(one.splitlines()[-1]) for one in told]


def rank_environment(rank: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    return {name: str(value) for name, value in told.items()} | {"MASTER_ADDR": "127.0.0.1"}


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure in turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(json.dumps(work(given.clients, given.rounds)))
        return
    print(json.dumps(describe_run(" ".join(sys.argv), 0, 2, ["torch"])))
    sizes = ["--clients", str(given.clients), "--rounds", str(given.rounds)]
    cores = sorted(os.sched_getaffinity(0))[:2]
    seconds: dict[str, list[float]] = {"one process": [], "two ranks": [], "two processes apart": []}
    processor: dict[str, list[float]] = {name: [] for name in seconds}
    digests = set()
    for _ in range(given.turns):
        alone = finished([start(sizes, cores[0], {})])
        port = free_port()
        ranked = finished([start(sizes, cores[rank], rank_environment(rank, port)) for rank in range(2)])
        apart = finished([start(sizes, core, {}) for core in cores])
        digests |= {one["digest"] for one in (*alone, *ranked)}
        for name, told in zip(seconds, (alone, ranked, apart), strict=True):
            seconds[name].append(max(one["seconds"] for one in told))
            processor[name].append(max(one["processor"] for one in told))
    rows = [
        [name, f"{statistics.median(found):.3f}", f"{min(found):.3f}", f"{statistics.median(processor[name]):.3f}"]
        for name, found in seconds.items()
    ]
    print_table(["", "median s a round", "least", "processor s of the busiest process"], rows)
    one, two, apart_seconds = (statistics.median(found) for found in seconds.values())
    busy_one, busy_two, _ = (statistics.median(found) for found in processor.values())
    print(f"two ranks are {one / two:.2f} times as fast as one process (by the least times {best(seconds):.2f});")
    print(f"without any exchange, two processes here would be {2 * one / apart_seconds:.2f} times as fast;")
    print(f"by processor seconds two ranks are {busy_one / busy_two:.2f} times as fast")
    print(f"the same weights to the bit: {'yes' if len(digests) == 1 else 'NO'}")


def best(seconds: dict[str, list[float]]) -> float:
    """Return the ratio of the least times, which other work on the machine disturbs least."""
    return min(seconds["one process"]) / min(seconds["two ranks"])


if __name__ == "__main__":
    main()
