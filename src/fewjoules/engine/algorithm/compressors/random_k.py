"""k entries at random. They are not scaled up, because error feedback needs them unscaled [STICH18]."""

from typing import TYPE_CHECKING

from fewjoules.arrays import Floats
from fewjoules.engine.algorithm.compressors.base import Compressor, Sent

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder


def choose(update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
    """Send k entries; every set of k is equally likely."""
    from fewjoules.codec.compressors import random_k

    return random_k(update, residual, order.k, order.draws())


COMPRESSOR = Compressor(name="random-k", choose=choose)
