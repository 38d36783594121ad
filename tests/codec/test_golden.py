"""The wire format is a promise: `tests/golden/v1/*.bin` and `v2/*.bin`, messages of each kind of values and each coder.

The updates are made by integer arithmetic below, so that no random generator can change them. A missing file fails.
The files are never written by a test. For a NEW version of the format, and only then, add a folder and write it once:

    PYTHONPATH=src:. python -c "from tests.codec.test_golden import write; write(3)"

Files of an old version stay as they are for ever, and every later decoder must read them.
"""

import math
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fewjoules import codec
from tests.reference import codec as literal

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = [1, 2]


class Golden(NamedTuple):
    name: str
    kind: str
    coder: str
    update: codec.SparseUpdate
    levels: int = 15
    version: int = 1

    @property
    def file(self):
        return GOLDEN / f"v{self.version}" / f"{self.name}.bin"


def numbers(count, seed):
    """Integers below 2^32 of a linear congruential generator (Numerical Recipes), the same everywhere."""
    state, drawn = seed, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        drawn.append(state)
    return drawn


def values_like_gradients(count, seed):
    """Dyadic fractions of both signs over six octaves: exact in float32."""
    drawn = numbers(2 * count, seed)
    mantissas, octaves = drawn[:count], drawn[count:]
    return [((m >> 8) - 2**23) / 2.0 ** (26 + (o >> 8) % 6) for m, o in zip(mantissas, octaves, strict=True)]


def some_positions(size, one_in, seed):
    return [index for index, number in enumerate(numbers(size, seed)) if (number >> 8) % one_in == 0]


def update_of(size, positions, values):
    return codec.SparseUpdate(size=size, positions=np.array(positions, np.int64), values=np.array(values, np.float32))


def qsgd_values():
    """64 steps of 2^-10, squares that add to 64^2: levels are whole numbers, so that the coins do not matter."""
    steps = 10 * [10] + 12 * [-15] + 11 * [6]
    block = steps + [0] * (1024 - len(steps))
    return [step / 1024 for step in block] + [-step / 512 for step in steps]


def golden_messages():
    sparse = some_positions(20_000, 40, seed=1)
    half = some_positions(200, 2, seed=2)
    most = sorted(set(range(3000)) - set(some_positions(3000, 60, seed=3)))
    layers = some_positions(4000, 3, seed=4) + [4000 + p for p in some_positions(40_000, 200, seed=5)]
    far = [*range(0, 60, 2), 2**27, 2**27 + 1, 2**28 - 1]
    special_bits = [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x3F800000]
    special = np.array(special_bits, np.uint32).view(np.float32)
    qsgd = qsgd_values()
    return [
        Golden("empty", "float32", "all", update_of(1000, [], [])),
        Golden("nothing", "float32", "all", update_of(0, [], [])),
        Golden("full", "float32", "all", update_of(500, range(500), values_like_gradients(500, 6))),
        Golden("special", "float32", "gaps", update_of(2**16, [1 << bit for bit in range(8)], special)),
        Golden("gaps", "float32", "gaps", update_of(20_000, sparse, values_like_gradients(len(sparse), 7))),
        Golden("layers", "float32", "gaps", update_of(44_000, layers, values_like_gradients(len(layers), 8))),
        Golden("far", "float32", "gaps", update_of(2**28, far, values_like_gradients(len(far), 9))),
        Golden("bitmap", "float32", "bitmap", update_of(200, half, values_like_gradients(len(half), 10))),
        Golden("missing", "float16", "missing gaps", update_of(3000, most, values_like_gradients(len(most), 11))),
        Golden("bfloat16", "bfloat16", "gaps", update_of(20_000, sparse, values_like_gradients(len(sparse), 12))),
        Golden("int8", "int8", "missing gaps", update_of(3000, most, values_like_gradients(len(most), 13))),
        Golden("qsgd", "qsgd", "all", update_of(len(qsgd), range(len(qsgd)), qsgd), levels=64),
        Golden("ternary", "ternary", "gaps", update_of(20_000, sparse, values_like_gradients(len(sparse), 14))),
    ]


def two_bit_messages():
    """All coders of positions; blocks of values that are whole, short, of one magnitude, of zeros, and none."""
    sparse = some_positions(20_000, 40, seed=21)
    half = some_positions(200, 2, seed=22)
    most = sorted(set(range(3000)) - set(some_positions(3000, 60, seed=23)))
    signs = [(number >> 8) % 2 * 2 - 1 for number in numbers(1025, 24)]
    one_magnitude = [0.375 * sign for sign in signs[:1024]] + [-0.0]
    extremes = np.array([0x7F7FFFFF, 0xFF7FFFFF, 0x00000001, 0x80000000, 0x00000000], np.uint32).view(np.float32)
    updates = {
        "two-bit-gaps": ("gaps", update_of(20_000, sparse, values_like_gradients(len(sparse), 25))),
        "two-bit-missing": ("missing gaps", update_of(3000, most, values_like_gradients(len(most), 26))),
        "two-bit-bitmap": ("bitmap", update_of(200, half, values_like_gradients(len(half), 27))),
        "two-bit-full": ("all", update_of(2500, range(2500), values_like_gradients(2500, 28))),
        "two-bit-one-magnitude": ("all", update_of(1025, range(1025), one_magnitude)),
        "two-bit-zeros": ("all", update_of(40, range(40), [0.0] * 40)),
        "two-bit-extremes": ("all", update_of(5, range(5), extremes)),
        "two-bit-empty": ("all", update_of(1000, [], [])),
    }
    return [Golden(name, "two-bit", coder, update, version=2) for name, (coder, update) in updates.items()]


def encoded(golden):
    rng = np.random.default_rng(0)
    return codec.encode(golden.update, values=golden.kind, levels=golden.levels, rng=rng, allow_nonfinite=True)


def received(golden):
    """What the page says the receiver computes, value by value; float16 and bfloat16 by their own roundings."""
    values = golden.update.values
    if golden.kind == "float16":
        return values.astype(np.float16).astype(np.float32)
    if golden.kind == "bfloat16":
        bits = values.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    if golden.kind == "int8":
        rounded = []
        for start in range(0, values.size, 1024):
            block = [float(v) for v in values[start : start + 1024]]
            scale = max(abs(v) for v in block)
            rounded += [scale * round(127 * v / scale) / 127 for v in block]
        return np.array(rounded, np.float32)
    if golden.kind == "ternary":
        mean = np.float32(sum(abs(float(v)) for v in values) / values.size)  # dyadic: the sum is exact
        return np.where(values < 0, -mean, mean)
    if golden.kind == "two-bit":
        seen = []
        for start in range(0, values.size, 1024):
            seen += two_magnitudes([float(v) for v in values[start : start + 1024]])
        return np.array(seen, np.float32)
    return values  # float32, and the whole levels of qsgd


def two_magnitudes(block):
    """The mean magnitude of those above the mean of all, and of the others; sums are exact, as fractions."""
    magnitudes = [Fraction(abs(v)) for v in block]
    mean = sum(magnitudes) / len(block)
    large, small = [m for m in magnitudes if m > mean], [m for m in magnitudes if m <= mean]
    means = {True: float(sum(large) / len(large)) if large else None, False: float(sum(small) / len(small))}
    return [math.copysign(means[m > mean], v) for m, v in zip(magnitudes, block, strict=True)]


MESSAGES = {golden.name: golden for golden in [*golden_messages(), *two_bit_messages()]}


@pytest.mark.parametrize("name", MESSAGES)
def test_every_version_reads_what_it_and_its_elders_wrote(name):
    golden = MESSAGES[name]
    decoded = codec.decode(golden.file.read_bytes(), max_size=2**28, allow_nonfinite=True)
    assert decoded.size == golden.update.size
    np.testing.assert_array_equal(decoded.positions, golden.update.positions)
    np.testing.assert_array_equal(decoded.values.view(np.uint32), received(golden).view(np.uint32))


@pytest.mark.parametrize("name", MESSAGES)
def test_the_encoder_writes_these_bytes(name):
    """A change of these bytes that decodes alike is still a change of the format: see the top of this file."""
    assert encoded(MESSAGES[name]) == MESSAGES[name].file.read_bytes()


@pytest.mark.parametrize("name", MESSAGES)
def test_the_literal_decoder_reads_them_too(name):
    golden = MESSAGES[name]
    message = literal.decode(golden.file.read_bytes())
    assert message.positions == golden.update.positions.tolist()
    np.testing.assert_array_equal(np.array(message.values, np.float32), received(golden))


@pytest.mark.parametrize("name", MESSAGES)
def test_each_message_uses_the_version_and_the_coder_it_is_here_for(name):
    payload = MESSAGES[name].file.read_bytes()
    parts = literal.parts_of(payload)
    assert (payload[2], parts.kind, parts.coder) == (MESSAGES[name].version, MESSAGES[name].kind, MESSAGES[name].coder)


def test_every_kind_every_coder_and_several_blocks_are_pinned():
    pinned = {version: [literal.parts_of(golden.file.read_bytes()) for golden in of(version)] for version in VERSIONS}
    assert {part.kind for parts in pinned.values() for part in parts} == set(literal.KINDS)
    assert max(len(part.blocks) for parts in pinned.values() for part in parts) > 1
    for parts in pinned.values():
        assert {part.coder for part in parts} == set(literal.CODERS)
        assert {part.modelled_parameters > 0 for part in parts} == {False, True}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_golden_file_is_without_a_test(version):
    assert sorted(path.stem for path in (GOLDEN / f"v{version}").iterdir()) == sorted(g.name for g in of(version))


def of(version):
    return [golden for golden in MESSAGES.values() if golden.version == version]


def write(version):
    """Write the messages of a version into its folder, which must be new or empty. Not a test; see the top."""
    folder = GOLDEN / f"v{version}"
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} holds golden files; they are never rewritten, make a new version instead")
    for golden in of(version):
        golden.file.write_bytes(encoded(golden))
