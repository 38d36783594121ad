"""Hypothesis strategies for sparse updates: every arrangement of positions, every bit pattern of a float32."""

import numpy as np
from hypothesis import strategies as st

from fewjoules import codec

KINDS = ["float32", "float16", "bfloat16", "int8", "qsgd", "ternary", "two-bit"]
LARGEST_SIZE = 2**28  # of the updates that tests draw


def seeded(draw):
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def bit_patterns(rng, count):
    """Float32 with all bits random: all exponents, both zeros, denormals and infinities; no NaN."""
    bits = rng.integers(0, 2**32, count, dtype=np.uint32)
    special = rng.integers(0, 8, count) == 0
    bits[special] = rng.choice(np.array([0, 2**31, 1, 0x807FFFFF, 0x7F800000, 0xFF800000], np.uint32), special.sum())
    nan = (bits & 0x7F800000 == 0x7F800000) & (bits & 0x007FFFFF != 0)
    bits[nan] &= 0xFF800000
    return bits.view(np.float32)


def clustered_positions(rng, size, count):
    """Runs of neighbours far from one another."""
    starts = np.sort(rng.integers(0, size, max(1, count // 20)))
    return np.unique(np.clip(starts[:, None] + rng.integers(0, 40, (starts.size, 20)), 0, size - 1))[:count]


@st.composite
def positions(draw, max_count=3000):
    """(size, positions) of one of the shapes that coders find hard."""
    rng = seeded(draw)
    shape = draw(st.sampled_from(["empty", "full", "one", "last", "sparse", "dense", "clustered", "huge gaps"]))
    if shape == "empty":
        return draw(st.sampled_from([0, 1, 2, 1000, LARGEST_SIZE])), np.zeros(0, np.int64)
    if shape == "full":
        size = draw(st.integers(1, max_count))
        return size, np.arange(size)
    if shape in ("one", "last"):
        size = draw(st.sampled_from([1, 2, 7, 8, 9, 255, 256, 257, 65536, LARGEST_SIZE]))
        return size, np.array([size - 1 if shape == "last" else draw(st.integers(0, size - 1))])
    if shape == "sparse":
        size = draw(st.integers(1, 30 * max_count))
        count = draw(st.integers(0, min(size // 2, max_count)))
        return size, np.sort(rng.choice(size, count, replace=False))
    if shape == "dense":
        size = draw(st.integers(1, max_count))
        count = draw(st.integers(size // 2, size))
        return size, np.sort(rng.choice(size, count, replace=False))
    if shape == "clustered":
        size = draw(st.integers(100, 10**6))
        return size, clustered_positions(rng, size, draw(st.integers(1, max_count)))
    ends = np.array([0, 1, LARGEST_SIZE // 2, LARGEST_SIZE - 2, LARGEST_SIZE - 1])
    return LARGEST_SIZE, np.unique(np.concatenate([ends, 2 ** rng.integers(0, 28, draw(st.integers(0, 40)))]))


@st.composite
def sparse_updates(draw, max_count=3000):
    """Any update without NaN."""
    size, where = draw(positions(max_count))
    rng = seeded(draw)
    which = draw(st.sampled_from(["any bits", "gradient-like", "repeated", "constant"]))
    if which == "any bits":
        values = bit_patterns(rng, where.size)
    elif which == "gradient-like":
        values = rng.laplace(0.0, 1e-3, where.size)
    elif which == "repeated":
        values = rng.choice(np.array([-2.5, -0.0, 0.0, 1.0, 2.5]), where.size)
    else:
        values = np.full(where.size, draw(st.floats(width=32, allow_nan=False)))
    return codec.SparseUpdate(size=size, positions=where, values=values.astype(np.float32))


@st.composite
def moderate_updates(draw, max_count=3000):
    """Updates whose values every lossy kind can carry: finite, within the range of float16."""
    size, where = draw(positions(max_count))
    rng = seeded(draw)
    values = rng.normal(0.0, 10.0 ** draw(st.integers(-6, 3)), where.size)
    values[rng.integers(0, 10, where.size) == 0] = 0.0
    return codec.SparseUpdate(size=size, positions=where, values=values.astype(np.float32))


def uniform_positions(rng, size, sparsity):
    """Every position kept with probability 1 / sparsity: uniform among the sets of its count."""
    return np.flatnonzero(rng.random(size, dtype=np.float32) < 1.0 / sparsity)
