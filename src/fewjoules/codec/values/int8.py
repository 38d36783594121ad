"""Values rounded to 255 even steps of their block."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.codec.values.levels import MAX_LEVELS, from_symbols, to_symbols
from fewjoules.codec.values.scales import BLOCK, block_count, over_values, require_finite


class Int8:
    """round(127 v / scale) is modelled; the scale, the largest magnitude of a block, is side information."""

    name = "int8"
    code = 3
    wire_version = 1
    plain_bytes = 0
    lossy = True
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """One float32 per block."""
        return 4 * block_count(count)

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Round to the nearest step, ties to even."""
        require_finite(values, self.name)
        starts = np.arange(0, values.size, BLOCK)
        scales = np.maximum.reduceat(np.abs(values), starts) if values.size else np.zeros(0, np.float32)
        largest = over_values(scales.astype(np.float64), values.size)
        scaled = MAX_LEVELS * values.astype(np.float64)
        quotient = np.divide(scaled, largest, out=np.zeros(values.size), where=largest > 0.0)
        return SplitValues(to_symbols(np.rint(quotient)), b"", scales.astype("<f4").tobytes())

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Return scale times step, rounded from float64 to the nearest float32."""
        return from_symbols(symbols, side, MAX_LEVELS)


KIND: ValueKind = Int8()
