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


def message_bytes(options: TrainingOptions, sent: SparseUpdate) -> int:
    """Bytes of the message that carries the update, by ``encoded_size``."""
    if options.compressor == "qsgd":
        scale = np.float32(1.0 + compressors.qsgd_variance(options.levels))
        grid = SparseUpdate.trusted(sent.size, sent.positions, sent.values * scale)
        return frame.encoded_size(grid, values="qsgd", levels=options.levels, rng=np.random.default_rng(0))
    if options.compressor == "ternary":
        return frame.encoded_size(sent, values="ternary")
    return frame.encoded_size(sent, values=options.values, levels=options.levels, rng=np.random.default_rng(0))


def dense_bytes(vector: Floats) -> int:
    """Bytes of a message with every entry as float32: buffers, and whole models on the downlink."""
    if vector.size == 0:
        return 0
    return frame.encoded_size(SparseUpdate.trusted(vector.size, np.arange(vector.size), vector))
