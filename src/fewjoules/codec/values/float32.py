"""Values in full precision."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind


class Float32:
    """The exponent is modelled; sign and mantissa are three plain bytes."""

    name = "float32"
    code = 0
    wire_version = 1
    plain_bytes = 3
    lossy = False
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """No side information."""
        return 0

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Split the bits of the values without rounding."""
        bits = values.view(np.uint32)
        rest = (bits >> 8 & 0x800000) | (bits & 0x7FFFFF)
        plain = rest.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : self.plain_bytes].tobytes()
        return SplitValues((bits >> 23).astype(np.uint8), plain, b"")

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Put the bits together; all bits are valid."""
        wide = np.zeros((symbols.size, 4), dtype=np.uint8)
        wide[:, : self.plain_bytes] = np.frombuffer(plain, dtype=np.uint8).reshape(-1, self.plain_bytes)
        rest = wide.view("<u4").ravel().astype(np.uint32)
        return ((rest & 0x800000) << 8 | symbols.astype(np.uint32) << 23 | (rest & 0x7FFFFF)).view(np.float32)


KIND: ValueKind = Float32()
