"""Rows for the tables of a run."""

import numpy as np
from hypothesis import strategies as st

from fewjoules.ledger.schema import RowArray, TableSchema


@st.composite
def rows(draw: st.DrawFn, table: TableSchema, max_rows: int = 40) -> RowArray:
    """Any rows whose rounds never fall, with missing values, NaN and infinities."""
    count = draw(st.integers(0, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = table.new_rows(count)
    for column in table.columns:
        kind = np.dtype(column.dtype)
        if column.labels:
            made[column.name] = rng.integers(0, len(column.labels), count)
        elif kind.kind == "b":
            made[column.name] = rng.random(count) < 0.5
        elif kind.kind == "i":
            limits = np.iinfo(kind)
            made[column.name] = rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
        else:
            values = rng.standard_normal(count) * 10.0 ** rng.integers(-300, 300, count)
            odd = rng.random(count)
            values[odd < 0.3] = np.nan
            values[odd > 0.9] = np.inf
            made[column.name] = values
    made["round"] = 1 + np.cumsum(rng.integers(0, 3, count))
    return made
