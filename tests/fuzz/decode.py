"""Coverage-guided fuzzing of the decoder: ``make fuzz``.

Every input is decoded as it is and, so that the fuzzer gets past them, behind the magic and each version with an honest
checksum. Whatever decodes must survive another round trip.
"""

import os
import sys
import zlib

os.environ["NUMBA_DISABLE_JIT"] = "1"  # so that the fuzzer sees the branches of the kernels

import atheris

with atheris.instrument_imports(include=["fewjoules"]):
    from fewjoules.codec import decode, encode
    from fewjoules.errors import CorruptPayloadError

MAX_SIZE = 1 << 12


def attempt(payload: bytes) -> None:
    """Decode or refuse; nothing else."""
    try:
        update = decode(payload, max_size=MAX_SIZE, allow_nonfinite=True)
    except CorruptPayloadError:
        return
    assert update.size <= MAX_SIZE
    again = encode(update, allow_nonfinite=True)
    assert decode(again, max_size=MAX_SIZE, allow_nonfinite=True) == update


def test_one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    attempt(data)
    for version in (b"\x01", b"\x02"):
        body = b"FJ" + version + data
        attempt(body + zlib.crc32(body).to_bytes(4, "little"))


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
