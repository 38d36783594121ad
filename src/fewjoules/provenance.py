"""Where a joule comes from: a mark on every cost of a device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import InvalidInputError, require_number, shown

MARKS = ("measured", "fitted", "profile", "assumed")  # from the best known to the least known
ASSUMED = MARKS.index("assumed")
RADIO_KINDS, COMPUTE_KINDS = ("uplink", "downlink", "tail"), ("compute", "codec")
KINDS = RADIO_KINDS + COMPUTE_KINDS  # of joules in the ledger
Codes = NDArray[np.uint8]  # positions in MARKS
Marks = str | Mapping[str, str | Sequence[str] | Codes]


def require_mark(name: str, mark: Any) -> int:
    """Return the code of a mark."""
    if mark not in MARKS:
        raise InvalidInputError(f"{name} must be one of {', '.join(MARKS)}, got {shown(mark)}")
    return MARKS.index(mark)


def codes_of(marks: Marks, devices: int) -> dict[str, Codes]:
    """Return the codes of every kind, each of shape (devices,); kinds that are not given are assumed."""
    if isinstance(marks, str):
        marks = dict.fromkeys(KINDS, marks)
    if not isinstance(marks, Mapping):
        raise InvalidInputError(f"provenance must be a mark or a mapping of kinds to marks, got {shown(marks)}")
    unknown = sorted(set(marks) - set(KINDS))
    if unknown:
        raise InvalidInputError(f"provenance must be of {', '.join(KINDS)}, got {shown(unknown[0])}")
    return {kind: _codes(f"provenance of {kind}", marks.get(kind, MARKS[ASSUMED]), devices) for kind in KINDS}


def _codes(name: str, given: str | Sequence[str] | Codes, devices: int) -> Codes:
    if isinstance(given, np.ndarray) and given.dtype == np.uint8:
        codes = given
        if codes.size and codes.max() >= len(MARKS):
            raise InvalidInputError(f"{name} must be from 0 to {len(MARKS) - 1}, got {codes.max()}")
    elif isinstance(given, str):
        codes = np.array(require_mark(name, given), dtype=np.uint8)
    else:
        codes = np.array([require_mark(name, mark) for mark in given], dtype=np.uint8)
    if codes.ndim and codes.shape != (devices,):
        raise InvalidInputError(f"{name} must have {devices} entries, one for each device, got {codes.size}")
    return np.broadcast_to(codes, (devices,))


def joules_by_mark(joules: Any, codes: Codes) -> dict[str, float]:
    """Return the sum of the joules of each mark that occurs, in the order of MARKS."""
    sums = np.bincount(codes, weights=joules, minlength=len(MARKS))
    present = np.bincount(codes, minlength=len(MARKS)) > 0
    return {mark: float(sums[code]) for code, mark in enumerate(MARKS) if present[code]}


def require_joules(name: str, joules: Any) -> dict[str, dict[str, float]]:
    """Return joules by kind and mark, or refuse what is no such table."""
    if not isinstance(joules, Mapping) or not set(joules) <= set(KINDS):
        raise InvalidInputError(f"{name} must be a table of {', '.join(KINDS)}, got {shown(joules)}")
    for kind, split in joules.items():
        if not isinstance(split, Mapping) or not set(split) <= set(MARKS):
            raise InvalidInputError(f"{name} of {kind} must be a table of {', '.join(MARKS)}, got {shown(split)}")
    return {
        kind: {mark: require_number(f"{name} of {kind}", value, low=0.0) for mark, value in split.items()}
        for kind, split in joules.items()
    }
