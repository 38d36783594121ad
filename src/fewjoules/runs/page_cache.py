"""Ask the system to read rows of a memory map from disk before they are needed. Nothing waits and nothing is copied."""

import mmap

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray


def ask_for_rows(array: NDArray[np.generic], rows: IntArray) -> None:
    """Ask for these rows of an array; do nothing for one that is in memory or whose rows are not in one piece."""
    file = file_of(array)
    if file is None or not array.flags.c_contiguous or not array.size or not hasattr(file, "madvise"):
        return
    first = array.ctypes.data - np.frombuffer(file, dtype=np.uint8).ctypes.data
    begins = first + rows * array.strides[0]
    pages = np.unique(begins // mmap.PAGESIZE) * mmap.PAGESIZE
    for begin in pages.tolist():
        file.madvise(mmap.MADV_WILLNEED, begin, min(array.strides[0] + mmap.PAGESIZE, len(file) - begin))


def file_of(array: object) -> mmap.mmap | None:
    """Return the map of the file that an array is a view of."""
    while isinstance(array, np.ndarray):
        array = array.base
    array = array.obj if isinstance(array, memoryview) else array
    return array if isinstance(array, mmap.mmap) else None
