"""What it costs to leave costs out of a plan: python benchmarks/true_costs.py [--seeds 5]

Two fleets of 12 phones train the embedded task to its target: the embedded phones on Wi-Fi, and phones on LTE as the
profile has them. Each is planned (a) as the paper does, without tails, downlink and coding, (b) with tails, (c) with
tails and downlink, (d) with coding too. Every run is booked by the whole ledger, downlink and all, whatever its plan
left out: a plan that knows no downlink leaves the server's message as it is.
"""

import argparse
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from report import git_commit, print_table, processor

from fewjoules.engine.loop import TARGET
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.schemes import solve
from fewjoules.provenance import KINDS
from fewjoules.runs.task import ScenarioTask, options_for, prepare, varied
from fewjoules.runs.training import train_task
from fewjoules.scenario import Scenario

TAILS = ("tail_watts", "tail_seconds", "promotion_joules")
CODEC = tuple(f"codec_{unit}_per_{what}" for unit in ("joules", "seconds") for what in ("parameter", "entry"))
LEFT_OUT = {  # by each way of planning
    "(a) as the paper": ("tails", "downlink", "codec"),
    "(b) with tails": ("downlink", "codec"),
    "(c) with tails and downlink": ("codec",),
    "(d) with everything": (),
}


def lte_phones() -> Scenario:
    """Return the embedded scenario with 12 phones on LTE."""
    text = Scenario.embedded().text
    head = text[: text.index("[[device]]")].replace('channel = "drawn"', 'channel = "average"')
    head = re.sub(r"^#.*\n", "", head, flags=re.MULTILINE)
    device = '[[device]]\nname = "phone"\ncount = 12\nprofile = "lte-phone"\n'
    return Scenario.from_text(head + device, "12 LTE phones", Path())


def planned(problem: ControlProblem, left_out: tuple[str, ...]) -> Plan:
    """Return the plan that does not know some of the costs."""
    columns = {name: getattr(problem.fleet, name) for name in Fleet.__slots__}
    if "tails" in left_out:
        columns |= dict.fromkeys(TAILS, 0.0)
    if "codec" in left_out:
        columns |= dict.fromkeys(CODEC)
    downlink = "free" if "downlink" in left_out else problem.downlink
    return solve(replace(problem, fleet=Fleet(**columns), downlink=downlink))


def booked(task: ScenarioTask, plan: Plan) -> dict[str, float] | None:
    """Train a plan to the target; return its rounds and the joules of all devices by kind, None if it misses it."""
    training = train_task(task, options_for(task, plan))
    if training.reason != TARGET:
        return None
    rows = training.loop.ledger.rows()
    joules = {kind: float(rows[f"{kind}_joules"].sum()) for kind in KINDS}
    return joules | {"rounds": float(training.rounds), "joules": sum(joules.values())}


def main() -> None:
    """Plan, train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"python benchmarks/true_costs.py --seeds {given.seeds}\ncommit {git_commit()}, {processor()}")
    for scenario in (Scenario.embedded(), lte_phones()):
        report(scenario, given.seeds)


def report(scenario: Scenario, seeds: int) -> None:
    """Print one table for a fleet: predicted and booked joules of each way of planning."""
    problem = scenario.problem()
    tasks = [varied(prepare(scenario, torch.device("cpu")), seed=seed) for seed in range(seeds)]
    found = {}
    for name, left_out in LEFT_OUT.items():
        plan = planned(problem, left_out)
        found[name] = plan, [booked(task, plan) for task in tasks]
    met = {name: [run for run in runs if run is not None] for name, (_, runs) in found.items()}
    least = min(np.mean([run["joules"] for run in runs]) for runs in met.values() if runs)
    table = []
    for name, (plan, _) in found.items():
        runs = met[name]
        means = {key: np.mean([run[key] for run in runs]) for key in runs[0]} if runs else {}
        joules = [run["joules"] for run in runs]
        low, high = float(plan.sparsity.min()), float(plan.sparsity.max())
        server = "exact" if plan.downlink_sparsity is None else f"{plan.downlink_sparsity:.3g}"
        table.append(
            [
                name,
                str(plan.local_steps),
                f"{low:.3g} to {high:.3g}",
                server,
                f"{plan.energy_joules:.4g}",
                f"{len(runs)} of {seeds}",
                f"{means['rounds']:.1f}",
                f"{means['joules']:.4g}",
                f"{min(joules):.4g} to {max(joules):.4g}",
                *(f"{means[kind]:.3g}" for kind in KINDS),
                f"{means['joules'] / least:.2f}",
            ]
        )
    print(f"\n{scenario.name}")
    titles = ["planned", "H", "sparsity", "server", "predicted J", "met", "rounds", "booked J", "over seeds"]
    print_table([*titles, *KINDS, "x least"], table)


if __name__ == "__main__":
    main()
