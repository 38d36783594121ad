"""A user's own partition: a file that says which client has which training sample.

CSV and Parquet have the columns ``sample`` and ``client``, in rows of any order; a NumPy file (.npy) has the client of
every sample in turn, or -1 for nobody's. Samples and clients are counted from 0. A sample belongs to one client at
most, samples that the file leaves out are not trained on, and every client has at least one.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewjoules.arrays import IntArray
from fewjoules.errors import InvalidInputError
from fewjoules.extras import require_extra
from fewjoules.files import require_regular
from fewjoules.measurements import read_whole_numbers

KINDS = (".csv", ".parquet", ".npy")
_COLUMNS = ("sample", "client")
_NOBODY = -1


def read_partition(path: Path, samples: int, clients: int) -> list[IntArray]:
    """Return the sorted sample numbers of each client; an error names the file and the line."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InvalidInputError(f"{path}: a partition file must end in {', '.join(KINDS)}, got {kind!r}")
    require_regular(path)
    read = {".csv": _from_csv, ".parquet": _from_parquet, ".npy": _from_npy}[kind]
    rows = read(path, samples, clients)
    rows.require_one_owner()
    sizes = np.bincount(rows.clients, minlength=clients)
    if (sizes == 0).any():
        raise InvalidInputError(
            f"{path}: each of {clients} clients must have at least one sample, got none for client {sizes.argmin()}"
        )
    order = np.lexsort((rows.samples, rows.clients))
    return np.split(rows.samples[order], np.cumsum(sizes)[:-1])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Sample and client of each row, and how errors name it: ``word`` and its number."""

    path: Path
    word: str
    numbers: IntArray
    samples: IntArray
    clients: IntArray

    def require_within(self, samples: int, clients: int) -> "_Rows":
        """Refuse a sample or a client that does not exist."""
        for name, values, count in (("sample", self.samples, samples), ("client", self.clients, clients)):
            bad = (values < 0) | (values >= count)
            if bad.any():
                row = int(bad.argmax())
                raise InvalidInputError(
                    f"{self.path}, {self.word} {self.numbers[row]}: {name} must be a whole number from 0 to "
                    f"{count - 1}, got {values[row]}"
                )
        return self

    def require_one_owner(self) -> None:
        """Refuse a sample that is named twice."""
        order = np.argsort(self.samples, kind="stable")
        again = np.flatnonzero(np.diff(self.samples[order]) == 0)
        if again.size:
            second = int(order[again + 1].min())
            first = int(np.flatnonzero(self.samples == self.samples[second])[0])
            raise InvalidInputError(
                f"{self.path}, {self.word} {self.numbers[second]}: sample {self.samples[second]} must belong to one "
                f"client, got it a second time after {self.word} {self.numbers[first]}"
            )


def _from_csv(path: Path, samples: int, clients: int) -> _Rows:
    lines, columns = read_whole_numbers(path, dict(zip(_COLUMNS, (samples - 1, clients - 1), strict=True)))
    return _Rows(path, "line", lines, *(columns[name] for name in _COLUMNS))


def _from_parquet(path: Path, samples: int, clients: int) -> _Rows:
    require_extra("dataframes", f"reading {path}", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, columns=list(_COLUMNS))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: must be a Parquet file ({str(error).splitlines()[0]})") from error
    found = []
    for name in _COLUMNS:
        if name not in table.column_names:
            raise InvalidInputError(f"{path}: must have the columns {' and '.join(_COLUMNS)}, got no {name}")
        column = table[name]
        if not pa.types.is_integer(column.type) or column.null_count:
            raise InvalidInputError(f"{path}: {name} must be whole numbers without gaps, got {column.type}")
        found.append(column.to_numpy().astype(np.int64))
    if not table.num_rows:
        raise InvalidInputError(f"{path}: must have at least one row")
    return _Rows(path, "row", np.arange(table.num_rows), *found).require_within(samples, clients)


def _from_npy(path: Path, samples: int, clients: int) -> _Rows:
    try:
        owners = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInputError(f"{path}: must be an array of NumPy's .npy format ({error})") from error
    shape = getattr(owners, "shape", None)
    if shape != (samples,) or not np.issubdtype(owners.dtype, np.integer):
        got = "several arrays" if shape is None else f"{owners.dtype} of shape {shape}"
        raise InvalidInputError(
            f"{path}: must be one whole number for each of {samples} samples, its client or {_NOBODY}, got {got}"
        )
    owners = owners.astype(np.int64)
    used = np.flatnonzero(owners != _NOBODY)
    return _Rows(path, "entry", used, used, owners[used]).require_within(samples, clients)
