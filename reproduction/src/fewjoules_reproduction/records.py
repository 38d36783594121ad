"""Records of trainings: one JSON file each, so that a stopped reproduction can be continued."""

import json
import re
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file

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
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{file}: must be JSON ({error})") from error
        if not isinstance(record, dict) or record.get("version") != RECORD_VERSION:
            got = record.get("version") if isinstance(record, dict) else type(record).__name__
            raise InvalidInputError(f"{file}: version must be {RECORD_VERSION}, got {got!r}")
        return record

    def of(self, study: str) -> list[Record]:
        """Read all records of a study; each must have the keys of its kind."""
        stems = sorted(file.stem for file in (self.folder / study).glob("*.json"))
        found = []
        for name in stems:
            record = self.load(study, name) if _PLAIN_NAME.fullmatch(name) else None
            if record is not None:
                _require_parts(self._file(study, name), record)
                found.append(record)
        return found

    def save(self, study: str, name: str, record: Record) -> None:
        """Write a record, completely or not at all."""
        file = self._file(study, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            stream.write((json.dumps({"version": RECORD_VERSION} | record, allow_nan=False) + "\n").encode())

    def _file(self, study: str, name: str) -> Path:
        for part in (study, name):
            if not _PLAIN_NAME.fullmatch(part):
                raise InvalidInputError(
                    f"a record's name must be of small letters, digits, dots and hyphens, got {part!r}"
                )
        return self.folder / study / f"{name}.json"


def _require_parts(file: Path, record: Record) -> None:
    order = record.get("order")
    parts = _PARTS.get(str(order.get("kind")), ()) if isinstance(order, dict) else ()
    for part in parts:
        if part not in record:
            raise InvalidInputError(f"{file}: must have {part!r}, got none")
    if "curve" not in parts:
        return
    curve = record["curve"] if isinstance(record["curve"], dict) else {}
    lengths = [len(curve[name]) if isinstance(curve.get(name), list) else None for name in CURVE_COLUMNS]
    if len(set(lengths)) != 1 or lengths[0] is None:
        raise InvalidInputError(f"{file}: curve must have {len(CURVE_COLUMNS)} lists of one length, got {lengths}")
