"""What clients send: the compressor of each client and round, and the bytes of its messages."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fedjoule.codec import compressors, frame
from fedjoule.codec.update import SparseUpdate
from fedjoule.engine.algorithm import Compressor, Floats
from fedjoule.engine.options import TrainingOptions
from fedjoule.engine.streams import stream


def compressor_of(options: TrainingOptions, k: int, client: int, number: int) -> Compressor:
    """The compressor of a client in round ``number``; it may overwrite the memory that it is given."""
    kinds: dict[str, Callable[[], Compressor]] = {
        "top-k": lambda: partial(_top_k, k=k),
        "random-k": lambda: partial(compressors.random_k, k=k, rng=stream(options.seed, "compressor", number, client)),
        "ternary": lambda: partial(compressors.ternary, k=k),
        "qsgd": lambda: partial(
            compressors.qsgd, levels=options.levels, rng=stream(options.seed, "compressor", number, client)
        ),
        "none": lambda: compressors.none,
    }
    chosen = kinds[options.compressor]()
    if options.values == "float32" or options.compressor in ("ternary", "qsgd"):
        return chosen

    def rounded(update: Floats, memory: Floats) -> tuple[SparseUpdate, Floats]:
        rng = stream(options.seed, "compressor", number, client, 1)
        return compressors.with_values(*chosen(update, memory), options.values, levels=options.levels, rng=rng)

    return rounded


def _top_k(update: Floats, memory: Floats, *, k: int) -> tuple[SparseUpdate, Floats]:
    return compressors.top_k(update, memory, k, out=memory)


def message_bytes(options: TrainingOptions, sent: SparseUpdate, left: Floats, client: int, number: int) -> int:
    """Bytes of the message that carries the update, by ``encoded_size``; ``left`` is the memory after it.

    QSGD draws its levels, so the message is that of the values before rounding with the draws that rounded them.
    """
    if options.compressor == "qsgd":
        before = SparseUpdate.trusted(sent.size, sent.positions, sent.values + left)
        rng = stream(options.seed, "compressor", number, client)
        return frame.encoded_size(before, values="qsgd", levels=options.levels, rng=rng)
    if options.compressor == "ternary":
        return frame.encoded_size(sent, values="ternary")
    if options.values == "qsgd":
        before = SparseUpdate.trusted(sent.size, sent.positions, sent.values + left[sent.positions])
        rng = stream(options.seed, "compressor", number, client, 1)
        return frame.encoded_size(before, values="qsgd", levels=options.levels, rng=rng)
    return frame.encoded_size(sent, values=options.values)


def dense_bytes(vector: Floats) -> int:
    """Bytes of a message with every entry as float32: buffers, and whole models on the downlink."""
    if vector.size == 0:
        return 0
    return frame.encoded_size(SparseUpdate.trusted(vector.size, np.arange(vector.size), vector))
