"""Read single values from the files of sysfs."""

from pathlib import Path

from fewjoules.errors import MeterError


def read_word(file: Path) -> str | None:
    """Return the text of a file without spaces around it; None where the file is missing or says nothing."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def read_number(file: Path) -> int:
    """Return the whole number in a file; an error names the file."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeterError(f"{file}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise MeterError(f"{file}: must hold a whole number, but does not") from error


def unreadable(files: list[Path]) -> str | None:
    """Say why one of the files cannot be read, and the command that allows it; None if all can be read."""
    closed = [file for file in files if _is_closed(file)]
    if closed:
        return f"this user may not read it; allow it with: sudo chmod o+r {' '.join(map(str, closed))}"
    for file in files:
        try:
            read_number(file)
        except MeterError as error:
            return str(error)
    return None


def _is_closed(file: Path) -> bool:
    try:
        with file.open("rb"):
            return False
    except PermissionError:
        return True
    except OSError:
        return False
