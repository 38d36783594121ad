"""What meters read while a run trains, beside its ledger: idle power included, and over all parts of a resumed run."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fewjoules.errors import FewJoulesWarning, InvalidInputError, MeterError, require_integer, require_number, shown
from fewjoules.metering.meter import Meter
from fewjoules.runs.files import METER
from fewjoules.runs.sealed import read_sealed, write_sealed

SAVE_SECONDS = 10.0  # a kill loses at most what was read since
_MANY = 2**53


@dataclass(frozen=True, slots=True)
class Metered:
    """Joules by meter, None where one failed, in so many seconds; a run that was resumed has several ``parts``."""

    joules: Mapping[str, float | None]
    seconds: float
    parts: int

    @classmethod
    def nothing(cls) -> "Metered":
        """Return the reading of a run that has not begun."""
        return cls({}, 0.0, 0)

    @classmethod
    def from_dict(cls, data: Any) -> "Metered":
        """Return what ``to_dict`` gave; refuse anything else."""
        if not isinstance(data, dict) or not isinstance(data.get("joules"), dict):
            raise InvalidInputError(f"metered must be a table with joules, seconds and parts, got {shown(data)}")
        joules = {
            str(name): None if value is None else require_number(f"metered.joules of {name}", value, low=0.0)
            for name, value in data["joules"].items()
        }
        seconds = require_number("metered.seconds", data.get("seconds"), low=0.0)
        return cls(joules, seconds, require_integer("metered.parts", data.get("parts"), low=0, high=_MANY))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return asdict(self)

    def then(self, joules: Mapping[str, float | None], seconds: float) -> "Metered":
        """Return the reading with one more part; a meter that a part lacks has no sum."""
        if not self.parts:
            return Metered(dict(joules), seconds, 1)
        sums = {name: _sum(self.joules.get(name), joules.get(name)) for name in {**self.joules, **joules}}
        return Metered(sums, self.seconds + seconds, self.parts + 1)


def _sum(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else before + now


class MeterLog:
    """Reads the meters of a run; a meter that fails is warned of and given up, and the training goes on."""

    def __init__(self, meters: Sequence[Meter], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin a part now."""
        self._meters, self._clock = list(meters), clock
        self._failed: set[str] = set()
        self._before, self._began = Metered.nothing(), clock()
        self._saved = self._began

    def take_up(self, folder: Path) -> None:
        """Add to what earlier parts of the run in the folder have read."""
        path = folder / METER
        if path.exists():
            try:
                self._before = Metered.from_dict(read_sealed(path))
            except InvalidInputError as error:
                raise InvalidInputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error

    def total(self) -> Metered:
        """Return the reading of all parts so far."""
        joules = {meter.described: self._joules(meter) for meter in self._meters}
        return self._before.then(joules, self._clock() - self._began)

    def save(self, folder: Path) -> None:
        """Write the reading, for a resume."""
        self._saved = self._clock()
        write_sealed(folder / METER, self.total().to_dict())

    def save_now_and_then(self, folder: Path) -> None:
        """Write the reading if the last time is long ago."""
        if self._clock() - self._saved >= SAVE_SECONDS:
            self.save(folder)

    def close(self) -> None:
        """Stop reading."""
        for meter in self._meters:
            meter.close()

    def _joules(self, meter: Meter) -> float | None:
        if meter.described in self._failed:
            return None
        try:
            return meter.joules()
        except MeterError as error:
            self._failed.add(meter.described)
            warnings.warn(f"a meter is given up: {error}", FewJoulesWarning, stacklevel=2)
            return None
