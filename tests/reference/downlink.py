"""The server's compressed step and what its clients lack, one entry after the other in float32, to the bit."""

from itertools import pairwise

import numpy as np

from fewjoules.codec.values import quantised
from fewjoules.engine.algorithm.streams import stream


def compressed(step, residual, options, number):
    """What clients get of a step, (parameters,), and what the server keeps."""
    carried = [np.float32(kept) + np.float32(new) for kept, new in zip(residual, step, strict=True)]
    k = max(1, round(len(carried) / options.downlink_sparsity))
    by_size = sorted(range(len(carried)), key=lambda i: (-abs(carried[i]), i))
    positions = sorted(i for i in by_size[:k] if carried[i] != 0.0)
    values = np.array([carried[i] for i in positions], dtype=np.float32)
    if options.downlink_values != "float32":
        draws = stream(options.seed, "downlink", number)
        values = quantised(values, options.downlink_values, levels=options.levels, rng=draws)
    sent = np.zeros(len(carried), dtype=np.float32)
    for i, value in zip(positions, values, strict=True):
        sent[i] = value
    left = [whole - part for whole, part in zip(carried, sent, strict=True)]
    return sent, np.array(left, dtype=np.float32)


def positions_changed(models):
    """Where any two neighbours of a list of models differ in a bit."""
    bits = [np.asarray(model).view(np.uint32) for model in models]
    return [i for i in range(len(bits[0])) if any(one[i] != other[i] for one, other in pairwise(bits))]
