"""Named random streams: each purpose, client and round has its own, so that draws from one never shift another."""

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
    "downlink",
    "held aside",
)


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return the generator of a purpose and keys, for example ``stream(seed, "channel", round, device)``."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, keys)))


def stream_key(seed: int, purpose: str, *keys: int) -> int:
    """Return 63 random bits for a purpose and keys, to seed generators that are not NumPy's."""
    return int(_sequence(seed, purpose, keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose), *keys))
