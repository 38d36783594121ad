"""Write files that appear whole or not at all, notice damaged ones, read regular files only, and parse TOML."""

import contextlib
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fewjoules.errors import InvalidInputError, shown

PARTIAL_SUFFIX = ".partial"
MAX_TEXT_BYTES = 256 * 2**20
_BLOCK_BYTES = 1 << 20


@contextlib.contextmanager
def whole_file(target: Path, *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a stream whose bytes become ``target`` when the block ends without an error; otherwise remove them.

    An error of the system, such as a full disk, names ``target``. Without ``lasting`` a power cut may lose the file,
    which is written faster.
    """
    partial = _partial_of(target)
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        os.replace(partial, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(partial), partial):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    if lasting:
        sync_folder(target.parent)


def require_place(option: str, target: Path) -> None:
    """Refuse a path at which no file can be written; a file that exists stays as it is, and none is left."""
    if os.path.isdir(target):
        raise InvalidInputError(f"{option} must be a file, got the folder {_named(target)}")
    if not os.path.isdir(target.parent):
        raise InvalidInputError(f"{option} must be a file in a folder that exists, got {_named(target)}")
    partial = _partial_of(target)
    try:
        partial.open("xb").close()
        partial.unlink()
    except FileExistsError:  # another process is writing the file, or was killed while it did
        return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInputError(
            f"{option} must be a file that can be written, got {_named(target)} ({reason})"
        ) from error


def _named(path: Path) -> str:
    return shown(str(path), 200)


def _partial_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{PARTIAL_SUFFIX}")


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, where they are missing, so that a power cut leaves them."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in new:
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_partials(folder: Path) -> None:
    """Remove files that a kill left half written."""
    for file in folder.glob(f".*{PARTIAL_SUFFIX}"):
        file.unlink()


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read it; refuse folders, pipes and devices, without waiting for a writer."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
    raise InvalidInputError(f"{path}: must be a regular file, got {kind}")


def require_regular(path: str | Path) -> None:
    """Refuse what ``open_regular`` refuses, for readers that open files themselves."""
    open_regular(path).close()


def checksum_of(path: Path) -> int:
    """CRC-32 of the bytes of a file; an error names a file that cannot be read."""
    found = 0
    try:
        with open_regular(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                found = zlib.crc32(block, found)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror})") from error
    return found


def require_intact(path: Path, checksum: int) -> None:
    """Refuse a file that no longer has the checksum it was written with."""
    found = checksum_of(path)
    if found != checksum:
        raise InvalidInputError(f"{path}: the file is damaged: its checksum must be {shown(checksum)}, got {found}")


def read_text(path: str | Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a UTF-8 file, or raise an error that names it."""
    file = Path(path)
    with open_regular(file) as stream:
        try:
            data = stream.read(max_bytes + 1)
        except OSError as error:
            raise InvalidInputError(f"{file}: cannot be read ({error.strerror or error})") from error
    if len(data) > max_bytes:
        raise InvalidInputError(f"{file}: the file must have at most {max_bytes} bytes, got more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: must be UTF-8 text, got an invalid byte at offset {error.start}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; refuse other text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"must be TOML ({error})") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("must be TOML; a number or the nesting is too large") from error
