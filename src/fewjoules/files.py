"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL_SUFFIX = ".partial"


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes become ``target`` when the block ends well; after an error nothing is left."""
    partial = target.with_name(f".{target.name}{PARTIAL_SUFFIX}")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder last through a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_partials(folder: Path) -> None:
    """Remove what a kill left half written."""
    for file in folder.glob(f".*{PARTIAL_SUFFIX}"):
        file.unlink()
