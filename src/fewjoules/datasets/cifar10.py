"""CIFAR-10 in its binary version: six files of records of one label and 3 x 32 x 32 pixels, unpacked or archived.

The version for Python is pickled, and a pickle can run any code when it is opened; it is never read.
"""

import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np

from fewjoules.arrays import IntArray
from fewjoules.datasets.dataset import Images
from fewjoules.errors import InvalidInputError
from fewjoules.files import open_regular

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
SHAPE = (3, 32, 32)
CLASSES = 10
RECORD_BYTES = 1 + 3 * 32 * 32
MAX_RECORDS = 10_000  # in one file


def read(source: Path) -> tuple[Images, IntArray, Images, IntArray]:
    """Read training images and labels, test images and labels; ``source`` is one of the .bin files or the archive."""
    files = _from_folder(source.parent) if source.suffix == ".bin" else _from_archive(source)
    train_images, train_labels = _split(b"".join(files[name] for name in TRAIN_FILES))
    return train_images, train_labels, *_split(files[TEST_FILE])


def _from_folder(folder: Path) -> dict[str, bytes]:
    files = {}
    for name in (*TRAIN_FILES, TEST_FILE):
        file = folder / name
        with open_regular(file) as stream:
            try:
                files[name] = stream.read(MAX_RECORDS * RECORD_BYTES + 1)
            except OSError as error:
                raise InvalidInputError(f"{file}: cannot be read ({error.strerror or error})") from error
        _require_records(str(file), len(files[name]))
    return files


def _from_archive(archive: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    wanted = {*TRAIN_FILES, TEST_FILE}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if name in wanted and member.isfile() else None
                if content is not None:
                    _require_records(f"{archive}: {name}", member.size)
                    files[name] = content.read()
                if files.keys() == wanted:
                    return files
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise InvalidInputError(f"{archive}: must be a whole .tar.gz archive ({error})") from error
    missing = ", ".join(sorted(wanted - files.keys()))
    raise InvalidInputError(f"{archive}: must hold the binary version of CIFAR-10, but has no {missing}")


def _require_records(name: str, size: int) -> None:
    if size % RECORD_BYTES or not RECORD_BYTES <= size <= MAX_RECORDS * RECORD_BYTES:
        raise InvalidInputError(
            f"{name}: must hold 1 to {MAX_RECORDS} records of {RECORD_BYTES} bytes, got "
            + (f"{size} bytes" if size <= MAX_RECORDS * RECORD_BYTES else "more")
        )


def _split(records: bytes) -> tuple[Images, IntArray]:
    table = np.frombuffer(records, dtype=np.uint8).reshape(-1, RECORD_BYTES)
    return table[:, 1:].copy().reshape(-1, *SHAPE), table[:, 0].astype(np.int64)
