"""Tables as data frames: what a frame holds is what the Parquet file of the same rows holds."""

import sys

import numpy as np
import pytest

from fewjoules.errors import MissingLibraryError
from fewjoules.ledger.frames import pandas_frame, polars_frame
from fewjoules.ledger.parquet import write_table
from fewjoules.ledger.schema import LEDGER, METRICS, TABLES
from fewjoules.provenance import MARKS


def some_rows(table):
    rows = table.new_rows(5)
    rng = np.random.default_rng(1)
    for column in table.columns:
        if column.labels:
            rows[column.name] = rng.integers(0, len(column.labels), 5)
        elif column.dtype != "?":
            rows[column.name] = rng.integers(0, 9, 5)
    for column in table.columns:
        if column.nullable:
            rows[column.name][2] = np.nan
    return rows


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_frame_is_what_the_library_reads_from_the_parquet_file(tmp_path, table):
    import pandas
    import polars

    rows = some_rows(table)
    file = tmp_path / "rows.parquet"
    write_table(file, table, [rows])
    pandas.testing.assert_frame_equal(pandas_frame(rows, table), pandas.read_parquet(file))
    assert polars_frame(rows, table).equals(polars.read_parquet(file))


def test_marks_are_words_and_unknown_numbers_are_null():
    rows = some_rows(LEDGER)
    frame = polars_frame(rows, LEDGER)
    assert frame["uplink_mark"].to_list() == [MARKS[code] for code in rows["uplink_mark"]]
    assert frame["uplink_joules"].null_count() == 1
    assert np.isnan(pandas_frame(rows, LEDGER)["uplink_joules"][2])
    assert polars_frame(METRICS.new_rows(0), METRICS).shape == (0, len(METRICS.columns))


@pytest.mark.parametrize(("library", "frame"), [("pandas", pandas_frame), ("polars", polars_frame)])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, library, frame):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingLibraryError, match=rf"to_{library} needs {library}: pip install 'fewjoules\[dataframes\]"
    ):
        frame(some_rows(METRICS), METRICS)
