"""Load a data set by its name."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fewjoules.arrays import IntArray
from fewjoules.datasets import cifar10, digits, idx
from fewjoules.datasets.dataset import Dataset
from fewjoules.datasets.fetch import Progress, locate
from fewjoules.datasets.shapes import CLASSES, SHAPES
from fewjoules.datasets.sources import (
    CIFAR10_ARCHIVE,
    QMNIST_LABELS,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
)
from fewjoules.errors import InvalidInputError

DATASETS = tuple(SHAPES)

_QMNIST_COLUMNS, _DIGIT_COLUMN, _WRITER_COLUMN = 8, 0, 2


def load(name: str, data_dir: str | Path | None = None, progress: Progress | None = None) -> Dataset:
    """Load a data set by name, from ``data_dir`` or from the store, which downloads missing files."""
    if name not in DATASETS:
        raise InvalidInputError(f"a data set must be one of {', '.join(DATASETS)}, got {name!r}")
    if name == "digits":
        return digits.read()
    files = locate(name, data_dir, progress=progress)
    try:
        return _cifar10(files) if name == "cifar10" else _idx(name, files)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def _idx(name: str, files: Mapping[str, Path]) -> Dataset:
    labels = idx.read_bytes(files[TRAIN_LABELS], axes=1).astype(np.int64)
    return Dataset(
        name=name,
        train_images=idx.read_bytes(files[TRAIN_IMAGES], axes=3)[:, None],
        train_labels=labels,
        test_images=idx.read_bytes(files[TEST_IMAGES], axes=3)[:, None],
        test_labels=idx.read_bytes(files[TEST_LABELS], axes=1).astype(np.int64),
        classes=CLASSES,
        writers=_writers(files[QMNIST_LABELS], labels) if QMNIST_LABELS in files else None,
    )


def _writers(file: Path, labels: IntArray) -> IntArray:
    """Return the writer of each MNIST training sample: QMNIST lists them in MNIST's order."""
    table = idx.read_int32(file, axes=2)
    if len(table) < len(labels) or table.shape[1] != _QMNIST_COLUMNS:
        raise InvalidInputError(
            f"{file}: must have {_QMNIST_COLUMNS} columns and at least {len(labels)} rows, got shape {table.shape}"
        )
    rows = table[: len(labels)].astype(np.int64)
    differs = rows[:, _DIGIT_COLUMN] != labels
    if differs.any():
        row = int(np.argmax(differs))
        raise InvalidInputError(
            f"{file}: row {row} must be the digit {labels[row]} of MNIST, got {rows[row, _DIGIT_COLUMN]}"
        )
    return rows[:, _WRITER_COLUMN].copy()


def _cifar10(files: Mapping[str, Path]) -> Dataset:
    train_images, train_labels, test_images, test_labels = cifar10.read(files[CIFAR10_ARCHIVE])
    return Dataset(
        name="cifar10",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=cifar10.CLASSES,
    )
