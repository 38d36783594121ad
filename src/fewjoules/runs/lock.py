"""A folder that one process at a time may write to."""

import contextlib
import errno
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.files import make_folder
from fewjoules.torchrun import is_first_rank

LOCK = ".lock"
_LOOKS = 3  # attempts at a lock: one who only asks whether it is held lets go at once
_LOOK_SECONDS = 0.02
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; refuse if another one that lives holds it.

    The system lets go of the lock when its process ends, however it ends, so that no lock is ever stale. Where the file
    system knows no locks, a warning says so. Of the ranks of a training only the first holds it.
    """
    descriptor = _acquired(folder) if is_first_rank() else None
    try:
        yield
    finally:
        if descriptor is not None:
            (folder / LOCK).unlink(missing_ok=True)
            os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a living process holds a folder; False where the file system knows no locks."""
    try:
        import fcntl

        descriptor = os.open(folder / LOCK, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (ImportError, OSError):  # not a POSIX system, or no lock
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False


def _acquired(folder: Path) -> int | None:
    """A descriptor of the folder's lock file that holds the lock; None where there are no locks."""
    make_folder(folder)
    file = folder / LOCK
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _hold(descriptor, folder):
                file.unlink(missing_ok=True)
                os.close(descriptor)
                return None
            if _is_at(descriptor, file):
                os.ftruncate(descriptor, 0)
                with contextlib.suppress(OSError):  # on a full disk the lock holds without a name
                    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed the file before this process had the lock: try the new one


def _hold(descriptor: int, folder: Path) -> bool:
    """Take the lock, or refuse; False where there are no locks."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return _without_locks(folder)
    for looks_left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return _without_locks(folder)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            if looks_left:
                time.sleep(_LOOK_SECONDS)
                continue
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise InvalidInputError(f"{folder}: {holder} is writing to this folder; wait until it has ended") from error
        return True
    raise AssertionError  # the last look returns or raises


def _without_locks(folder: Path) -> bool:
    warnings.warn(
        f"{folder}: its file system has no locks; start no other run in this folder", FewJoulesWarning, stacklevel=5
    )
    return False


def _is_at(descriptor: int, file: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        named = os.stat(file)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
