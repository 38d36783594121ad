"""Joules of a whole ledger by kind, and by the mark that says where they come from."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.ledger.schema import RowArray
from fewjoules.provenance import KINDS, MARKS

SUMMED_COLUMNS = [f"{kind}_{what}" for kind in KINDS for what in ("joules", "mark")]


def joules_by_kind(blocks: Iterable[RowArray | Mapping[str, NDArray[Any]]]) -> dict[str, dict[str, float]]:
    """Return the joules of all rows, or columns, by kind and mark; joules that are missing are left out."""
    sums: dict[tuple[str, str], list[float]] = {}
    for rows in blocks:
        for kind in KINDS:
            joules, codes = rows[f"{kind}_joules"], rows[f"{kind}_mark"]
            known = ~np.isnan(joules)
            for code in np.unique(codes[known]):
                sums.setdefault((kind, MARKS[code]), []).append(math.fsum(joules[known & (codes == code)]))
    found = {kind: [mark for mark in MARKS if (kind, mark) in sums] for kind in KINDS}
    return {kind: {mark: math.fsum(sums[kind, mark]) for mark in marks} for kind, marks in found.items() if marks}
