"""A data set in memory: images, labels and, where known, the writer of every training sample."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_integer

Images = NDArray[np.uint8]

MAX_CLASSES = 1_000_000
_BLOCK = 1024  # images whose sums are taken at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) in uint8; labels (n,) below ``classes`` and writers (n_train,) in int64."""

    name: str
    train_images: Images
    train_labels: IntArray
    test_images: Images
    test_labels: IntArray
    classes: int
    writers: IntArray | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together; the error names the first bad sample."""
        require_integer("classes", self.classes, low=1, high=MAX_CLASSES)
        _require_samples("train", self.train_images, self.train_labels, self.classes)
        _require_samples("test", self.test_images, self.test_labels, self.classes)
        if self.test_images.shape[1:] != self.shape:
            raise InvalidInputError(
                f"test_images must be of the shape {self.shape} of train_images, got {self.test_images.shape[1:]}"
            )
        if self.writers is not None:
            _require_integers("writers", self.writers, len(self.train_images))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @cached_property
    def sha256(self) -> str:
        """Hex digest over shape, type and bytes of every array: equal data sets have equal digests."""
        digest = hashlib.sha256()
        for key in ("train_images", "train_labels", "test_images", "test_labels", "writers"):
            array = getattr(self, key)
            if array is not None:
                digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
                digest.update(np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()

    def normalised(self, images: Images) -> NDArray[np.float32]:
        """Shift and scale each channel of the images so that the training images have mean 0 and deviation 1."""
        if images.ndim != 4 or images.shape[1] != self.shape[0]:
            raise InvalidInputError(f"images must be (n, {self.shape[0]}, height, width), got shape {images.shape}")
        mean, deviation = self._statistics
        scaled = images.astype(np.float32, order="C")
        scaled -= mean.astype(np.float32)[:, None, None]
        scaled /= deviation.astype(np.float32)[:, None, None]
        return scaled

    @cached_property
    def _statistics(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of each channel of the training images; a constant channel has deviation 1."""
        totals, squares = np.zeros((2, self.shape[0]), dtype=np.int64)
        for start in range(0, len(self.train_images), _BLOCK):
            block = self.train_images[start : start + _BLOCK].astype(np.int64)
            totals += block.sum(axis=(0, 2, 3))
            squares += (block * block).sum(axis=(0, 2, 3))
        count = self.train_images.size // self.shape[0]
        # integers of any length: the difference of large products is exact
        variances = [(count * s - t * t) / count**2 for t, s in zip(totals.tolist(), squares.tolist(), strict=True)]
        deviations = np.sqrt(variances)
        return totals / count, np.where(deviations > 0.0, deviations, 1.0)


def _require_samples(part: str, images: Images, labels: IntArray, classes: int) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4 or images.size == 0:
        raise InvalidInputError(
            f"{part}_images must be uint8 (n, channels, height, width), none of them 0, got {_described(images)}"
        )
    _require_integers(f"{part}_labels", labels, len(images))
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        sample = int(np.argmax(bad))
        raise InvalidInputError(f"{part}_labels[{sample}] must be from 0 to {classes - 1}, got {int(labels[sample])}")


def _require_integers(name: str, values: IntArray, length: int) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (length,):
        raise InvalidInputError(f"{name} must be int64 of shape ({length},), got {_described(values)}")


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__
