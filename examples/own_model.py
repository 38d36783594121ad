"""A model of one's own in a folder: watched by a callback, and resumed after Ctrl-C or a kill.

python examples/own_model.py RUN [--rounds N]    trains in the folder RUN, or goes on where it stopped
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fewjoules as fj


class Watch(fj.Callback):
    """Prints each evaluation, and ends the run where the model is sure enough of the first sample."""

    def __init__(self, sample):
        self.sample = sample

    def on_evaluation_end(self, run):
        with torch.no_grad():
            sure = float(run.model()(torch.from_numpy(self.sample)).softmax(1).max())
        accuracy, joules = run.metrics["test_accuracy"], run.totals.joules
        print(f"round {run.round}: accuracy {accuracy:.3f}, {joules:.4f} J, sure to {sure:.2f}")
        if sure > 0.999:
            run.stop()


def data():
    """Three clients and a test set that anyone can make again: a resumed run checks that they are the same."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((20, 4))
    inputs = [rng.standard_normal((count, 20), dtype=np.float32) for count in (200, 100, 150, 500)]
    *clients, test = [(part, (part @ truth).argmax(1)) for part in inputs]
    return clients, test


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    clients, test = data()
    fleet = fj.Fleet(joules_per_bit=[3e-7, 1e-6, 4e-8], joules_per_step=2e-4)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    again = {"clients": clients, "test": test, "fleet": fleet, "callbacks": [Watch(test[0][:1])]}
    if (Path(given.run) / "settings.json").exists():
        run = fj.resume(given.run, model=model, learning_rate=rate, **again)
    else:
        method = {"local_steps": 5, "sparsity": 10.0, "rounds": given.rounds, "evaluate_every": 10}
        run = fj.train(model, **again, **method, learning_rate=rate, out=given.run)
    print(f"{run.stop_reason} after {run.metrics.size} rounds, {run.energy_joules:.4f} J")
    print(run.to_pandas("ledger").groupby("device")["payload_bytes"].sum())


def rate(number):
    """Return the step size of a round."""
    return 0.3 / (1.0 + number / 50.0)


if __name__ == "__main__":
    main()
