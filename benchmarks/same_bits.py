"""The weights after short trainings as hashes, to be compared between processes and machines of one kind.

    python benchmarks/same_bits.py [--study mnist] [--precision tf32] [--uncompiled] [--repeat 2] [--data-dir DIR]

Run it twice, with compiler caches of their own (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR), and compare. Where hashes
differ, --repeat tells a race within one process from another choice of kernels, --uncompiled whose kernels they are,
and --steps how soon it happens.
"""

import argparse
import hashlib

import numpy as np
from report import git_commit

from fewjoules.engine.algorithm.options import PRECISIONS, TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.runs.device import choose_device, device_name
from fewjoules.runs.task import ScenarioTask, prepare
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.studies import LEVELS, STUDIES

KINDS = {
    "dense": (1, 1.0, {"compressor": "none"}),
    "top-k": (5, 100.0, {}),
    "qsgd": (1, 1.0, {"compressor": "qsgd", "levels": LEVELS, "error_feedback": False}),
    "momentum": (5, 1.0, {"compressor": "none", "momentum": 0.9}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=PRECISIONS, help="the study's own if left out")
    parser.add_argument("--uncompiled", action="store_true", help="without torch.compile")
    parser.add_argument("--repeat", type=int, default=1, help="hashes of each training in this process")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    study = STUDIES[given.study]
    task = prepare(embedded_scenario(study.scenario), choose_device(given.device), given.data_dir)
    precision = given.precision or (study.scale.gpu_precision if task.device.type == "cuda" else "float32")
    compiled = task.device.type == "cuda" and not given.uncompiled
    how = f"{precision}, {'' if compiled else 'not '}compiled, {given.steps} steps, seed 0"
    print(f"commit {git_commit()}, {device_name(task.device)}, {study.name}, {how}")
    for name, (steps, sparsity, changes) in KINDS.items():
        chosen = {"local_steps": steps, "sparsity": np.full(len(task.federation.parts), sparsity), "seed": 0}
        chosen |= {"rounds": max(1, given.steps // steps), "learning_rate": 0.05, "precision": precision}
        options = TrainingOptions.of(**task.training.options(task.scenario.files) | chosen | changes)
        hashes = [hash_of_weights(task, options, compiled) for _ in range(given.repeat)]
        print(f"  {name:8s}  {'  '.join(hashes)}", flush=True)


def hash_of_weights(task: ScenarioTask, options: TrainingOptions, compiled: bool) -> str:
    simulator = Simulator(task.model, task.federation, options, loss=cross_entropy, compiled=compiled)
    for _ in range(options.rounds):
        simulator.start_round()()
    weights = simulator.state.weights.cpu().numpy()
    simulator.close()
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    main()
