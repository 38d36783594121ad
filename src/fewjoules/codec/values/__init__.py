"""Values on the wire: one byte each that an entropy coder models, a few plain bytes, and a share of side information.

A kind of values is the object ``KIND`` of a module of its own. ``_MODULES`` names those that a message may carry, in
the order of their codes; docs/wire-format.md describes their bytes.
"""

from collections.abc import Mapping
from importlib import import_module

import numpy as np

from fewjoules.arrays import Floats
from fewjoules.codec.values.kind import Bytes, SplitValues, ValueKind
from fewjoules.codec.values.levels import MAX_LEVELS, ZERO_SYMBOL
from fewjoules.codec.values.scales import BLOCK, block_norms
from fewjoules.errors import InvalidInputError

__all__ = [
    "BLOCK",
    "BY_CODE",
    "KINDS",
    "MAX_LEVELS",
    "ZERO_SYMBOL",
    "Bytes",
    "Floats",
    "SplitValues",
    "ValueKind",
    "block_norms",
    "kind_code",
    "kind_named",
    "quantised",
]

_MODULES = ("float32", "float16", "bfloat16", "int8", "qsgd", "ternary", "two_bit")


def _kind_of(module: str) -> ValueKind:
    kind: ValueKind = import_module(f"{__name__}.{module}").KIND
    return kind


_REGISTERED = tuple(map(_kind_of, _MODULES))
KINDS: Mapping[str, ValueKind] = {kind.name: kind for kind in _REGISTERED}
BY_CODE: Mapping[int, ValueKind] = {kind.code: kind for kind in _REGISTERED}


def kind_named(name: str) -> ValueKind:
    """Return the kind of values of this name."""
    if name not in KINDS:
        raise InvalidInputError(f"values must be one of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]


def kind_code(kind: str) -> int:
    """Number of a kind on the wire."""
    return kind_named(kind).code


def quantised(values: Floats, kind: str, *, levels: int = 15, rng: np.random.Generator | None = None) -> Floats:
    """Return the values as a receiver decodes them when they are sent as this kind."""
    chosen = kind_named(kind)
    parts = chosen.split(values, levels, rng)
    return chosen.join(parts.symbols, memoryview(parts.plain), memoryview(parts.side))
