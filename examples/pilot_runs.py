"""Pilot runs for ``fewjoules calibrate rounds``: how many rounds a scenario's task takes at each sparsity and H.

    python examples/pilot_runs.py SCENARIO.toml pilot-runs.csv
    fewjoules calibrate rounds pilot-runs.csv

Every device has the same sparsity in a pilot run, and each run is made with three seeds. Runs that do not reach the
target are left out, and said so. For a cheaper grid lower training.target_accuracy first: the shape of the law matters,
and tau scales with the target.
"""

import argparse
import dataclasses
import itertools
import sys

import numpy as np

from fewjoules.engine.loop import TARGET
from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.planner.schemes import unified
from fewjoules.runs.device import choose_device
from fewjoules.runs.task import options_for, prepare, varied
from fewjoules.runs.training import train_task
from fewjoules.scenario import Scenario

SPARSITIES = (1.0, 5.0, 20.0, 100.0, 400.0)
LOCAL_STEPS = (1, 2, 5, 10, 20, 50, 100)
SEEDS = (0, 1, 2)
MOST_STEPS = 6000
EVALUATE_STEPS = 10  # resolution of the count


def rounds_to_target(task, options) -> int | None:
    training = train_task(task, options)
    smooth = not training.simulator.state.returns  # with half the step size, rounds no longer follow one law
    return training.rounds if training.reason == TARGET and smooth else None


def main(scenario: str, target: str) -> None:
    chosen = Scenario.from_toml(scenario)
    task = prepare(chosen, choose_device("auto"))
    if task.training.target_accuracy is None:
        raise InvalidInputError(f"{scenario}: training.target_accuracy is missing")
    tasks = [varied(task, seed=seed, downlink="free", channel="average") for seed in SEEDS]
    plan = unified(chosen.problem())
    with open(target, "w", encoding="utf-8") as file:
        print("sparsity,local_steps,rounds", file=file, flush=True)
        for steps, sparsity, one in itertools.product(LOCAL_STEPS, SPARSITIES, tasks):
            base = options_for(one, plan)
            options = dataclasses.replace(
                base,
                local_steps=steps,
                sparsity=np.full(base.clients, sparsity),
                downlink_sparsity=1.0,
                rounds=MOST_STEPS // steps,
                evaluate_every=max(1, EVALUATE_STEPS // steps),
            )
            rounds = rounds_to_target(one, options)
            if rounds is not None:
                print(f"{sparsity:g},{steps},{rounds}", file=file, flush=True)
            found = rounds or "target not reached"
            print(f"sparsity {sparsity:g}, H {steps}, seed {base.seed}: {found}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", metavar="SCENARIO.toml", help="with a [training] table and a target_accuracy")
    parser.add_argument("target", metavar="pilot-runs.csv", help="written, one row per pilot run that met the target")
    given = parser.parse_args()
    try:
        main(given.scenario, given.target)
    except (FewJoulesError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
