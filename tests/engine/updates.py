"""Updates of every kind that a selection may meet."""

import numpy as np


def vectors(kind, shape, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=shape).astype(np.float32)
    if kind == "ties":
        return rng.integers(-2, 3, shape).astype(np.float32)
    if kind == "zeros":
        return np.where(rng.random(shape) < 0.5, 0.0, -0.0).astype(np.float32)
    if kind == "denormal":
        return rng.integers(0, 2**12, shape).astype(np.uint32).view(np.float32)
    return np.ldexp(rng.normal(size=shape), rng.integers(-100, 100, shape)).astype(np.float32)


VECTORS = ["normal", "ties", "zeros", "denormal", "octaves"]
SIZES = [1, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097]


def bits_of(array):
    return np.ascontiguousarray(array).view(np.uint32)
