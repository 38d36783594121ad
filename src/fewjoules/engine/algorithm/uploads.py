"""What clients send: the compressor of each client and round, and the bytes of its messages."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fewjoules.codec import compressors, frame
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import Compressor, Floats
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream


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


def round_values(options: TrainingOptions, values: Floats, client: int, number: int) -> tuple[Floats, Floats]:
    """What the server sees of the values that a client chose to send, and what rounding leaves of each."""
    kind = "ternary" if options.compressor == "ternary" else options.values
    chosen = SparseUpdate.trusted(values.size, np.arange(values.size), values)
    rng = stream(options.seed, "compressor", number, client, 1)
    sent, left = compressors.with_values(chosen, np.zeros_like(values), kind, levels=options.levels, rng=rng)
    return sent.values, left


def message_bytes(options: TrainingOptions, sent: SparseUpdate, rest: Floats, client: int, number: int) -> int:
    """Bytes of the message that carries the update, by ``encoded_size``; ``rest`` is what rounding left of its values.

    QSGD draws its levels, so the message is that of the values before rounding with the draws that rounded them.
    """
    if options.compressor == "ternary":
        return frame.encoded_size(sent, values="ternary")
    if options.compressor != "qsgd" and options.values != "qsgd":
        return frame.encoded_size(sent, values=options.values)
    before = SparseUpdate.trusted(sent.size, sent.positions, sent.values + rest)
    keys = (number, client) if options.compressor == "qsgd" else (number, client, 1)
    rng = stream(options.seed, "compressor", *keys)
    return frame.encoded_size(before, values="qsgd", levels=options.levels, rng=rng)


def dense_bytes(vector: Floats) -> int:
    """Bytes of a message with every entry as float32: buffers, and whole models on the downlink."""
    if vector.size == 0:
        return 0
    return frame.encoded_size(SparseUpdate.trusted(vector.size, np.arange(vector.size), vector))
