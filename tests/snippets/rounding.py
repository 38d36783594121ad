"""Whether trainings are rounded here as on the machine that filled the pages.

Sums and functions of another processor, PyTorch or NumPy may differ in their last bits. A training then takes another
path, and ``fewjoules tune`` may choose another recipe. So outputs of trainings are compared only where the bits are the
same.
"""

import subprocess
import sys
from pathlib import Path

RECORD = Path(__file__).with_name("rounding.txt")
TRAINING = """
import hashlib
import numpy as np
import fewjoules as fj
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
clients = [(rng.standard_normal((64, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, 64)) for _ in range(6)]
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10))
usual = {"clients": clients, "test": clients[0], "local_steps": 5, "sparsity": 10.0}
found = [np.exp(rng.standard_normal(10_000)), np.log(rng.random(10_000))]
for more in (
    {"rounds": 8, "learning_rate": 0.1, "inner": "momentum"},
    {"rounds": 4, "learning_rate": 0.01, "inner": "adamw", "values": "int8"},
):
    found += [weight.detach().numpy() for weight in fj.train(model, **usual, **more).model.parameters()]
print(hashlib.sha256(b"".join(one.tobytes() for one in found)).hexdigest())
"""


def digest() -> str:
    """Train a small network twice, and return the SHA-256 of its weights and of some values of functions."""
    words = [sys.executable, "-W", "ignore", "-c", TRAINING]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def is_that_of_the_pages() -> bool:
    """Compare the bits of small trainings with the recorded ones."""
    return digest() == RECORD.read_text(encoding="utf-8").strip()


def record() -> None:
    """Keep the bits of this machine, whose outputs are now on the pages."""
    RECORD.write_text(digest() + "\n", encoding="utf-8")
