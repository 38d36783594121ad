"""A sealed file is read as it was written, and damage anywhere in it is noticed, in the name of the checksum too."""

import contextlib
import json

import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.runs.sealed import read_sealed, write_sealed

DATA = {"version": 1, "joules": 2.5, "schemes": ["dense"], "checksums": {"plan.json": 7}}


def test_every_flipped_bit_is_noticed(tmp_path):
    file = tmp_path / "run.json"
    write_sealed(file, DATA)
    good = file.read_bytes()
    assert read_sealed(file) == DATA
    for place in range(len(good)):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            with contextlib.suppress(InvalidInputError):
                assert read_sealed(file) == DATA, (place, bit)


@pytest.mark.parametrize("data", [DATA, {}, {"version": 1}], ids=["as ever", "empty", "one key"])
def test_a_file_of_old_without_a_checksum_is_read(data, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data))
    assert read_sealed(file) == data
