"""Tables as data frames of pandas and polars, which are extras. Unknown numbers are null, marks are words."""

from typing import TYPE_CHECKING

from fewjoules.extras import require_extra
from fewjoules.ledger.parquet import arrow_table
from fewjoules.ledger.schema import RowArray, TableSchema

if TYPE_CHECKING:
    import pandas
    import polars


def pandas_frame(rows: RowArray, table: TableSchema) -> "pandas.DataFrame":
    """Return the rows as a pandas data frame, in which unknown numbers are NaN."""
    require_extra("dataframes", "to_pandas", "pandas", "pyarrow")
    return arrow_table(rows, table).to_pandas()


def polars_frame(rows: RowArray, table: TableSchema) -> "polars.DataFrame":
    """Return the rows as a polars data frame."""
    require_extra("dataframes", "to_polars", "polars", "pyarrow")
    import polars

    return polars.DataFrame(polars.from_arrow(arrow_table(rows, table)))
