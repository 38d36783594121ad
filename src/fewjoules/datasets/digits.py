"""The embedded data set: 1,797 handwritten digits of 8 x 8 pixels with values 0 to 16.

The digits in the files were shuffled once, since neighbours in the source tend to come from the same writer. The first
1,437 are for training, the other 360 for tests.
"""

from importlib import resources

import numpy as np

from fewjoules.datasets import idx
from fewjoules.datasets.dataset import Dataset

TRAIN_SAMPLES = 1437
CLASSES = 10


def read() -> Dataset:
    """Read the digits; src/fewjoules/embedded/DIGITS-ATTRIBUTION.md names their authors and licence."""
    folder = resources.files("fewjoules.embedded")
    images = idx.read_bytes(folder / "digits-images-idx3-ubyte.gz", axes=3)[:, None]
    labels = idx.read_bytes(folder / "digits-labels-idx1-ubyte.gz", axes=1).astype(np.int64)
    return Dataset(
        name="digits",
        train_images=images[:TRAIN_SAMPLES],
        train_labels=labels[:TRAIN_SAMPLES],
        test_images=images[TRAIN_SAMPLES:],
        test_labels=labels[TRAIN_SAMPLES:],
        classes=CLASSES,
    )
