"""Values rounded to the upper half of their bits."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.errors import InvalidInputError


class BFloat16:
    """The exponent is modelled; sign and seven bits of the mantissa are a plain byte."""

    name = "bfloat16"
    code = 2
    wire_version = 1
    plain_bytes = 1
    lossy = True
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """No side information."""
        return 0

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Round to nearest, ties to even; refuse values that would become infinite."""
        bits = values.view(np.uint32)
        rounded = bits + 0x7FFF + (bits >> 16 & 1)
        rounded = np.where((bits & 0x7FFFFFFF) > 0x7F800000, bits | 0x400000, rounded) >> 16  # a NaN stays one
        if np.any(((rounded & 0x7FFF) == 0x7F80) & np.isfinite(values)):
            worst = float(np.abs(values[np.isfinite(values)]).max())
            raise InvalidInputError(
                f"values must be at most 3.3895e38 in size to be sent as bfloat16, got {worst:.5g}; use float32"
            )
        plain = ((rounded >> 8 & 0x80) | (rounded & 0x7F)).astype(np.uint8)
        return SplitValues((rounded >> 7 & 0xFF).astype(np.uint8), plain.tobytes(), b"")

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Put the bits together; all bits are valid."""
        rest = np.frombuffer(plain, dtype=np.uint8).astype(np.uint32)
        return ((rest & 0x80) << 24 | symbols.astype(np.uint32) << 23 | (rest & 0x7F) << 16).view(np.float32)


KIND: ValueKind = BFloat16()
