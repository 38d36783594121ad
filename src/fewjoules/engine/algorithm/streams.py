"""Random streams by name: each purpose, client and round draws from its own, so that none shifts another."""

import numpy as np

PURPOSES = (
    "partition",
    "weights",
    "batches",
    "participation",
    "failures",
    "channel",
    "compressor",
    "model",
    "estimates",
)


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """The generator of a purpose, for example ``stream(seed, "channel", round, device)``."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, keys)))


def stream_key(seed: int, purpose: str, *keys: int) -> int:
    """63 bits that belong to a purpose and keys: a seed for generators that are not NumPy's."""
    return int(_sequence(seed, purpose, keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose), *keys))
