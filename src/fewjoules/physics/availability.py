"""When devices can take part: intervals of a trace, or a function of time."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.extras import require_extra
from fewjoules.files import require_regular
from fewjoules.measurements import read_columns, read_header
from fewjoules.own_code import first_line

SECONDS, ROUNDS = "seconds", "rounds"
PROBE = {SECONDS: 60.0, ROUNDS: 1.0}  # where nobody is available, a function is asked again after so long
MOST_PROBES = 100_000  # 69 days of minutes
_MOST_TIME = 1e15


class AvailableDevices(Protocol):
    """Tells who can take part at a time, in ``unit``; None: seconds where they are known, else rounds."""

    @property
    def unit(self) -> str | None:
        """Unit of time."""

    def at(self, time: float, among: Flags, unit: str) -> tuple[float, Flags] | None:
        """Return how long to wait until one of these devices is available, and who is then; None: never again."""

    def describe(self) -> dict[str, Any]:
        """Return plain values that tell this availability from another one."""

    def require_devices(self, devices: int) -> None:
        """Refuse a fleet of another size."""


class Availability:
    """Intervals in which devices are available. A device without an interval never is.

    Args:
        intervals: Rows (device, from, to); ``to`` is no longer part of the interval.
        period_seconds: Repeats the intervals, for example every 86,400 s.
        unit: "seconds" since the training began, or "rounds".

    Raises:
        InvalidInputError: An interval is empty or negative, or the unit is unknown.

    Examples:
        >>> fj.Availability([(0, 0, 3600), (1, 1800, 7200)], period_seconds=86_400)
    """

    __slots__ = ("_devices", "_ends", "_starts", "period_seconds", "unit")
    period_seconds: float | None
    unit: str

    def __init__(self, intervals: ArrayLike, *, period_seconds: float | None = None, unit: str = SECONDS) -> None:
        """Check the intervals."""
        if unit not in PROBE:
            raise InvalidInputError(f"unit must be one of {', '.join(PROBE)}, got {shown(unit)}")
        rows = _rows(intervals)
        self.unit = unit
        self.period_seconds = None
        if period_seconds is not None:
            if unit != SECONDS:
                raise InvalidInputError("period_seconds needs an availability in seconds, got one in rounds")
            self.period_seconds = require_number("period_seconds", period_seconds, low=0.0, above=True)
        self._devices: IntArray = rows[:, 0].astype(np.int64)
        self._starts: FloatArray = rows[:, 1]
        self._ends: FloatArray = rows[:, 2]
        self._require_intervals()

    @classmethod
    def read(cls, path: str | Path, *, period_seconds: float | None = None) -> "Availability":
        """Read a CSV or Parquet file: ``device`` (from 0) and ``from_seconds``, ``to_seconds``, or ``from_round`` ...

        Rounds count from 1, and ``to_round`` is the last one in which the device is available.
        """
        file = Path(path)
        parquet = file.suffix == ".parquet"
        header = _parquet_names(file) if parquet else read_header(file)
        by_round = "from_round" in header
        names = ("device", *(("from_round", "to_round") if by_round else ("from_seconds", "to_seconds")))
        columns = _parquet_columns(file, names) if parquet else read_columns(file, names, low=0.0)
        rows = np.stack([columns[name] for name in names], axis=1)
        if by_round:
            rows[:, 1] -= 1.0
        try:
            return cls(rows, period_seconds=period_seconds, unit=ROUNDS if by_round else SECONDS)
        except InvalidInputError as error:
            raise InvalidInputError(f"{file}: {error}") from error

    def at(self, time: float, among: Flags, unit: str) -> tuple[float, Flags] | None:
        """Return how long to wait until one of these devices is available, and who is then; None: never again."""
        period = self.period_seconds
        phase = time if period is None else time % period
        own = among[self._devices]
        here = self._at_phase(phase, own, among.size)
        if here.any():
            return 0.0, here
        later = self._starts[own & (self._starts > phase)]
        if later.size:
            start = float(later.min())
            return start - phase, self._at_phase(start, own, among.size)
        if period is None or not own.any():
            return None
        start = float(self._starts[own].min())
        return period - phase + start, self._at_phase(start, own, among.size)

    def describe(self) -> dict[str, Any]:
        """Return the unit, the period and a checksum of the intervals."""
        table = np.stack([self._devices.astype(np.float64), self._starts, self._ends], axis=1)
        return {
            "intervals": len(self._devices),
            "checksum": zlib.crc32(table.tobytes()),
            "unit": self.unit,
            "period_seconds": self.period_seconds,
        }

    def require_devices(self, devices: int) -> None:
        """Refuse a fleet without some device of the intervals."""
        require_integer("a device of the availability", int(self._devices.max()), low=0, high=devices - 1)

    def never_available(self, devices: int) -> IntArray:
        """Return the devices that have no interval."""
        away = np.ones(devices, dtype=bool)
        away[self._devices] = False
        return np.flatnonzero(away)

    def _at_phase(self, phase: float, own: Flags, devices: int) -> Flags:
        here = np.zeros(devices, dtype=bool)
        here[self._devices[own & (self._starts <= phase) & (phase < self._ends)]] = True
        return here

    def _require_intervals(self) -> None:
        period = self.period_seconds
        for row in np.flatnonzero(~(self._starts < self._ends)):
            span = f"{self._starts[row]:g} to {self._ends[row]:g}"
            raise InvalidInputError(f"an interval of the availability must end after it begins, got {span} {self.unit}")
        if period is not None and float(self._ends.max()) > period:
            raise InvalidInputError(
                f"intervals of an availability that repeats must end by period_seconds = {period:g}, "
                f"got one that ends at {self._ends.max():g} s; one across the end is two intervals"
            )


class AvailabilityFunction:
    """A function of the time that returns one flag for each device."""

    __slots__ = ("_function",)
    unit = None

    def __init__(self, function: Callable[[float], ArrayLike]) -> None:
        """Call ``function`` with the seconds, or rounds, since the training began."""
        self._function = function

    def at(self, time: float, among: Flags, unit: str) -> tuple[float, Flags] | None:
        """Ask the function again and again until one of these devices is available; None: it never was."""
        for probe in range(MOST_PROBES if among.any() else 0):
            waited = probe * PROBE[unit]
            here = self._flags(time + waited, among.size) & among
            if here.any():
                return waited, here
        return None

    def describe(self) -> dict[str, Any]:
        """Return the name of the function."""
        named = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return {"function": f"{getattr(self._function, '__module__', '')}:{named}"}

    def require_devices(self, devices: int) -> None:
        """Ask for the first time."""
        self._flags(0.0, devices)

    def _flags(self, time: float, devices: int) -> Flags:
        try:
            found = np.asarray(self._function(time))
        except Exception as error:
            raise InvalidInputError(
                f"availability({time:g}) must return true or false for each of {devices} devices, "
                f"but the function failed: {first_line(error)}"
            ) from error
        if found.shape != (devices,) or found.dtype != np.bool_:
            raise InvalidInputError(
                f"availability must return true or false for each of {devices} devices, "
                f"got {found.dtype} of shape {found.shape}"
            )
        return found


def availability_of(given: Any) -> AvailableDevices:
    """Return an availability given as one, as rows (device, from, to) in seconds, or as a function of time."""
    if isinstance(given, Availability | AvailabilityFunction):
        return given
    if callable(given):
        return AvailabilityFunction(given)
    return Availability(given)


def _rows(intervals: ArrayLike) -> FloatArray:
    try:
        rows = np.array(intervals, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"availability must hold rows (device, from, to), got {shown(intervals)}") from error
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.shape[0] == 0:
        raise InvalidInputError(f"availability must hold rows (device, from, to), got shape {rows.shape}")
    good = np.isfinite(rows).all(axis=1) & (rows >= 0.0).all(axis=1) & (rows[:, 1:] <= _MOST_TIME).all(axis=1)
    good &= (rows[:, 0] == np.floor(rows[:, 0])) & (rows[:, 0] < 2**31)
    if not good.all():
        row = int(np.argmin(good))
        told = ", ".join(f"{value:g}" for value in rows[row])
        raise InvalidInputError(
            f"availability must hold devices from 0 and times of 0 to {_MOST_TIME:g}, got ({told}) in row {row}"
        )
    return rows


def _parquet_names(path: Path) -> list[str]:
    return [str(name) for name in _parquet(path, None).column_names]


def _parquet_columns(path: Path, names: tuple[str, ...]) -> dict[str, FloatArray]:
    table = _parquet(path, list(names))
    columns = {}
    for name in names:
        if table.column_names.count(name) != 1:
            raise InvalidInputError(f"{path}: must have the column {name} once (wanted: {', '.join(names)})")
        try:
            columns[name] = table.column(name).to_numpy().astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{path}: {name} must hold numbers") from error
    return columns


def _parquet(path: Path, columns: list[str] | None) -> Any:
    require_extra("dataframes", f"reading {path}", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_regular(path)
    try:
        with pq.ParquetFile(path) as file:
            present = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
            return file.schema_arrow.empty_table() if present is None else file.read(columns=present)
    except (pa.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InvalidInputError(f"{path}: cannot be read as a Parquet file ({reason})") from error
