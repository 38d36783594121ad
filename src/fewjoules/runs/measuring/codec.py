"""Joules and seconds of messages, selection and encoding of updates, and decoding, for several numbers of entries."""

from collections.abc import Sequence

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.round import ClientOrder
from fewjoules.metering.costs import Costs, Point, costs_of
from fewjoules.metering.protocol import Bench


def measure_messages(
    orders: Sequence[ClientOrder], parameters: int, bench: Bench, *, with_idle: bool = False
) -> tuple[Costs, Costs]:
    """Return the costs of writing and of reading the messages that the orders ask for.

    They are fitted by the parameters of the model and by the entries sent, or by parameters alone for a compressor
    that always sends all.
    """
    idle = bench.idle_watts()
    written: list[Point] = []
    read: list[Point] = []
    for order in orders:
        dense = COMPRESSORS[order.compressor].dense
        message = _Message(order, parameters)
        terms = (float(parameters),) if dense else (float(parameters), float(order.k))
        for points, name, work in ((written, "writing", message.write), (read, "reading", message.read)):
            label = f"{name} {parameters if dense else order.k} entries"
            trials = bench.measure(label, work, pieces=1, idle=None if with_idle else idle)
            points.append(Point(label, terms, trials))
    return costs_of(written, idle), costs_of(read, idle)


class _Message:
    """Writes one random update again and again, and reads its message."""

    def __init__(self, order: ClientOrder, parameters: int) -> None:
        self._order, self._compressor, self._size = order, COMPRESSORS[order.compressor], parameters
        draws = np.random.default_rng(0)
        self._change: Floats = draws.standard_normal(parameters, dtype=np.float32)
        self._residual: Floats = draws.standard_normal(parameters, dtype=np.float32)
        self._update, self._left = np.empty_like(self._change), np.empty_like(self._residual)
        self._payload, _, _ = self._compressor.write(self._change.copy(), self._residual.copy(), order)

    def write(self, times: int) -> None:
        """Select and encode so many times; the copies of the inputs stand for w - v of line 8."""
        for _ in range(times):
            np.copyto(self._update, self._change)
            np.copyto(self._left, self._residual)
            self._compressor.write(self._update, self._left, self._order)

    def read(self, times: int) -> None:
        """Decode so many times."""
        for _ in range(times):
            self._compressor.received(self._payload, self._order, self._size)
