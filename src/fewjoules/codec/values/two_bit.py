"""Values as their signs and one of two magnitudes of their block.

A magnitude is large if it exceeds the mean magnitude of its block, else small; the receiver gets the mean of its group,
small or large. So a block keeps its sum of magnitudes, and the squared error is at most 1 - 1/1024 of the squared norm,
up to rounding: one mean for all, which is never better, already keeps |x|_1^2 / n >= |x|_2^2 / n of it.

Every mean lies between its smallest and largest number in float64, too: multiples of a float32 up to 1024 are exact,
and rounding keeps order. Hence every block has a small magnitude, small <= large, and both are finite.
"""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.codec.values.scales import BLOCK, block_count, in_blocks, read_scales, require_finite, sums_by_halves
from fewjoules.errors import CorruptPayloadError

_MAX_SYMBOL = 3  # 0 minus large, 1 minus small, 2 plus small, 3 plus large


class TwoBit:
    """Sign and group are modelled, in the order of the values; small and large of each block are side information."""

    name = "two-bit"
    code = 6
    wire_version = 2
    plain_bytes = 0
    lossy = True
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """Two float32 per block."""
        return 8 * block_count(count)

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Split into signs, groups and the two means of each block; without large values, large equals small."""
        require_finite(values, self.name)
        magnitudes = in_blocks(np.abs(values, dtype=np.float64))
        filled = np.minimum(values.size - BLOCK * np.arange(len(magnitudes)), BLOCK)
        is_large = magnitudes > (sums_by_halves(magnitudes) / filled)[:, np.newaxis]
        larges = np.count_nonzero(is_large, axis=1)
        small = sums_by_halves(np.where(is_large, 0.0, magnitudes)) / (filled - larges)
        large = sums_by_halves(np.where(is_large, magnitudes, 0.0)) / np.maximum(larges, 1)
        scales = np.stack([small, np.where(larges > 0, large, small)], axis=1)
        above = is_large.ravel()[: values.size]
        symbols = np.where(np.signbit(values), 1 - above, 2 + above).astype(np.uint8)
        return SplitValues(symbols, b"", scales.astype("<f4").tobytes())

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Return the small or the large magnitude of the block, with the sign of each value."""
        small, large = read_scales(side).reshape(-1, 2).T
        if np.any(small > large):
            block = int(np.argmax(small > large))
            raise CorruptPayloadError(
                f"the small magnitude of a block must be at most its large one, got {small[block]} and {large[block]}"
            )
        highest = int(symbols.max(initial=0))
        if highest > _MAX_SYMBOL:
            raise CorruptPayloadError(f"two-bit values must be from 0 to {_MAX_SYMBOL}, got {highest}")
        seen = np.stack([-large, -small, small, large], axis=1)
        return seen[np.arange(symbols.size) // BLOCK, symbols]


KIND: ValueKind = TwoBit()
