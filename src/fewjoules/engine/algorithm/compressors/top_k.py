"""The k entries of largest magnitude; ties go to the lowest position: line 9 of Algorithm 1."""

from typing import TYPE_CHECKING, Any

from fewjoules.arrays import Floats
from fewjoules.engine.algorithm.compressors.base import Compressor, RowMessages, Sent

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder


def choose(update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
    """Send the k largest entries; the new residual overwrites the old one."""
    from fewjoules.codec.compressors import top_k

    return top_k(update, residual, order.k, out=residual)


def on_rows(rows: Any) -> RowMessages:
    """Send all rows at once; if every entry is kept, skip the selection."""
    if rows.values == "float32" and rows.keep_everything:
        return rows.send_everything()
    return rows.send_top_k()


COMPRESSOR = Compressor(name="top-k", choose=choose, on_rows=on_rows)
