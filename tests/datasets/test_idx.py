"""IDX files are read exactly or refused by name."""

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewjoules.datasets import idx
from fewjoules.errors import InvalidInputError
from tests.datasets.files import idx_bytes, write_idx

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)
IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
GOOD = idx_bytes(IMAGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("idx")


@given(hnp.arrays(np.uint8, SHAPES), st.sampled_from(["", ".gz"]))
def test_bytes_come_back_as_they_were_written(folder, array, suffix):
    file = folder / f"bytes{suffix}"
    write_idx(file, array)
    read = idx.read_bytes(file, axes=array.ndim)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.uint8
    assert read.flags.writeable


@given(hnp.arrays(">i4", SHAPES))
def test_integers_come_back_in_native_order(folder, array):
    file = folder / "integers"
    write_idx(file, array, kind=0x0C)
    read = idx.read_int32(file, axes=array.ndim)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.int32


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: GOOD[:8] + tail))
def test_arbitrary_bytes_are_read_or_refused_but_never_crash(folder, data):
    for content in (data, gzip.compress(data), b"\x1f\x8b" + data):
        (folder / "hostile").write_bytes(content)
        with contextlib.suppress(InvalidInputError):
            idx.read_bytes(folder / "hostile", axes=3, max_bytes=4096)


@given(st.data())
def test_a_file_cut_anywhere_is_refused(folder, data):
    whole = data.draw(st.sampled_from([GOOD, gzip.compress(GOOD)]))
    (folder / "cut").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InvalidInputError, match="cut: "):
        idx.read_bytes(folder / "cut", axes=3)


HUGE = b"\x00\x00\x08\x03" + b"\xff" * 12
HOSTILE = {
    "other type": (idx_bytes(np.zeros(3, dtype=">i4"), kind=0x0C), "must start with 00000803, got '00000c01'"),
    "other axes": (idx_bytes(np.zeros(3, dtype=np.uint8)), "must start with 00000803, got '00000801'"),
    "short header": (GOOD[:9], "must take 12 bytes, got 5"),
    "short": (GOOD[:-1], r"\(2, 3, 4\) must be followed by exactly 24 bytes, got 23"),
    "trailing": (GOOD + b"\x00", "must be followed by exactly 24 bytes, got more"),
    "huge": (HUGE, "must have 1 to 1073741824 bytes, got 79228162458924105385300197375"),
    "no entries": (GOOD[:4] + bytes(4) + b"\xff" * 8, "must have 1 to 1073741824 bytes, got 0"),
    "zipped trailing": (gzip.compress(GOOD + b"\x00"), "got more"),
    "second member": (gzip.compress(GOOD) * 2, "got more"),
    "garbage after zip": (gzip.compress(GOOD) + b"garbage", "must be a whole gzip file"),
    "cut zip": (gzip.compress(GOOD)[:-9], "must be a whole gzip file"),
    "wrong sum": (gzip.compress(GOOD)[:-8] + bytes(8), "must be a whole gzip file"),
    "empty": (b"", "must start with 00000803, got ''"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_wrong_with_a_file_is_said_with_its_name(folder, data, message):
    (folder / "bad").write_bytes(data)
    with pytest.raises(InvalidInputError, match=f"bad: .*{message}"):
        idx.read_bytes(folder / "bad", axes=3)


def test_a_missing_file_is_named():
    with pytest.raises(InvalidInputError, match=r"nowhere: cannot be read \(No such file"):
        idx.read_bytes(Path("nowhere"), axes=1)
