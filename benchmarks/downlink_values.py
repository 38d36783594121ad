"""What coarse values from the server cost and save: python benchmarks/downlink_values.py [--seeds 5]

Trains the embedded scenario to its target with several H, sparsities of the devices and of the server, and kinds of the
server's values. Prints the mean steps to the target, as multiples of those with float32 values, and the bits that a
device received in a round after the first, whose message is the whole model: as the ledger has them, and as a law
predicts that is fitted to what pilots would note in the trainings with other seeds.

The second table has the embedded scenario's recipe with a downlink at some times its price, planned with each kind of
values from the server at its usual size, and the joules that its trainings took, with those of the first message, the
whole model.
"""

import argparse
import itertools
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from report import describe_run, print_table

from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.physics.message_fit import MessageObservation, fit_message_size
from fewjoules.physics.message_size import least_entry_bits
from fewjoules.planner.schemes import unified
from fewjoules.provenance import KINDS as KINDS_OF_JOULES
from fewjoules.runs.message_sizes import mean_broadcast, observed_broadcast
from fewjoules.runs.task import options_for, prepare, varied
from fewjoules.runs.training import in_memory, train_task
from fewjoules.scenario import Scenario
from fewjoules.tuning.planning import FleetPlanning

SETTINGS = {(50, 1.0): (1.0, 4.0), (10, 4.0): (4.0, 16.0), (5, 20.0): (4.0, 16.0, 64.0), (1, 100.0): (16.0, 64.0)}
KINDS = ("float32", "int8", "ternary")
COARSE_FROM = 4.0  # the least sparsity of a server with ternary values
MOST_STEPS, EVALUATE_STEPS = 3000, 10
PRICES = (1.0, 5.0, 30.0, 300.0)


class Outcome(NamedTuple):
    """Steps to the target, mean bits of the messages of the ledger, and what a pilot would note of them."""

    steps: float
    bits: float
    noted: tuple[MessageObservation, ...]


def trained(steps: int, sparsity: float, server: float, kind: str, seed: int) -> Outcome:
    """Train once to the target."""
    scenario = Scenario.embedded()
    task = varied(prepare(scenario, torch.device("cpu")), seed=seed, channel="average")
    base = options_for(task, unified(scenario.problem()))
    options = replace(
        base,
        local_steps=steps,
        sparsity=np.full(base.clients, sparsity),
        values="int8",
        downlink_sparsity=server,
        downlink_values=kind,
        rounds=MOST_STEPS // steps,
        evaluate_every=max(1, EVALUATE_STEPS // steps),
    )
    loops: list[TrainingLoop] = []
    seen: list[MessageObservation] = []

    def opened(simulator: Simulator) -> TrainingLoop:
        loops.append(in_memory(simulator))
        return loops[0]

    def note(report: Report) -> None:
        if report.round % options.evaluation_rounds == 0:
            found = observed_broadcast(loops[0].simulator.state, options)
            seen.extend([] if found is None else [found])

    training = train_task(task, options, opened=opened, on_round=note)
    rows = training.loop.ledger.rows()
    bits = 8.0 * rows["downlink_bytes"][rows["round"] > 1].mean()
    return Outcome(steps * training.rounds, bits, mean_broadcast(seen))


def predicted_bits(parameters: int, kind: str, server: float, others: Iterable[Outcome]) -> float:
    """Return the bits of a message by the law of what other trainings noted; NaN where there is no law."""
    noted = [one for other in others for one in other.noted]
    if not noted:
        return float("nan")
    least = least_entry_bits(COARSE_FROM if kind == "ternary" else 1.0, batteries=False)
    return float(fit_message_size(parameters, noted, least=least).laws[kind].bits(parameters, server))


def joules_at(price: float, kind: str, seeds: range) -> list[str]:
    """Plan the recipe with one kind of values from a server at so many times its price; train it; return a row."""
    scenario = Scenario.embedded()
    assert scenario.recipe is not None
    dear = scenario.fleet.changed(downlink_joules_per_bit=price * scenario.fleet.downlink_joules_per_bit)
    scenario = replace(scenario, fleet=dear)
    problem = scenario.recipe_problem()
    planning = FleetPlanning(problem).at_downlink(kind)
    message = str(scenario.recipe.message["values"])
    options, _ = planning.messages()[message]
    plan = replace(planning.plan(problem.rounds, message), recipe=replace(scenario.recipe, message=options))
    joules, first, rounds = [], [], []
    for seed in seeds:
        task = varied(prepare(scenario, torch.device("cpu")), seed=seed)
        training = train_task(task, options_for(task, plan))
        rows = training.loop.ledger.rows()
        spent = sum(rows[f"{one}_joules"] for one in KINDS_OF_JOULES)
        joules.append(float(spent.sum()))
        first.append(float(rows["downlink_joules"][rows["round"] == 1].sum()))
        rounds.append(training.rounds)
    assert plan.downlink_sparsity is not None
    numbers = (plan.energy_joules, np.mean(joules), np.mean(first))
    cells = (f"{price:g}", kind, str(plan.local_steps), f"{plan.downlink_sparsity:.1f}", f"{np.mean(rounds):.1f}")
    return [*cells, *(f"{one:.2f}" for one in numbers)]


def main() -> None:
    """Train every cell and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)

    command = f"Values from the server: python benchmarks/downlink_values.py --seeds {seeds}"
    run = describe_run(command, 0, len(os.sched_getaffinity(0)), ("numpy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}\n{run['packages']}")
    parameters, rows = Scenario.embedded().parameters, []
    for steps, sparsity in SETTINGS:
        for server, kind in itertools.product(SETTINGS[steps, sparsity], KINDS):
            if kind == "ternary" and server < COARSE_FROM:
                continue
            found = [trained(steps, sparsity, server, kind, seed) for seed in range(seeds)]
            taken, bits = (np.array([getattr(one, name) for one in found]) for name in ("steps", "bits"))
            if kind == KINDS[0]:
                exact = taken
            off = [
                predicted_bits(parameters, kind, server, found[:at] + found[at + 1 :]) / bits[at] - 1.0
                for at in range(seeds)
            ]
            cell = (steps, sparsity, server, kind, round(taken.mean()), round(bits.mean()))
            rows.append(
                [
                    *map(str, cell),
                    f"{taken.mean() / exact.mean():.2f}",
                    "-" if np.isnan(off).any() else f"{100.0 * np.mean(off):+.1f} %",
                ]
            )
    header = ["H", "sparsity", "server", "values", "steps", "bits", "steps / float32", "bits predicted"]
    print_table(header, rows, 4)
    print()
    dear = [joules_at(price, kind, range(seeds)) for price, kind in itertools.product(PRICES, KINDS)]
    print_table(
        ["price", "values", "H", "server", "rounds", "joules planned", "joules", "of the first message"], dear, 4
    )


if __name__ == "__main__":
    main()
