"""Tables survive the way through Parquet; damaged or foreign files are refused."""

import contextlib
import re
import resource
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file
from fewjoules.ledger import parquet
from fewjoules.ledger.parquet import read_blocks, read_table, write_table
from fewjoules.ledger.schema import LEDGER, METRICS, TABLES, TableSchema
from fewjoules.provenance import MARKS
from tests.ledger.strategies import rows

DOCS = Path(__file__).parents[2] / "docs" / "ledger.md"


@pytest.fixture
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_reading_inverts_writing(table):
    @settings(max_examples=30)
    @given(rows(table))
    def check(made):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "table.parquet"
            write_table(file, table, [made])
            found = read_table(file, table)
        assert found.dtype == table.dtype
        for name in table.dtype.names:
            np.testing.assert_array_equal(found[name], made[name])

    check()


def test_missing_values_are_null_but_a_diverged_loss_stays_nan(scratch):
    made = METRICS.new_rows(2)
    made["train_loss"] = np.nan
    made["test_accuracy"] = [0.5, np.nan]
    write_table(scratch / "m.parquet", METRICS, [made])
    found = pq.read_table(scratch / "m.parquet")
    assert found.column("test_accuracy").to_pylist() == [0.5, None]
    assert found.column("total_joules").null_count == 2
    assert found.column("train_loss").null_count == 0
    assert np.isnan(found.column("train_loss").to_numpy()).all()


def test_the_file_names_its_table_its_version_and_each_unit(scratch):
    write_table(scratch / "l.parquet", LEDGER, [])
    schema = pq.read_schema(scratch / "l.parquet")
    assert schema.metadata == {b"fewjoules.table": b"ledger", b"fewjoules.schema_version": b"2"}
    assert schema.field("uplink_joules").metadata[b"unit"] == b"joules"
    assert [schema.field(column.name).nullable for column in LEDGER.columns] == [c.nullable for c in LEDGER.columns]
    assert pq.ParquetFile(scratch / "l.parquet").num_row_groups == 0


def test_row_groups_have_one_size_and_are_compressed(scratch, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 8)
    write_table(scratch / "l.parquet", LEDGER, [LEDGER.new_rows(5), LEDGER.new_rows(0), LEDGER.new_rows(14)])
    metadata = pq.ParquetFile(scratch / "l.parquet").metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [8, 8, 3]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert [block.size for block in read_blocks(scratch / "l.parquet", LEDGER)] == [8, 8, 3]


def test_another_table_another_version_and_other_columns_are_refused(scratch):
    file = scratch / "t.parquet"
    write_table(file, METRICS, [METRICS.new_rows(1)])
    with pytest.raises(InvalidInputError, match=r"fewjoules.table must be 'ledger', got 'metrics'"):
        read_table(file, LEDGER)
    write_table(file, TableSchema("metrics", 2, METRICS.columns), [])
    with pytest.raises(InvalidInputError, match=r"schema_version must be '1', got '2'"):
        read_table(file, METRICS)
    write_table(file, TableSchema("metrics", 1, METRICS.columns[:-1]), [])
    with pytest.raises(InvalidInputError, match=r"14 columns, check \['total_payload_bytes'\]"):
        read_table(file, METRICS)
    write_table(file, TableSchema("metrics", 1, METRICS.columns[::-1]), [])
    with pytest.raises(InvalidInputError, match="check their order"):
        read_table(file, METRICS)
    pq.write_table(pa.table({"round": [1]}), file)
    with pytest.raises(InvalidInputError, match="must be 'metrics', got none"):
        read_table(file, METRICS)


def test_a_missing_file_is_named(scratch):
    with pytest.raises(InvalidInputError, match=r"absent.parquet: cannot be read"):
        read_table(scratch / "absent.parquet", METRICS)


def test_names_that_are_no_text_are_refused(scratch):
    file = scratch / "m.parquet"
    write_table(file, METRICS, [METRICS.new_rows(3)])
    file.write_bytes(file.read_bytes().replace(b"epochs", b"\x80pochs"))
    with pytest.raises(InvalidInputError, match="cannot be read as a Parquet file"):
        read_table(file, METRICS)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_bytes_are_read_or_refused_but_never_crash(data):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.parquet"
        write_table(file, METRICS, [METRICS.new_rows(3)])
        damaged = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 8))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        file.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        with contextlib.suppress(InvalidInputError):
            read_table(file, METRICS)


@pytest.fixture
def small_disk():
    """Files of at most 20,000 bytes, as on a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_oserror_and_leaves_nothing(scratch, small_disk):
    made = LEDGER.new_rows(50_000)
    made["uplink_joules"] = np.random.default_rng(0).random(50_000)
    with pytest.raises(OSError, match="File too large"):
        write_table(scratch / "l.parquet", LEDGER, [made])
    assert list(scratch.iterdir()) == []


def test_an_interrupted_file_leaves_the_old_one(scratch):
    file = scratch / "page.html"
    file.write_bytes(b"old")

    def interrupted():
        with whole_file(file) as stream:
            stream.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_bytes() == b"old"
    assert [path.name for path in scratch.iterdir()] == ["page.html"]


@pytest.mark.parametrize("place", ["gone/page.html", "file/page.html", "x" * 300])
def test_a_file_that_cannot_be_made_is_named_and_not_its_partial_copy(scratch, place):
    (scratch / "file").touch()
    with pytest.raises(OSError) as caught, whole_file(scratch / place):  # noqa: PT011 - its file is asserted
        pass
    assert caught.value.filename == str(scratch / place)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_documentation_lists_every_column(table):
    section = re.split(r"^## ", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"`{table.name}.parquet`"))
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (yes|) ?\| (.+) \|$", text, flags=re.MULTILINE)
    assert listed == [
        (c.name, "string" if c.labels else np.dtype(c.dtype).name, c.unit, "yes" if c.nullable else "", c.meaning)
        for c in table.columns
    ]


def test_a_ledger_of_version_1_is_read_with_what_it_does_not_know_missing(scratch):
    old = LEDGER.of_version(1)
    made = old.new_rows(3)
    made["uplink_joules"] = [1.0, 2.0, 4.0]
    write_table(scratch / "l.parquet", old, [made])
    found = read_table(scratch / "l.parquet", LEDGER)
    assert found["uplink_joules"].tolist() == [1.0, 2.0, 4.0]
    assert np.isnan(found["tail_joules"]).all()
    assert [MARKS[code] for code in found["compute_mark"]] == ["assumed"] * 3
    (some,) = read_blocks(scratch / "l.parquet", LEDGER, ["device", "uplink_joules", "tail_joules"])
    assert some["uplink_joules"].sum() == 7.0


def test_marks_are_words_in_the_file_and_other_words_are_refused(scratch):
    made = LEDGER.new_rows(4)
    made["uplink_mark"] = [0, 1, 2, 3]
    write_table(scratch / "l.parquet", LEDGER, [made])
    table = pq.read_table(scratch / "l.parquet")
    assert table.column("uplink_mark").to_pylist() == list(MARKS)
    place = table.schema.get_field_index("uplink_mark")
    guessed = table.set_column(place, table.schema.field(place), pa.array(["guessed"] * 4))
    pq.write_table(guessed, scratch / "l.parquet")
    with pytest.raises(InvalidInputError, match="uplink_mark must be one of measured, fitted, profile, assumed"):
        read_table(scratch / "l.parquet", LEDGER)


def test_metrics_of_the_users_own_are_columns_of_version_2_and_found_again(scratch):
    table, file = METRICS.with_metrics(["f1", "recall@5"]), scratch / "metrics.parquet"
    made = table.new_rows(3)
    made["round"], made["test_f1"] = [1, 2, 3], [np.nan, 0.5, 0.75]
    write_table(file, table, [made])
    for known in (METRICS, table):
        np.testing.assert_equal(read_table(file, known)["test_f1"], made["test_f1"])
        assert read_table(file, known).dtype == made.dtype
    assert pq.read_schema(file).metadata[b"fewjoules.schema_version"] == b"2"
    assert METRICS.with_metrics([]) is METRICS, "files without them are as they were"
    with pytest.raises(InvalidInputError, match=re.escape("must have the columns of the metrics")):
        read_table(file, METRICS.with_metrics(["f1"]))
    write_table(file, METRICS, [METRICS.new_rows(2)])
    assert np.isnan(read_table(file, table)["test_f1"]).all(), "a run that had none before"
