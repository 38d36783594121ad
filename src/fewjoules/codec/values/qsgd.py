"""Values rounded at random, without bias, to levels of the norm of their block [ALISTARH17]."""

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.codec.values.levels import MAX_LEVELS, from_symbols, to_symbols
from fewjoules.codec.values.scales import block_count, block_norms, over_values, require_finite
from fewjoules.errors import InvalidInputError, require_integer


class Qsgd:
    """The level l of v = norm * sign * l / s is modelled with its sign; s and the norms are side information."""

    name = "qsgd"
    code = 4
    wire_version = 1
    plain_bytes = 0
    lossy = True
    needs_rng = True

    def side_bytes(self, count: int) -> int:
        """One byte for s, and one float32 per block."""
        return 1 + 4 * block_count(count)

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Round up or down at random, with the probability that makes the levels unbiased."""
        require_finite(values, self.name)
        require_integer("levels", levels, low=1, high=MAX_LEVELS)
        if not isinstance(rng, np.random.Generator):
            raise InvalidInputError(f"qsgd needs rng=, a NumPy Generator, got {rng!r}")
        norms = block_norms(values)
        if not np.isfinite(norms).all():
            raise InvalidInputError(
                f"values must have block norms of at most 3.4e38 to be sent as qsgd, got {norms.max()}"
            )
        wide = over_values(norms.astype(np.float64), values.size)
        target = np.divide(levels * np.abs(values, dtype=np.float64), wide, out=np.zeros(values.size), where=wide > 0.0)
        chosen = np.minimum(np.floor(target + rng.random(values.size)), levels)
        side = bytes([levels]) + norms.astype("<f4").tobytes()
        return SplitValues(to_symbols(np.copysign(chosen, values)), b"", side)

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Return norm * level / s, rounded from float64 to the nearest float32."""
        return from_symbols(symbols, side[1:], side[0])


KIND: ValueKind = Qsgd()
