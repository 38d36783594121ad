"""Does top-k with memory reach the accuracy of the dense run, and what does the same run without memory reach?

    python benchmarks/dense_accuracy.py --data-dir DIR        LeNet5 on MNIST; --quick: the small CNN on embedded digits

Everything but the sparsity and the memory is the same: data, partition, initial weights, batches, step size.
"""

import argparse
import json
import time

import numpy as np
import torch
from report import git_commit, print_table, processor

from fewjoules.datasets.load import load
from fewjoules.datasets.partition import iid
from fewjoules.engine.algorithm.streams import stream, stream_key
from fewjoules.engine.models.networks import build
from fewjoules.runs.train import train

VARIANTS = {"dense": (1.0, True), "with memory": (100.0, True), "without memory": (100.0, False)}


def run(data, architecture: str, rounds: int, sparsity: float, feedback: bool, given) -> list[tuple[int, float]]:
    channels, height, width = data.shape
    seed = given.seed
    model = build(
        architecture, channels=channels, height=height, width=width, classes=10, seed=stream_key(seed, "weights")
    )
    parts = iid(data.train_labels, given.clients, stream(seed, "partition"))
    images = data.normalised(data.train_images)
    done = train(
        model,
        clients=[(images[part], data.train_labels[part]) for part in parts],
        test=(data.normalised(data.test_images), data.test_labels),
        local_steps=given.local_steps,
        sparsity=sparsity,
        rounds=rounds,
        learning_rate=given.learning_rate,
        error_feedback=feedback,
        evaluate_every=max(1, rounds // 10),
        seed=seed,
    )
    rows = done.metrics[~np.isnan(done.metrics["test_accuracy"])]
    return [(int(row["round"]), float(row["test_accuracy"])) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--quick", action="store_true", help="the small CNN on the embedded digits")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only these; default all")
    parser.add_argument("--json")
    given = parser.parse_args()
    data = load("digits" if given.quick else "mnist", given.data_dir)
    architecture, rounds = ("cnn", given.rounds or 200) if given.quick else ("lenet5", given.rounds or 1000)
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    print(f"{architecture} on {data.name}, {given.clients} clients, H = {given.local_steps}, batch 32, IID, step size")
    print(f"{given.learning_rate}, {rounds} rounds, seeds 0 to {given.seeds - 1}; {machine}; commit {git_commit()}")
    chosen = given.variant or list(VARIANTS)
    results: dict[str, list[list[tuple[int, float]]]] = {name: [] for name in chosen}
    began = time.perf_counter()
    for seed in range(given.seeds):
        given.seed = seed
        for name in chosen:
            sparsity, feedback = VARIANTS[name]
            results[name].append(run(data, architecture, rounds, sparsity, feedback, given))
    header = ["round", *(f"{name}, test %" for name in chosen)]
    rows = []
    for place, (number, _) in enumerate(results[chosen[0]][0]):
        cells = [np.array([100.0 * one[place][1] for one in results[name]]) for name in chosen]
        rows.append([str(number), *(f"{cell.mean():.2f} ({cell.min():.2f} to {cell.max():.2f})" for cell in cells)])
    print_table(header, rows)
    print(f"wall time {time.perf_counter() - began:.0f} s")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"commit": git_commit(), "machine": machine, "arguments": vars(given), "runs": results}, file)


if __name__ == "__main__":
    main()
