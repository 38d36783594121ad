"""The weights after short trainings as hashes: equal in every process and on every machine of one kind.

    python benchmarks/same_bits.py [--study mnist] [--data-dir DIR] [--device auto]

Run it twice, with compiler caches of their own (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR), and compare.
"""

import argparse
import hashlib

import numpy as np
from report import git_commit

from fedjoule.engine.experiment import device_name, prepare
from fedjoule.engine.options import TrainingOptions
from fedjoule.engine.simulate import Simulator
from fedjoule.engine.stack import cross_entropy
from fedjoule.engine.train import choose_device
from fedjoule.reproduce.embedded import embedded_scenario
from fedjoule.reproduce.studies import LEVELS, STUDIES

STEPS = 100
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
    given = parser.parse_args()
    study = STUDIES[given.study]
    task = prepare(embedded_scenario(study.scenario), choose_device(given.device), given.data_dir)
    precision = study.scale.gpu_precision if task.device.type == "cuda" else "float32"
    print(f"commit {git_commit()}, {device_name(task.device)}, {study.name}, {precision}, {STEPS} steps, seed 0")
    for name, (steps, sparsity, changes) in KINDS.items():
        chosen = {"local_steps": steps, "sparsity": np.full(len(task.federation.parts), sparsity), "seed": 0}
        chosen |= {"rounds": STEPS // steps, "learning_rate": 0.05, "precision": precision}
        options = TrainingOptions(**task.training.options(task.scenario.folder) | chosen | changes)
        simulator = Simulator(task.model, task.federation, options, loss=cross_entropy)
        for _ in range(options.rounds):
            simulator.start_round()()
        weights = simulator.state.weights.cpu().numpy()
        simulator.close()
        print(f"  {name:8s}  {hashlib.sha256(weights.tobytes()).hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
