"""What devices that were away receive, beside what plans count: python benchmarks/catch_up.py

Trains the embedded scenario with 24 clients for as many rounds as it takes about to its target, with a part of them in
each round and several sparsities of the server, and reads from the ledger what each device received since it last took
part. Plans count d / (1 + n/N (delta - 1)) entries (planner/catch_up.py), as if the server chose its entries anew at
random in every round, and the bits of formula (25) for them. The first message to a device is the whole model; it is
left out here, as in plans, and the last column tells how many times the joules of all others it takes.
"""

import argparse
import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from participation import CLIENTS, more_clients
from report import describe_run, print_table

SETTINGS = {(1, 1.0): 400, (5, 20.0): 150, (20, 100.0): 60}  # rounds by local steps and the devices' sparsity
SERVERS, PARTICIPANTS = (5.0, 20.0, 100.0, 400.0), (24, 12, 6, 3)


class Received(NamedTuple):
    """Mean entries and bits of a message to a device that has a model, bits of all first messages and of the others."""

    entries: float
    bits: float
    first_bits: float
    later_bits: float


def received(steps: int, sparsity: float, server: float, participants: int, seed: int) -> tuple[Received, int]:
    """Train once and return what the ledger says, and the number of parameters."""
    import torch

    from fewjoules.planner.schemes import unified
    from fewjoules.runs.task import options_for, prepare, varied
    from fewjoules.runs.training import train_task
    from fewjoules.scenario import Scenario

    torch.set_num_threads(1)
    scenario = more_clients(Scenario.embedded())
    changes = {"seed": seed, "channel": "average", "participation": participants / CLIENTS}
    task = varied(prepare(scenario, torch.device("cpu")), **changes)
    # with a joule for each entry that is coded, the ledger tells how many were received
    fleet = task.fleet.changed(codec_joules_per_entry=1.0, codec_joules_per_parameter=0.0)
    task = replace(task, fleet=fleet)
    options = replace(
        options_for(task, unified(scenario.problem())),
        local_steps=steps,
        sparsity=np.full(CLIENTS, sparsity),
        rounds=SETTINGS[steps, sparsity],
        downlink_sparsity=server,
        target_accuracy=None,
        evaluate_every=10_000,
    )
    return _summary(train_task(task, options).loop.ledger.rows()), scenario.parameters


def _summary(ledger: Any) -> Received:
    _, first = np.unique(ledger["device"], return_index=True)
    later = np.ones(ledger.size, dtype=bool)
    later[first] = False
    entries, bits = ledger["codec_joules"] - ledger["entries"], 8.0 * ledger["downlink_bytes"]
    return Received(entries[later].mean(), bits[later].mean(), bits[~later].sum(), bits[later].sum())


def main() -> None:
    """Train every cell and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    from fewjoules.physics.message_size import MessageSize
    from fewjoules.planner.catch_up import received_sparsity

    command = f"What devices that were away receive: python benchmarks/catch_up.py --seed {seed}"
    run = describe_run(command, seed, len(os.sched_getaffinity(0)), ("numpy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}\n{run['packages']}")
    law, rows = MessageSize.formula_25(32), []
    for steps, sparsity in SETTINGS:
        for server in SERVERS:
            for participants in PARTICIPANTS:
                found, parameters = received(steps, sparsity, server, participants, seed)
                mean = float(received_sparsity(server, participants / CLIENTS))
                planned, before = (float(law.bits(parameters, delta)) for delta in (mean, server))
                shares = found.entries * mean / parameters, found.bits / planned, found.bits / before
                cell = (steps, sparsity, server, participants, SETTINGS[steps, sparsity], round(found.entries))
                ratios = (*shares, found.first_bits / found.later_bits)
                rows.append([*(f"{value:g}" for value in cell), *(f"{value:.2f}" for value in ratios)])
    header = ["H", "sparsity", "server", "n of 24", "rounds", "entries", "/ planned", "bits / planned"]
    print_table([*header, "bits / last change", "first / later"], rows, 0)


if __name__ == "__main__":
    main()
