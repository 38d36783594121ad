"""A million clients beside a thousand: what a round of 1,000 takes, and what is kept in memory and on disk.

    python benchmarks/population.py [--clients 1000000] [--cohort 1000] [--turns 15] [--pfl-python PATH] [--alone]

Runs of 1,000 among 1,000 and among a million take turns in one process on one thread, with error feedback, ledger and
messages, as ``fewjoules.train`` runs them; a third of a million spills what clients keep beyond a twentieth of a
gibibyte to disk. Beside them: pfl-research's way written plainly, and pfl itself where an interpreter has it. Figures
are medians of processor seconds of a round, since wall clocks tell of other users of the machine.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from report import describe_run, print_table
from rivals.crowd import BATCH, LEARNING_RATE, LOCAL_STEPS, SAMPLES, first_sample, new_model, pool
from rivals.one_by_one import new_rounds

from fewjoules.engine.algorithm.options import MAX_ROUNDS, TrainingOptions
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import ClientSlices, Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.client_store import ClientStore, StorePlace
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet

SPARSITY, SMALL_STORE, LIMIT = 20.0, 2**30 // 20, 1.10


def simulator(clients: int, cohort: int, samples: Samples, place: StorePlace) -> Simulator:
    options = TrainingOptions.of(
        local_steps=LOCAL_STEPS,
        sparsity=np.full(clients, SPARSITY),
        rounds=MAX_ROUNDS,
        learning_rate=LEARNING_RATE,
        batch_size=BATCH,
        participation=cohort / clients,
    )
    slices = ClientSlices(np.asarray(first_sample(np.arange(clients))), np.full(clients, SAMPLES))
    fleet = Fleet(joules_per_bit=np.full(clients, 1e-7), joules_per_step=1e-3)
    federation = Federation(samples, slices)
    return Simulator(new_model(), federation, options, loss=cross_entropy, fleet=fleet, threads=1, place=place)


def rounds_of(one: Simulator) -> Callable[[int], None]:
    """Rounds in the loop of ``fewjoules.train``; at the end of each turn its ledger rows are there."""

    def run(rounds: int) -> None:
        last = one.state.round + rounds
        ledger = RowLog(None, LEDGER)
        TrainingLoop(one, ledger, RowLog(None, METRICS), should_stop=lambda: one.state.round >= last).run()
        if ledger.rows().size != rounds * round(one.options.participation * one.options.clients):
            raise RuntimeError("the ledger must have one row for each participant")

    return run


def processor_seconds(run: Callable[[int], None], rounds: int) -> float:
    began = time.process_time()
    run(rounds)
    return (time.process_time() - began) / rounds


def memory_in_use() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def contestants(clients: int, cohort: int) -> Iterator[tuple[dict[str, Callable[[int], None]], dict[str, Simulator]]]:
    samples = Samples(*pool())
    ours = {
        f"{cohort:,} of {cohort:,}": simulator(cohort, cohort, samples, StorePlace()),
        f"{cohort:,} of {clients:,}": simulator(clients, cohort, samples, StorePlace()),
        f"{cohort:,} of {clients:,}, on disk": simulator(clients, cohort, samples, StorePlace(SMALL_STORE)),
    }
    try:
        runs = {name: rounds_of(one) for name, one in ours.items()}
        yield runs | {"one by one, no state": new_rounds(clients, cohort)}, ours
    finally:
        for one in ours.values():
            one.close()


def of_pfl(python: str, clients: int, cohort: int, rounds: int) -> dict[str, float]:
    script = Path(__file__).parent / "rivals" / "crowd_pfl.py"
    command = [python, str(script), str(clients), str(cohort), str(rounds)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--cohort", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=15, help="of two rounds for each contestant")
    parser.add_argument("--pfl-python", help="an interpreter with pfl and torch")
    parser.add_argument("--alone", action="store_true", help="only the two runs whose ratio is judged")
    given = parser.parse_args()
    torch.set_num_threads(1)
    told = describe_run(f"python benchmarks/population.py {' '.join(sys.argv[1:])}", 0, 1, ("numpy", "torch"))
    machine = told["machine"]
    print(told["command"])
    print(f"commit {told['git_commit']}, {told['started']}")
    print(f"{machine['processor']}, 1 of {machine['cpu_count']} cores, load average {machine['load_average']:.1f}")
    print(", ".join(f"{name} {version}" for name, version in told["packages"].items()))
    with contestants(given.clients, given.cohort) as (everyone, ours):
        runs = dict(list(everyone.items())[: 2 if given.alone else None])
        for run in runs.values():
            run(2)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        before = memory_in_use()
        for _ in range(given.turns):
            for name, run in runs.items():
                seconds[name].append(processor_seconds(run, 2))
        grown = memory_in_use() - before
        report(seconds, ours, grown, given)


def report(seconds: dict[str, list[float]], ours: dict[str, Simulator], grown: int, given: argparse.Namespace) -> None:
    medians = {name: statistics.median(own) for name, own in seconds.items()}
    if given.pfl_python:
        found = of_pfl(given.pfl_python, given.clients, given.cohort, max(3, given.turns // 3))
        medians["pfl, no state, no compression"] = found["seconds"]
    first, second = list(medians.values())[:2]
    rows = []
    for name, own in medians.items():
        one = ours.get(name)
        seen, resident = ("", "") if one is None else (f"{len(one.store):,}", _megabytes(one.store))
        rows.append([name, f"{own * 1e3:.0f} ms", f"{own / first:.2f}", seen, resident])
    print_table(["clients a round", "a round", "over the first", "clients seen", "kept in memory"], rows)
    paired = [b / a for a, b in zip(*list(seconds.values())[:2], strict=True)]
    ratio = statistics.median(paired)
    print(f"memory of this process grew by {grown / 1e6:.0f} MB while all took their turns")
    verdict = "pass" if ratio <= LIMIT else "MISS"
    print(
        f"{verdict}: {given.cohort:,} of {given.clients:,} take {ratio:.3f} times the seconds of {given.cohort:,} of "
        f"{given.cohort:,} (median of {len(paired)} turns; of the medians {second / first:.3f}), at most {LIMIT}"
    )


def _megabytes(store: ClientStore) -> str:
    return f"{store.resident * store.row_bytes / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
