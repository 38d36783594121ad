"""How wide a mean of recent models should be: python benchmarks/averaging.py mnist cifar10 --out averaging.jsonl

Trains some optimisers with each study's model and data (recipe_studies.py) and tells, from the same trainings, after
how many local steps the last model and means of recent models of several widths reach the target on the test set. The
step sizes are usual ones for the last model. A tenth of the training data is kept aside. One line of the file a run.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from recipe_studies import STUDIES
from recipes import Bench
from report import describe_run, print_table

PARTS = (0.05, 0.1, 0.25, 0.5)  # of the rounds
_NESTEROV = {"outer": "nesterov", "outer_momentum": 0.9, "learning_rate": 0.05, "warmup_rounds": 20, "values": "int8"}
_ADAM = {"inner": "adamw", "residual_decay": 0.95, "warmup_rounds": 20, "values": "int8"}
MNIST: dict[str, tuple[dict[str, Any], int, float, int]] = {  # options, H, sparsity, rounds
    "Nesterov, 1 x 8": (_NESTEROV, 1, 8.0, 400),
    "Adam, 1 x 8": (_ADAM | {"learning_rate": 0.008}, 1, 8.0, 400),
    "SGD, 1 x 33": ({"learning_rate": 0.2}, 1, 33.0, 700),
    "Adam, 4 x 200, ternary": (
        {"inner": "adamw", "residual_decay": 0.95, "warmup_rounds": 5, "compressor": "ternary", "learning_rate": 0.008},
        *(4, 200.0, 150),
    ),
}
CIFAR10: dict[str, tuple[dict[str, Any], int, float, int]] = {
    "Nesterov, 1 x 8": (_NESTEROV, 1, 8.0, 1200),
    "Adam, 1 x 8": (_ADAM | {"learning_rate": 0.004}, 1, 8.0, 1200),
    "SGD, 1 x 33": ({"learning_rate": 0.4}, 1, 33.0, 2000),
    "SGD, 4 x 250, ternary": ({"learning_rate": 0.4, "compressor": "ternary"}, 4, 250.0, 500),
}
EVERY = {"cifar10": 25}  # local steps between evaluations, 10 elsewhere


def steps_to_target(bench: Bench, study: str, entry: str, seed: int) -> dict[str, int | None]:
    """Return the local steps to the target of the last model and of each mean; None where it was missed."""
    import torch

    from fewjoules.engine.algorithm.options import TrainingOptions
    from fewjoules.runs.holdout import hold_out
    from fewjoules.runs.pilots import HELD_ASIDE
    from fewjoules.runs.task import varied
    from fewjoules.runs.training import in_memory, train_task

    chosen, H, sparsity, rounds = (CIFAR10 if study == "cifar10" else MNIST)[entry]
    whole = varied(bench.task, seed=seed)
    task = hold_out(whole, HELD_ASIDE, seed)
    options = TrainingOptions.of(
        **{
            "inner": "sgd",
            "batch_size": bench.task.training.batch_size,
            "downlink": "free",
            "precision": bench.precision,
        }
        | chosen,
        local_steps=H,
        sparsity=np.full(len(bench.scenario.fleet), sparsity),
        rounds=rounds,
        seed=seed,
        evaluate_every=max(1, EVERY.get(study, 10) // H),
    )
    seen: dict[str, Any] = {}
    means: dict[float, tuple[torch.Tensor, torch.Tensor]] = {}
    found: dict[str, int | None] = dict.fromkeys(["last", *map(str, PARTS)])

    def opened(simulator: Any) -> Any:
        seen["simulator"] = simulator
        seen["test"] = simulator.evaluator(task.model, task.loss, whole.test)
        return in_memory(simulator)

    def note(report: Any) -> None:
        state = seen["simulator"].state
        last = (state.weights, state.buffers)
        for part in PARTS:
            share = 1.0 / (1.0 + part * (state.round - 1))
            before = means.get(part, last)
            means[part] = (torch.lerp(before[0], last[0], share), torch.lerp(before[1], last[1], share))
        if state.round % options.evaluation_rounds == 0:
            for name, model in {"last": last, **{str(part): mean for part, mean in means.items()}}.items():
                if found[name] is None and seen["test"](*model)[1] >= bench.study.target:
                    found[name] = state.round * H

    def done() -> bool:
        return None not in found.values()

    train_task(task, options, opened=opened, on_round=note, should_stop=done, graphs=bench.graphs, keep_diverged=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=("mnist", "mnist-dirichlet", "writers", "cifar10"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    rows = []
    for study in given.studies:
        bench = Bench(study, given.device, given.data_dir)
        for entry in CIFAR10 if study == "cifar10" else MNIST:
            for seed in range(given.seeds):
                found = steps_to_target(bench, study, entry, seed)
                with given.out.open("a") as out:
                    out.write(json.dumps({"study": study, "entry": entry, "seed": seed, "steps": found}) + "\n")
                rows.append([study, entry, str(seed), *("-" if one is None else str(one) for one in found.values())])
    run = describe_run("python benchmarks/averaging.py " + " ".join(sys.argv[1:]), 0, 1, ("numpy", "torch"))
    print(f"{run['command']}\ncommit {run['git_commit']}, {run['started']}\n{run['machine']}")
    targets = ", ".join(f"{study}: {STUDIES[study].target:.1%}" for study in given.studies)
    print(f"local steps to the target on the test set ({targets}) by the part of the rounds that is averaged")
    print_table(["study", "optimiser, H x sparsity", "seed", "last", *map(str, PARTS)], rows, text_columns=2)


if __name__ == "__main__":
    main()
