"""Values as their signs and one mean magnitude for all [SATTLER19]."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.codec.values.scales import read_scales, require_finite
from fewjoules.errors import CorruptPayloadError


class Ternary:
    """The sign is modelled, 1 for minus; the mean magnitude of all values is side information."""

    name = "ternary"
    code = 5
    wire_version = 1
    plain_bytes = 0
    lossy = True
    needs_rng = False

    def side_bytes(self, count: int) -> int:
        """One float32, if there are values."""
        return 4 if count else 0

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Split into signs and the mean magnitude."""
        require_finite(values, self.name)
        if not values.size:
            return SplitValues(np.zeros(0, np.uint8), b"", b"")
        mean = np.float32(np.mean(np.abs(values), dtype=np.float64))
        return SplitValues(np.signbit(values).astype(np.uint8), b"", mean.astype("<f4").tobytes())

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Return the mean magnitude with the sign of each value."""
        if not symbols.size:
            return np.zeros(0, np.float32)
        mean = read_scales(side)[0]
        if int(symbols.max()) > 1:
            raise CorruptPayloadError(f"ternary values must be signs, 0 or 1, got {int(symbols.max())}")
        return np.where(symbols == 1, -mean, mean).astype(np.float32)


KIND: ValueKind = Ternary()
