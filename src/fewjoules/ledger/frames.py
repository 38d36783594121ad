"""Tables as data frames of pandas and polars, which are extras. Unknown numbers are null, marks are words."""

from typing import TYPE_CHECKING

from fewjoules.errors import InvalidInputError
from fewjoules.ledger.parquet import arrow_table
from fewjoules.ledger.schema import RowArray, TableSchema

if TYPE_CHECKING:
    import pandas
    import polars


def pandas_frame(rows: RowArray, table: TableSchema) -> "pandas.DataFrame":
    """Return the rows as a pandas data frame, in which unknown numbers are NaN."""
    try:
        import pandas  # noqa: F401 - pyarrow needs it
    except ImportError as error:
        raise _missing("pandas") from error
    return arrow_table(rows, table).to_pandas()


def polars_frame(rows: RowArray, table: TableSchema) -> "polars.DataFrame":
    """Return the rows as a polars data frame."""
    try:
        import polars
    except ImportError as error:
        raise _missing("polars") from error
    return polars.DataFrame(polars.from_arrow(arrow_table(rows, table)))


def _missing(library: str) -> InvalidInputError:
    return InvalidInputError(f"to_{library} needs the package {library}; pip install 'fewjoules[dataframes]'")
