"""The largest entries of each chunk of 4,096 neighbouring parameters, as SparseLoCo chooses them [SARFI25].

A chunk of n of all d parameters keeps round(n k / d) entries, at least one, so that every part of the model is updated.
"""

from typing import TYPE_CHECKING

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.compressors.base import Compressor, Sent

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder

CHUNK = 4096


def choose(update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
    """Send the largest entries of each chunk; the new residual overwrites the old one."""
    from fewjoules.codec.compressors import top_k

    positions, values = [], []
    for start in range(0, update.size, CHUNK):
        part = slice(start, min(start + CHUNK, update.size))
        length = part.stop - part.start
        kept = max(1, round(length * order.k / update.size))
        sent, _ = top_k(update[part], residual[part], kept, out=residual[part])
        positions.append(sent.positions + start)
        values.append(sent.values)
    return SparseUpdate.trusted(update.size, np.concatenate(positions), np.concatenate(values)), residual


COMPRESSOR = Compressor(name="chunked-top-k", choose=choose)
