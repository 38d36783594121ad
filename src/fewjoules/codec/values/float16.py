"""Values rounded to half precision."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.errors import InvalidInputError


class Float16:
    """Exponent and three bits of the mantissa are modelled; sign and seven bits are a plain byte."""

    name = "float16"
    code = 1
    wire_version = 1
    plain_bytes = 1
    lossy = True
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """No side information."""
        return 0

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Round to nearest, ties to even; refuse values that would become infinite."""
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if np.any(np.isinf(half) & np.isfinite(values)):
            worst = float(np.abs(values[np.isfinite(values)]).max())
            raise InvalidInputError(
                f"values must be at most 65504 in size to be sent as float16, got {worst:g}; use bfloat16"
            )
        bits = half.view(np.uint16)
        plain = ((bits >> 8 & 0x80) | (bits & 0x7F)).astype(np.uint8)
        return SplitValues((bits >> 7 & 0xFF).astype(np.uint8), plain.tobytes(), b"")

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Put the bits together; all bits are valid."""
        rest = np.frombuffer(plain, dtype=np.uint8).astype(np.uint16)
        bits = (rest & 0x80) << 8 | symbols.astype(np.uint16) << 7 | (rest & 0x7F)
        return bits.view(np.float16).astype(np.float32)


KIND: ValueKind = Float16()
