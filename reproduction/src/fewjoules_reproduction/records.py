"""Records of trainings: one JSON file each, so that a stopped reproduction can be continued."""

import re
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.runs.sealed import read_sealed, write_sealed

RECORD_VERSION = 1
Record = dict[str, Any]
CURVE_COLUMNS = (
    *("round", "epochs", "train_loss", "train_accuracy", "test_loss", "test_accuracy"),
    *("total_joules", "total_radio_joules", "total_compute_joules", "total_payload_bytes"),
)
_PARTS = {  # keys that a record of each kind must have
    "tune": ("local_steps", "sparsity", "learning_rate", "rounds"),
    "run": ("stop_reason", "curve"),
    "constants": ("epsilon", "smoothness", "sigma", "gradient_bound", "initial_gap", "batch"),
}
_MANY, _LARGEST = 2**53, 1e100
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Records:
    """Records of studies in a folder: ``FOLDER/STUDY/NAME.json``."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which need not exist yet."""
        self.folder = folder

    def load(self, study: str, name: str) -> Record | None:
        """Read a record; None if there is none."""
        file = self._file(study, name)
        if not file.is_file():
            return None
        record = read_sealed(file)
        if not isinstance(record, dict) or record.get("version") != RECORD_VERSION:
            got = record.get("version") if isinstance(record, dict) else type(record).__name__
            raise InvalidInputError(f"{file}: version must be {RECORD_VERSION}, got {shown(got)}")
        return record

    def of(self, study: str) -> list[Record]:
        """Read all records of a study; each must have the keys of its kind, with values that can be."""
        stems = sorted(file.stem for file in (self.folder / study).glob("*.json"))
        found = []
        for name in stems:
            record = self.load(study, name) if _PLAIN_NAME.fullmatch(name) else None
            if record is not None:
                try:
                    _require_parts(record)
                except InvalidInputError as error:
                    raise InvalidInputError(f"{self._file(study, name)}: {error}") from error
                found.append(record)
        return found

    def save(self, study: str, name: str, record: Record) -> None:
        """Write a record, completely or not at all."""
        file = self._file(study, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(file, {"version": RECORD_VERSION} | record, indent=None)

    def _file(self, study: str, name: str) -> Path:
        for part in (study, name):
            if not _PLAIN_NAME.fullmatch(part):
                raise InvalidInputError(
                    f"a record's name must be of small letters, digits, dots and hyphens, got {part!r}"
                )
        return self.folder / study / f"{name}.json"


def _require_parts(record: Record) -> None:
    order = record.get("order")
    kind = str(order.get("kind")) if isinstance(order, dict) else ""
    for part in _PARTS.get(kind, ()):
        if part not in record:
            raise InvalidInputError(f"must have {part!r}, got none")
    if kind in _CHECKS:
        _CHECKS[kind](record)


def _require_tuned(record: Record) -> None:
    require_integer("local_steps", record["local_steps"], low=1, high=_MANY)
    _require_numbers("sparsity", record["sparsity"], low=1.0)
    require_number("learning_rate", record["learning_rate"], low=0.0, above=True)
    if record["rounds"] is not None:
        require_number("rounds", record["rounds"], low=1.0, high=_LARGEST)


def _require_run(record: Record) -> None:
    if not isinstance(record["stop_reason"], str):
        raise InvalidInputError(f"stop_reason must be a text, got {shown(record['stop_reason'])}")
    curve = record["curve"] if isinstance(record["curve"], dict) else {}
    lengths = [len(curve[name]) if isinstance(curve.get(name), list) else None for name in CURVE_COLUMNS]
    if len(set(lengths)) != 1 or lengths[0] is None:
        raise InvalidInputError(f"curve must have {len(CURVE_COLUMNS)} lists of one length, got {lengths}")
    for name in CURVE_COLUMNS:
        if lengths[0]:
            _require_numbers(f"curve.{name}", curve[name], low=0.0)


def _require_constants(record: Record) -> None:
    for name in _PARTS["constants"]:
        require_number(name, record[name], low=0.0)


def _require_numbers(name: str, values: Any, *, low: float) -> None:
    if not isinstance(values, list) or not values:
        raise InvalidInputError(f"{name} must be a list of numbers, got {shown(values)}")
    for value in values:
        require_number(f"an entry of {name}", value, low=low, high=_LARGEST)


_CHECKS = {"tune": _require_tuned, "run": _require_run, "constants": _require_constants}
