"""Tables as Parquet files whose bytes depend only on their rows. pyarrow is imported where it is used."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra
from fewjoules.files import require_regular, whole_file
from fewjoules.ledger.schema import METRICS, RowArray, TableSchema

GROUP_ROWS = 65_536
_TABLE_KEY, _VERSION_KEY, _UNIT_KEY = b"fewjoules.table", b"fewjoules.schema_version", b"unit"
_FIRST_NAME = b"fedjoule."  # in place of ``fewjoules.`` in files written before the package was renamed


def write_table(path: str | Path, table: TableSchema, blocks: Iterable[RowArray], *, lasting: bool = True) -> None:
    """Write the rows of all blocks, in row groups of a fixed size whatever the size of the blocks.

    Without ``lasting`` a power cut may lose the file.
    """
    require_extra("dataframes", f"writing {path}", "pyarrow")
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    with (
        whole_file(Path(path), lasting=lasting) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        for group in _regrouped(table, blocks):
            writer.write_batch(_to_arrow(group, table, schema), row_group_size=GROUP_ROWS)


def read_table(path: str | Path, table: TableSchema) -> RowArray:
    """Read all rows of a file that ``write_table`` wrote."""
    blocks = list(read_blocks(path, table))
    return np.concatenate(blocks) if blocks else table.new_rows(0)


def read_blocks(path: str | Path, table: TableSchema, columns: list[str] | None = None) -> Iterator[RowArray]:
    """Read the rows of a file, at most ``GROUP_ROWS`` at a time; columns not asked for keep their defaults."""
    with _opened(path, table) as (file, found):
        named = set(file.schema_arrow.names)
        columns = None if columns is None else [name for name in columns if name in named]
        for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=columns, use_threads=False):
            yield _from_arrow(batch, found)


def read_group(path: str | Path, table: TableSchema, group: int, columns: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read some columns of one row group, each as an array; those that the file does not have keep their defaults."""
    with _opened(path, table) as (file, found):
        wanted, named = list(dict.fromkeys(columns)), set(file.schema_arrow.names)
        read = file.read_row_group(group, columns=[name for name in wanted if name in named], use_threads=False)
        missing = found.new_rows(read.num_rows if set(wanted) - named else 0)
        labels = {column.name: column.labels for column in found.columns}
        return {
            name: _array(read.column(name), name, labels[name]) if name in named else missing[name] for name in wanted
        }


def _array(column: Any, name: str, labels: tuple[str, ...]) -> NDArray[Any]:
    values = _codes(name, column, labels) if labels else column
    found: NDArray[Any] = values.to_numpy()
    return found


def groups_of(path: str | Path, table: TableSchema) -> list[tuple[int, int, int]]:
    """Return the number of rows, the first and the last round of each row group, from the end of the file alone.

    Where the file does not tell the rounds of a group, they may be any.
    """
    with _opened(path, table) as (file, _):
        place = file.schema_arrow.names.index("round")
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        found = []
        for group in groups:
            told = group.column(place).statistics
            known = told is not None and told.has_min_max
            found.append((group.num_rows, *((int(told.min), int(told.max)) if known else (0, 2**31 - 1))))
        return found


@contextlib.contextmanager
def _opened(path: str | Path, table: TableSchema) -> Iterator[tuple[Any, TableSchema]]:
    """Open a file of the table; give it with the table as the file has it, and refuse any other file."""
    require_extra("dataframes", f"reading {path}", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_regular(path)
    try:
        with pq.ParquetFile(path) as file:
            found = _found_table(table, file.schema_arrow)
            _require_table(path, found, file.schema_arrow)
            yield file, found
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InvalidInputError(f"{path}: cannot be read as a Parquet file ({reason})") from error


def arrow_schema(table: TableSchema) -> Any:
    """Return the Arrow schema of a table: types, units, name and version."""
    import pyarrow as pa

    fields = [
        pa.field(
            column.name,
            pa.string() if column.labels else pa.from_numpy_dtype(np.dtype(column.dtype)),
            nullable=column.nullable,
            metadata={_UNIT_KEY: column.unit.encode()},
        )
        for column in table.columns
    ]
    return pa.schema(fields, metadata={_TABLE_KEY: table.name.encode(), _VERSION_KEY: str(table.version).encode()})


def arrow_table(rows: RowArray, table: TableSchema) -> Any:
    """Return rows as an Arrow table: what is missing is null, and labels are words."""
    import pyarrow as pa

    schema = arrow_schema(table)
    return pa.Table.from_batches([_to_arrow(rows, table, schema)], schema)


def _found_table(table: TableSchema, found: Any) -> TableSchema:
    """Return the metrics with the columns that a file has for metrics of the user's own."""
    told = (found.metadata or {}).get(_VERSION_KEY, b"")
    extended = table.name == METRICS.name and table.version < 2 and told == b"2"
    return table.with_metrics(table.own_metrics(found.names)) if extended else table


def _require_table(path: str | Path, table: TableSchema, found: Any) -> None:
    versions = [str(version) for version in range(1, table.version + 1)]
    told = {}
    for key, allowed in ((_TABLE_KEY, [table.name]), (_VERSION_KEY, versions)):
        value = (found.metadata or {}).get(key, (found.metadata or {}).get(_FIRST_NAME + key.partition(b".")[2]))
        told[key] = None if value is None else value.decode("utf-8", "replace")
        if told[key] not in allowed:
            got = "none" if value is None else repr(told[key])
            raise InvalidInputError(f"{path}: {key.decode()} must be {' or '.join(map(repr, allowed))}, got {got}")
    table = table.of_version(int(told[_VERSION_KEY] or 0))
    expected_schema = arrow_schema(table)
    if not found.equals(expected_schema):
        wrong = [
            name for name in {*found.names, *expected_schema.names} if not _same_field(found, expected_schema, name)
        ]
        raise InvalidInputError(
            f"{path}: must have the columns of the {table.name}, version {table.version}, in order; "
            f"got {len(found.names)} columns, check {sorted(wrong) or 'their order'}"
        )


def _same_field(found: Any, expected: Any, name: str) -> bool:
    indices = [schema.get_all_field_indices(name) for schema in (found, expected)]
    return all(len(index) == 1 for index in indices) and found.field(name).equals(expected.field(name))


def _regrouped(table: TableSchema, blocks: Iterable[RowArray]) -> Iterator[RowArray]:
    """Yield the rows in blocks of ``GROUP_ROWS``, the last one shorter; each is overwritten by the next."""
    group = np.empty(GROUP_ROWS, dtype=table.dtype)
    filled = 0
    for block in blocks:
        first = 0
        while first < block.size:
            taken = min(GROUP_ROWS - filled, block.size - first)
            group[filled : filled + taken] = block[first : first + taken]
            first, filled = first + taken, filled + taken
            if filled == GROUP_ROWS:
                yield group
                filled = 0
    if filled:
        yield group[:filled]


def _to_arrow(rows: RowArray, table: TableSchema, schema: Any) -> Any:
    import pyarrow as pa

    arrays = []
    for column in table.columns:
        values = np.ascontiguousarray(rows[column.name])
        if column.labels:
            arrays.append(pa.DictionaryArray.from_arrays(values, list(column.labels)).cast(pa.string()))
        else:
            arrays.append(pa.array(values, mask=np.isnan(values) if column.nullable else None))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _from_arrow(batch: Any, table: TableSchema) -> RowArray:
    rows = table.new_rows(batch.num_rows)
    labels = {column.name: column.labels for column in table.columns}
    for name in batch.schema.names:
        values = _codes(name, batch.column(name), labels[name]) if labels[name] else batch.column(name)
        rows[name] = values.to_numpy(zero_copy_only=False)
    return rows


def _codes(name: str, values: Any, labels: tuple[str, ...]) -> Any:
    """Return the numbers of labels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(values, value_set=pa.array(labels))
    if codes.null_count:
        raise InvalidInputError(f"{name} must be one of {', '.join(labels)} in every row")
    return codes
