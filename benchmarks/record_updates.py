"""Record real sparse updates for benchmarks/codec.py: LeNet5 on MNIST, four clients, top-k with error feedback.

    python benchmarks/record_updates.py --data-dir DIRECTORY [--out FILE.npz] [--seed 0]

The directory, or one below it, holds the four gzipped IDX files of MNIST. For each sparsity a model is trained anew;
the update of one client is kept in some of the rounds. Entry i of the file: ``deltas[i]``, ``rounds[i]``,
``positions_i`` and ``values_i`` of a vector of ``size`` entries.
"""

import argparse
import gzip
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fewjoules.codec import SparseUpdate, mean_of_updates
from fewjoules.codec.select import top_k_with_feedback

DEFAULT_OUT = Path(tempfile.gettempdir()) / "fewjoules-updates.npz"
CLIENTS = 4
RECORDED_CLIENT = 0
LOCAL_STEPS = 5
BATCH = 32
LEARNING_RATE = 0.1
IDX_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True, slots=True)
class Images:
    pixels: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, slots=True)
class Recorded:
    delta: float
    round_number: int
    update: SparseUpdate


# --- data ---------------------------------------------------------------------------------------------------------


def read_idx(path: Path) -> NDArray[np.uint8]:
    data = gzip.decompress(path.read_bytes())
    if data[:2] != b"\0\0" or data[2] != IDX_UNSIGNED_BYTES:
        raise SystemExit(f"{path.name} is not an IDX file of bytes")
    axes = data[3]
    shape = np.frombuffer(data, dtype=">u4", count=axes, offset=4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape.tolist())


def find(directory: Path, name: str) -> Path:
    found = sorted(directory.rglob(name))
    if not found:
        raise SystemExit(f"--data-dir must hold {name}, which is not in {directory} nor below it")
    return found[0]


def load_images(directory: Path, prefix: str) -> Images:
    pixels = read_idx(find(directory, f"{prefix}-images-idx3-ubyte.gz"))
    labels = read_idx(find(directory, f"{prefix}-labels-idx1-ubyte.gz"))
    return Images(torch.tensor(pixels[:, None] / np.float32(255.0)), torch.tensor(labels, dtype=torch.int64))


# --- training -----------------------------------------------------------------------------------------------------


def lenet5() -> nn.Sequential:
    """The Caffe variant, of 431,080 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def flat(model: nn.Module) -> NDArray[np.float32]:
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def assign(model: nn.Module, weights: NDArray[np.float32]) -> None:
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())


def local_update(
    model: nn.Module, weights: NDArray[np.float32], images: Images, share: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """What a few steps of SGD on the client's share of the images change."""
    assign(model, weights)
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for _ in range(LOCAL_STEPS):
        batch = rng.choice(share, BATCH, replace=False)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images.pixels[batch]), images.labels[batch]).backward()
        optimiser.step()
    return flat(model) - weights


def train(images: Images, delta: float, rounds: Sequence[int], seed: int) -> tuple[nn.Module, list[Recorded]]:
    """The model after the last of the rounds, and the updates that one client sent in these rounds."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = lenet5()
    weights = flat(model).copy()
    shares = np.array_split(rng.permutation(len(images.labels)), CLIENTS)
    residuals = [np.zeros_like(weights) for _ in shares]
    k = round(weights.size / delta)
    recorded = []
    for number in range(1, max(rounds) + 1):
        sent = []
        for share, residual in zip(shares, residuals, strict=True):
            update = local_update(model, weights, images, share, rng)
            sent.append(top_k_with_feedback(update, residual, k, out=residual)[0])
        weights += mean_of_updates(sent)
        if number in rounds:
            recorded.append(Recorded(delta, number, sent[RECORDED_CLIENT]))
    assign(model, weights)
    return model, recorded


def accuracy(model: nn.Module, images: Images) -> float:
    with torch.no_grad():
        guesses = torch.cat([model(part).argmax(1) for part in images.pixels.split(1000)])
    return float((guesses == images.labels).float().mean())


def record(train_set: Images, test_set: Images, delta: float, rounds: Sequence[int], seed: int) -> list[Recorded]:
    start = time.perf_counter()
    model, recorded = train(train_set, delta, rounds, seed)
    print(
        f"delta {delta:g}: {max(rounds)} rounds of {recorded[-1].update.count:,} entries a client in "
        f"{time.perf_counter() - start:.1f} s, test accuracy {100 * accuracy(model, test_set):.1f} %"
    )
    return recorded


# --- the run ------------------------------------------------------------------------------------------------------


def save(recorded: Sequence[Recorded], seed: int, out: Path) -> None:
    arrays = {
        "size": np.array(recorded[0].update.size),
        "seed": np.array(seed),
        "deltas": np.array([r.delta for r in recorded]),
        "rounds": np.array([r.round_number for r in recorded]),
    }
    for i, r in enumerate(recorded):
        arrays |= {f"positions_{i}": r.update.positions, f"values_{i}": r.update.values}
    with out.open("wb") as file:
        np.savez_compressed(file, **arrays)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train LeNet5 a little and store sparse updates of one client.")
    parser.add_argument("--data-dir", type=Path, required=True, help="where the gzipped IDX files of MNIST are")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="the file to write (in the temporary directory)")
    parser.add_argument("--deltas", type=float, nargs="+", default=[4.5, 20.0, 100.0, 1000.0], help="sparsities d / k")
    parser.add_argument("--rounds", type=int, nargs="+", default=[2, 10, 30], help="rounds whose update is kept")
    parser.add_argument("--seed", type=int, default=0, help="of the model, the shares and the batches (0)")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)  # batches this small gain nothing from a second, which waits busily on a shared machine
    start = time.perf_counter()
    train_set, test_set = (load_images(options.data_dir, prefix) for prefix in ("train", "t10k"))
    recorded = [
        entry for delta in options.deltas for entry in record(train_set, test_set, delta, options.rounds, options.seed)
    ]
    save(recorded, options.seed, options.out)
    print(f"{len(recorded)} updates in {options.out}, after {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
