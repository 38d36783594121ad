"""What a kind of values is: how values become bytes, and bytes values."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


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
        """What callers say."""

    @property
    def code(self) -> int:
        """What the header says, 0 to 15."""

    @property
    def wire_version(self) -> int:
        """The version of the format that its messages carry: the first that knew it."""

    @property
    def plain_bytes(self) -> int:
        """Plain bytes of each value."""

    @property
    def lossy(self) -> bool:
        """Whether the receiver may see other values than the sender has."""

    @property
    def needs_rng(self) -> bool:
        """Whether values are rounded at random."""

    def side_bytes(self, count: int) -> int:
        """Bytes of side information of so many values."""

    def split(self, values: Floats, levels: int, rng: np.random.Generator | None) -> SplitValues:
        """Values in parts, rounded where the kind is lossy; ``levels`` and ``rng`` are for kinds that round at random.

        ``InvalidInputError`` for values that the kind cannot carry.
        """

    def join(self, symbols: Bytes, plain: memoryview, side: memoryview) -> Floats:
        """The values that the parts stand for, or ``CorruptPayloadError`` where no encoder writes such parts."""
