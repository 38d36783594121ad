"""Files that a scenario names, such as traces: below its own folder, unless the user allows others."""

from dataclasses import dataclass
from pathlib import Path

from fewjoules.errors import InvalidInputError, shown


@dataclass(frozen=True, slots=True)
class ScenarioFolder:
    """The folder of a scenario; with ``allow_outside`` the scenario may name files anywhere."""

    path: Path
    allow_outside: bool = False

    def file(self, key: str, name: str) -> Path:
        """Return the file that a key names; refuse one outside, also if ``..`` or a symbolic link leads there."""
        file = self.path / name
        if not self.allow_outside and not self._holds(file):
            raise InvalidInputError(
                f"{key} must name a file below the folder of the scenario, got {shown(name)} "
                "(--allow-outside, in Python allow_outside=True, lets a scenario name others)"
            )
        return file

    def _holds(self, file: Path) -> bool:
        try:
            return file.resolve().is_relative_to(self.path.resolve())
        except (OSError, ValueError, RuntimeError):  # links in a circle, or a null character
            return False
