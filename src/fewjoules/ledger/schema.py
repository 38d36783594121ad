"""The two tables of a run, column by column. docs/ledger.md lists the same columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import InvalidInputError
from fewjoules.provenance import KINDS, MARKS

RowArray = NDArray[np.void]  # a structured array with the fields of a table
OWN_METRIC = "a metric of the user's own on the test set; missing where the round was not evaluated"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; if ``nullable``, a missing value is NaN in NumPy and null in Parquet.

    A column with ``labels`` holds their numbers in NumPy and the labels themselves in Parquet. ``since`` is the first
    version of the table that has the column.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    nullable: bool = False
    labels: tuple[str, ...] = ()
    since: int = 1


@dataclass(frozen=True)
class TableSchema:
    """A named list of columns with a version."""

    name: str
    version: int
    columns: tuple[Column, ...]

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """Type of a row in memory."""
        return np.dtype([(column.name, column.dtype) for column in self.columns])

    def of_version(self, version: int) -> "TableSchema":
        """Return the table as it was in an earlier version."""
        return replace(self, version=version, columns=tuple(one for one in self.columns if one.since <= version))

    def with_metrics(self, names: Sequence[str]) -> "TableSchema":
        """Return the table with a column test_<name> for each metric of the user's own, which version 2 may have."""
        if not names:
            return self
        own = (Column(f"test_{name}", "f8", "1", OWN_METRIC, nullable=True, since=2) for name in names)
        return replace(self, version=max(2, self.version), columns=(*self.columns, *own))

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the metrics of the user's own that the table has a column for."""
        return tuple(one.name.removeprefix("test_") for one in self.columns if one.meaning == OWN_METRIC)

    def own_metrics(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the metrics of the user's own among the columns of a file: what follows the columns of this table."""
        known = [column.name for column in self.columns]
        rest = list(names)[len(known) :]
        own = [name.removeprefix("test_") for name in rest if name.startswith("test_")]
        return tuple(own) if list(names)[: len(known)] == known and len(own) == len(rest) else ()

    def new_rows(self, count: int) -> RowArray:
        """Return rows to fill in: zeros, NaN where a value may be missing, and the last label."""
        rows = np.zeros(count, dtype=self.dtype)
        for column in self.columns:
            if column.nullable:
                rows[column.name] = np.nan
            elif column.labels:
                rows[column.name] = len(column.labels) - 1
        return rows

    def require_rows(self, rows: Any) -> RowArray:
        """Return the rows, or refuse an array that is not of this table."""
        found = getattr(rows, "dtype", type(rows).__name__)
        if not isinstance(rows, np.ndarray) or rows.ndim != 1 or found != self.dtype:
            raise InvalidInputError(f"rows of the {self.name} must be a vector of type {self.dtype}, got {found}")
        return rows


LEDGER = TableSchema(
    "ledger",
    2,
    (
        Column("round", "i4", "1", "round, from 1"),
        Column("device", "i4", "1", "device, from 0"),
        Column("delivered", "?", "1", "the upload arrived"),
        Column("local_steps", "i4", "steps", "local steps taken"),
        Column("samples", "i8", "samples", "samples processed in the round"),
        Column("entries", "i8", "entries", "entries k of the update that were sent"),
        Column("payload_bytes", "i8", "bytes", "uplink payload, parameters and buffers"),
        Column("payload_written", "?", "1", "true: the bytes were written; false: counted by `encoded_size`"),
        Column("uplink_joules", "f8", "joules", "sending the payload", nullable=True),
        Column("uplink_seconds", "f8", "seconds", "sending the payload", nullable=True),
        Column("planned_uplink_joules", "f8", "joules", "sending the payload at the average rate", nullable=True),
        Column("downlink_bytes", "i8", "bytes", "received by the device"),
        Column("downlink_joules", "f8", "joules", "receiving", nullable=True),
        Column("downlink_seconds", "f8", "seconds", "receiving", nullable=True),
        Column("compute_joules", "f8", "joules", "local steps", nullable=True),
        Column("compute_seconds", "f8", "seconds", "local steps", nullable=True),
        Column("tail_joules", "f8", "joules", "the radio's tails and promotions", nullable=True, since=2),
        Column("codec_joules", "f8", "joules", "selection, encoding and decoding", nullable=True, since=2),
        Column("codec_seconds", "f8", "seconds", "selection, encoding and decoding", nullable=True, since=2),
        *(Column(f"{kind}_mark", "u1", "1", f"where {kind}_joules come from", labels=MARKS, since=2) for kind in KINDS),
    ),
)

METRICS = TableSchema(
    "metrics",
    1,
    (
        Column("round", "i4", "1", "round, from 1"),
        Column("epochs", "f8", "epochs", "mean passes over the local data so far"),
        Column("batch_size", "i8", "samples", "largest batch of the round"),
        Column("learning_rate", "f8", "1", "learning rate of the last step"),
        Column("train_loss", "f8", "1", "mean over the round's batches"),
        Column("train_accuracy", "f8", "1", "mean over the round's batches, 0 to 1", nullable=True),
        Column("test_loss", "f8", "1", "missing where the round was not evaluated", nullable=True),
        Column("test_accuracy", "f8", "1", "0 to 1; missing where the round was not evaluated", nullable=True),
        Column("round_joules", "f8", "joules", "all devices in this round", nullable=True),
        Column("round_seconds", "f8", "seconds", "slowest device of this round, and the wait before", nullable=True),
        Column("total_joules", "f8", "joules", "all devices so far", nullable=True),
        Column("total_radio_joules", "f8", "joules", "uplink, downlink and tails of all devices so far", nullable=True),
        Column("total_compute_joules", "f8", "joules", "local steps and coding of all devices so far", nullable=True),
        Column("total_seconds", "f8", "seconds", "all rounds so far", nullable=True),
        Column("total_payload_bytes", "i8", "bytes", "uplink payloads of all devices so far"),
    ),
)

TABLES = (LEDGER, METRICS)
