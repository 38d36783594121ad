"""What tuning finds with more and less budget: python benchmarks/tuning_budgets.py STUDY ... --data-dir DATA

For each study of recipe_studies.py, tunings with budgets of several numbers of trainings: the recipe, and what its
pilots took as a multiple of the training that it plans. A pilot that several tunings ask for is trained once.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from recipe_studies import STUDIES
from recipes import Bench
from report import describe_run, print_table

TRAININGS = (4.0, 3.5, 3.0, 2.5, 2.0, 1.0, 0.875, 0.75)
TOLD = ("optimiser", "step size", "values", "H", "sparsity", "J planned", "pilots", "client-steps", "trainings")


class RememberingLaboratory:
    """A laboratory that trains no pilot twice."""

    def __init__(self, lab: Any) -> None:
        """Nothing is known yet."""
        self.lab = lab
        self.clients = lab.clients
        self.known: dict[str, Any] = {}

    def start(self) -> tuple[float, ...]:
        """Return what the first model is worth."""
        return self.lab.start()

    def run(self, specs: Sequence[Any]) -> list[Any]:
        """Train the pilots that are not known."""
        for spec in specs:
            if spec.key not in self.known:
                self.known[spec.key] = self.lab.train(spec)
        return [self.known[spec.key] for spec in specs]


def row(trainings: float, found: Any, clients: int) -> list[str]:
    """Return what a tuning found, and what it took."""
    plan, options = found.plan, found.optimiser_options | found.message_options
    values = "ternary" if options.get("compressor") == "ternary" else options.get("values", "float32")
    planned = plan.rounds * plan.local_steps * clients
    return [
        f"{trainings:g}",
        found.optimiser,
        f"{options['learning_rate']:g}",
        values,
        str(plan.local_steps),
        f"{plan.sparsity.min():.3g} to {plan.sparsity.max():.3g}",
        f"{plan.energy_joules:.4g}",
        str(len(found.pilots)),
        str(found.client_steps),
        f"{found.client_steps / planned:.2f}",
    ]


def main() -> None:
    """Tune with every budget, and print a table for each study."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("studies", nargs="+", choices=sorted(STUDIES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    about = describe_run(" ".join(["python", *sys.argv]), 1000, 1, ("torch", "numpy"))
    print(f"$ {about['command']}\n{about['machine']['processor']}, commit {about['git_commit']}", flush=True)
    for name in given.studies:
        bench = Bench(name, given.device, given.data_dir)
        lab, aim = bench.pilots()
        lab = RememberingLaboratory(lab)
        rows = [row(budget, bench.tuner(lab, aim, budget).tune(), lab.clients) for budget in TRAININGS]
        print(f"\n{name}")
        print_table(("budget", *TOLD), rows, text_columns=4)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
