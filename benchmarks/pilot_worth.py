"""What a pilot at another plan is worth after a race: python benchmarks/pilot_worth.py STUDY --steps STEPS

Takes the prior of tuning and one fact, the local steps to the target at the plan of the race, for a study of
recipe_studies.py, and prints the plans that are best under laws drawn from the belief, the pilot that is expected to
save most, and what the belief says of any further plan. Nothing is trained; messages have the sizes that are assumed
before the first pilot.
"""

import argparse
import sys

import numpy as np
from recipe_studies import STUDIES, scenario_of
from report import describe_run, print_table

from fewjoules.planner.plan import Plan
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.belief import Choice
from fewjoules.tuning.books import Budget
from fewjoules.tuning.design import joules_table, most_useful_pilot
from fewjoules.tuning.finals import RUN_DEVIATION
from fewjoules.tuning.learning import decisions_of
from fewjoules.tuning.pilot import PilotResult, PilotSpec
from fewjoules.tuning.planning import FleetPlanning
from fewjoules.tuning.reference import LEVEL_DEVIATION, LEVEL_PART
from fewjoules.tuning.search import Search
from fewjoules.tuning.tuner import Tuner

TRAININGS = 10  # that a recipe is for, the default of tuning


class NoLaboratory:
    """Trains nothing."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def start(self) -> tuple[float, float]:
        raise AssertionError("nothing is trained here")

    def run(self, specs: list[PilotSpec]) -> list[PilotResult]:
        raise AssertionError("nothing is trained here")


def search_after_race(study: str, steps: float) -> Search:
    """Return a search that knows the steps of the winner at the plan of the race."""
    problem = scenario_of(STUDIES[study]).problem()
    aim = Aim(STUDIES[study].metric, STUDIES[study].target)
    tuner = Tuner(NoLaboratory(len(problem.fleet)), FleetPlanning(problem), aim, 0.1, budget=Budget())
    search = tuner._begun()
    search.observe(search.race_plan, steps, RUN_DEVIATION)
    return search


def row_of(plan: Plan, steps: float, joules: float) -> list[str]:
    """Return a plan as the table has it."""
    return [str(plan.local_steps), f"{np.mean(plan.sparsity):.3g}", f"{steps:.0f}", f"{joules:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--steps", type=float, required=True, help="local steps to the target at the plan of the race")
    parser.add_argument("--further", type=float, nargs=2, metavar=("H", "SPARSITY"), help="a plan to predict, too")
    given = parser.parse_args()
    search = search_after_race(given.study, given.steps)
    run = describe_run("python benchmarks/pilot_worth.py " + " ".join(sys.argv[1:]), 0, 1, ("numpy",))
    print(f"{run['command']}\ncommit {run['git_commit']}")
    plan = search.race_plan
    print(f"race at H = {plan.local_steps}, sparsity {np.mean(plan.sparsity):.3g}, {search.message} values\n")
    plans, decisions = decisions_of(search)
    joules = search.belief.weights @ joules_table(search.belief, decisions)
    order = np.argsort(joules)
    rows = [row_of(plans[i], search.predicted_steps(plans[i]), joules[i]) for i in order]
    print_table(["H", "sparsity", "steps", "J expected"], rows, text_columns=0)
    worth = most_useful_pilot(search.belief, decisions, LEVEL_DEVIATION, search.rng)
    best = plans[worth.decision]
    price = LEVEL_PART * search.predicted_steps(best) / best.local_steps * decisions[worth.decision].round_joules
    print(
        f"\nmost useful pilot: H = {best.local_steps}, sparsity {np.mean(best.sparsity):.3g}; it costs {price:.1f} J "
        f"and is expected to save {TRAININGS * worth.saves_joules:.1f} J in {TRAININGS} trainings"
    )
    if given.further is not None:
        H, sparsity = int(given.further[0]), given.further[1]
        steps, deviation = search.belief.predicted_steps(Choice(H, (sparsity,)))
        low, high = steps * np.exp(-2.0 * deviation), steps * np.exp(2.0 * deviation)
        print(
            f"H = {H}, sparsity {sparsity:g}: {steps:.0f} steps expected, {low:.0f} to {high:.0f} within two deviations"
        )


if __name__ == "__main__":
    main()
