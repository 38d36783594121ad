"""Writes small data sets in their official formats."""

import gzip
import io
import tarfile

import numpy as np

from fewjoules.datasets import cifar10


def idx_bytes(array, kind=0x08):
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, kind, array.ndim]) + lengths + array.tobytes()


def write_idx(path, array, kind=0x08):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = idx_bytes(array, kind)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder, *, suffix=".gz", train=12, test=5, seed=0):
    """Four IDX files of noise; the training labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, train).astype(np.uint8)
    write_idx(folder / f"train-images-idx3-ubyte{suffix}", rng.integers(0, 256, (train, 28, 28)).astype(np.uint8))
    write_idx(folder / f"train-labels-idx1-ubyte{suffix}", labels)
    write_idx(folder / f"t10k-images-idx3-ubyte{suffix}", rng.integers(0, 256, (test, 28, 28)).astype(np.uint8))
    write_idx(folder / f"t10k-labels-idx1-ubyte{suffix}", rng.integers(0, 10, test).astype(np.uint8))
    return labels


def write_writers(path, labels, writers):
    """QMNIST's table: column 0 is the digit, column 2 the writer; more rows than MNIST has."""
    table = np.zeros((len(labels) + 3, 8), dtype=">i4")
    table[: len(labels), 0], table[: len(labels), 2] = labels, writers
    write_idx(path, table, kind=0x0C)


def cifar10_files(records=2, seed=0):
    rng = np.random.default_rng(seed)
    names = (*cifar10.TRAIN_FILES, cifar10.TEST_FILE)
    files = {}
    for name in names:
        table = rng.integers(0, 256, (records, cifar10.RECORD_BYTES)).astype(np.uint8)
        table[:, 0] %= 10
        files[name] = table.tobytes()
    return files


def write_folder(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_archive(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {"batches.meta.txt": b"airplane\n", **files}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
