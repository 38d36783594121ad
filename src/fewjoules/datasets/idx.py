"""IDX files, the format of MNIST and its relatives: a magic number, the lengths of the axes, the entries."""

import gzip
import math
import zlib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import InvalidInputError

MAX_BYTES = 2**30  # in one array; the largest known file, Fashion-MNIST's images, has 47 million
_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTES, _BIG_ENDIAN_INT32 = 0x08, 0x0C


def read_bytes(file: Path | Traversable, *, axes: int, max_bytes: int = MAX_BYTES) -> NDArray[np.uint8]:
    """Read the array of unsigned bytes with ``axes`` axes in a plain or gzipped IDX file."""
    return _read(file, _UNSIGNED_BYTES, np.dtype(np.uint8), axes, max_bytes)


def read_int32(file: Path | Traversable, *, axes: int, max_bytes: int = MAX_BYTES) -> NDArray[np.int32]:
    """Read the array of 32-bit integers with ``axes`` axes in a plain or gzipped IDX file."""
    return _read(file, _BIG_ENDIAN_INT32, np.dtype(">i4"), axes, max_bytes).astype(np.int32)


def _read(file: Path | Traversable, kind: int, entry: np.dtype[Any], axes: int, max_bytes: int) -> NDArray[Any]:
    try:
        with file.open("rb") as raw:
            zipped = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                return _parse(raw, kind, entry, axes, max_bytes)
            with gzip.GzipFile(fileobj=raw) as unzipped:
                return _parse(unzipped, kind, entry, axes, max_bytes)
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{file}: must be a whole gzip file ({error})") from error
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read ({error.strerror or error})") from error


def _parse(
    stream: IO[bytes] | gzip.GzipFile, kind: int, entry: np.dtype[Any], axes: int, max_bytes: int
) -> NDArray[Any]:
    magic = bytes([0, 0, kind, axes])
    start = stream.read(len(magic))
    if start != magic:
        raise InvalidInputError(f"an IDX file with {axes} axes must start with {magic.hex()}, got {start.hex()!r}")
    header = stream.read(4 * axes)
    if len(header) != 4 * axes:
        raise InvalidInputError(f"the lengths of {axes} axes must take {4 * axes} bytes, got {len(header)}")
    shape = tuple(int.from_bytes(header[at : at + 4], "big") for at in range(0, len(header), 4))
    size = math.prod(shape) * entry.itemsize
    if not 1 <= size <= max_bytes:
        raise InvalidInputError(f"the array must have 1 to {max_bytes} bytes, got {size} for the axes {shape}")
    data = stream.read(size)
    if len(data) != size or stream.read(1):
        got = f"{len(data)}" if len(data) != size else "more"
        raise InvalidInputError(f"the axes {shape} must be followed by exactly {size} bytes, got {got}")
    return np.frombuffer(bytearray(data), dtype=entry).reshape(shape)
