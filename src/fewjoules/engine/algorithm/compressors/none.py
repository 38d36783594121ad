"""No compression: every entry is sent."""

from typing import TYPE_CHECKING, Any

from fewjoules.arrays import Floats
from fewjoules.engine.algorithm.compressors.base import Compressor, RowMessages, Sent

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder


def choose(update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
    """Send every entry and leave no residual."""
    from fewjoules.codec.compressors import none

    return none(update, residual)


def on_rows(rows: Any) -> RowMessages:
    """Send all rows at once if their values are not rounded."""
    return rows.send_everything() if rows.values == "float32" else rows.send_one_by_one()


COMPRESSOR = Compressor(name="none", choose=choose, dense=True, on_rows=on_rows)
