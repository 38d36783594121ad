"""Values as whole multiples of a step of their block, from -127 to 127."""

import numpy as np

from fewjoules.arrays import FloatArray, Floats
from fewjoules.codec.values.kind import Bytes
from fewjoules.codec.values.scales import over_values, read_scales
from fewjoules.errors import CorruptPayloadError

MAX_LEVELS = 127
ZERO_SYMBOL = 128


def to_symbols(levels: FloatArray) -> Bytes:
    """Map whole numbers from -127 to 127 to bytes in the same order, so that a table of frequencies has no gaps."""
    return (levels + ZERO_SYMBOL).astype(np.uint8)


def from_symbols(symbols: Bytes, side: memoryview, steps: int) -> Floats:
    """Return scale * level / ``steps``, with one scale per block in ``side``."""
    scales, signed = read_scales(side), symbols.astype(np.int16) - ZERO_SYMBOL
    if not 1 <= steps <= MAX_LEVELS:
        raise CorruptPayloadError(f"the number of levels must be from 1 to {MAX_LEVELS}, got {steps}")
    largest = int(np.abs(signed).max(initial=0))
    if largest > steps:
        raise CorruptPayloadError(f"the levels of the values must lie within {steps} of 0, got {largest}")
    with np.errstate(over="ignore"):
        return (over_values(scales.astype(np.float64), signed.size) * signed / steps).astype(np.float32)
