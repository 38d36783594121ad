"""Interface of a kind of values: it turns values into bytes and back."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import Floats

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SplitValues:
    """The parts of a vector of values: modelled bytes, plain bytes, and side information."""

    symbols: Bytes
    plain: bytes
    side: bytes


class ValueKind(Protocol):
    """A way to write values: one modelled byte and ``plain_bytes`` plain bytes each, and side information for all."""

    @property
    def name(self) -> str:
        """Name in the Python API."""

    @property
    def code(self) -> int:
        """Number in the header, 0 to 15."""

    @property
    def wire_version(self) -> int:
        """Version of the format in its messages: the first version that has this kind."""

    @property
    def plain_bytes(self) -> int:
        """Number of plain bytes of each value."""

    @property
    def lossy(self) -> bool:
        """Whether values are rounded."""

    @property
    def needs_rng(self) -> bool:
        """Whether values are rounded at random."""

    def side_bytes(self, count: int) -> int:
        """Number of bytes of side information for ``count`` values."""

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Split values into parts, rounded if the kind is lossy; kinds that round at random use ``levels`` and ``rng``.

        Raises ``InvalidInputError`` for values that the kind cannot represent.
        """

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """Return the values of the parts, or raise ``CorruptPayloadError`` for parts that no encoder writes."""
