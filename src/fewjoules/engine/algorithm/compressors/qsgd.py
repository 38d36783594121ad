"""QSGD [ALISTARH17] of all entries, divided by 1 + omega so that error feedback converges."""

from typing import TYPE_CHECKING, Any

from fewjoules.arrays import Floats
from fewjoules.engine.algorithm.compressors.base import Compressor, RowMessages, Sent

if TYPE_CHECKING:
    from fewjoules.engine.algorithm.round import ClientOrder


def choose(update: Floats, residual: Floats, order: "ClientOrder") -> Sent:
    """Send every entry, rounded at random to one of ``levels`` levels."""
    from fewjoules.codec.compressors import qsgd

    return qsgd(update, residual, order.levels, order.draws())


def scale(order: "ClientOrder") -> float:
    """Return 1 + omega, by which the server divides what it decodes."""
    from fewjoules.codec.compressors import qsgd_variance

    return 1.0 + qsgd_variance(order.levels)


def on_rows(rows: Any) -> RowMessages:
    """Send all rows at once, with the same random draws as on the processor."""
    return rows.send_quantised()


COMPRESSOR = Compressor(
    name="qsgd", choose=choose, kind="qsgd", rounds_itself=True, dense=True, scale=scale, on_rows=on_rows
)
