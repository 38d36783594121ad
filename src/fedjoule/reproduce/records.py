"""What trainings left: one JSON file each, so that a stopped reproduction goes on where it was."""

import json
import re
from pathlib import Path
from typing import Any

from fedjoule.errors import InvalidInputError
from fedjoule.files import whole_file

RECORD_VERSION = 1
Record = dict[str, Any]
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Records:
    """Records of studies in a folder: ``FOLDER/STUDY/NAME.json``."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder

    def load(self, study: str, name: str) -> Record | None:
        """The record, or None if it was not made."""
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
        """All records of a study."""
        names = sorted(file.stem for file in (self.folder / study).glob("*.json"))
        return [record for record in (self.load(study, name) for name in names) if record is not None]

    def save(self, study: str, name: str, record: Record) -> None:
        """Write a record whole."""
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
