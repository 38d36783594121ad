"""Kinds of values: what each says of itself is what it does, and all of them are registered."""

import pkgutil
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.codec import values as val
from fewjoules.errors import InvalidInputError
from tests.codec.strategies import KINDS
from tests.reference import codec as literal

FINITE_ONLY = ["int8", "qsgd", "ternary", "two-bit"]


def rng():
    return np.random.default_rng(5)


def normal(count):
    return np.random.default_rng(count).normal(size=count).astype(np.float32)


def test_the_kinds_have_the_codes_of_the_wire_format():
    assert list(val.KINDS) == literal.KINDS
    assert [val.kind_code(name) for name in val.KINDS] == list(range(len(literal.KINDS)))
    assert {kind.code: kind for kind in val.KINDS.values()} == val.BY_CODE
    assert {kind.name: kind for kind in val.KINDS.values()} == val.KINDS


def test_the_kinds_have_the_versions_of_the_wire_format():
    assert {kind.name: kind.wire_version for kind in val.KINDS.values()} == literal.VERSION_OF


def test_every_module_with_a_kind_is_registered():
    modules = [import_module(f"{val.__name__}.{found.name}") for found in pkgutil.iter_modules(val.__path__)]
    assert {id(module.KIND) for module in modules if hasattr(module, "KIND")} == set(map(id, val.KINDS.values()))


def test_importing_the_kinds_stays_light():
    code = "import sys; import fewjoules.codec.values; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert {"numba", "torch", "scipy"}.isdisjoint(loaded)
    assert "fewjoules.codec.values.qsgd" in loaded


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_writes_as_many_bytes_as_it_says(kind, count):
    chosen = val.KINDS[kind]
    parts = chosen.split(normal(count), 15, rng())
    assert (parts.symbols.shape, parts.symbols.dtype) == ((count,), np.uint8)
    assert len(parts.plain) == count * chosen.plain_bytes
    assert len(parts.side) == chosen.side_bytes(count)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_lossy_if_and_only_if_it_says_so(kind):
    values = normal(3000)
    assert np.array_equal(val.quantised(values, kind, rng=rng()), values) == (not val.KINDS[kind].lossy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_needs_a_generator_if_and_only_if_it_says_so(kind):
    values = normal(300)
    if val.KINDS[kind].needs_rng:
        with pytest.raises(InvalidInputError, match=f"{kind} needs rng=.*None"):
            val.quantised(values, kind)
        other = val.quantised(values, kind, rng=np.random.default_rng(6))
        assert not np.array_equal(other, val.quantised(values, kind, rng=rng()))
    else:
        unused = rng()
        np.testing.assert_array_equal(val.quantised(values, kind), val.quantised(values, kind, rng=unused))
        assert unused.bit_generator.state == rng().bit_generator.state


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("kind", FINITE_ONLY)
def test_a_value_that_is_not_finite_is_refused_by_name(kind, value):
    values = normal(10)
    values[7] = value
    with pytest.raises(InvalidInputError, match=f"finite to be sent as {kind}, got {value} at entry 7"):
        val.quantised(values, kind, rng=rng())


def test_an_unknown_kind_is_refused_with_those_that_exist():
    with pytest.raises(InvalidInputError, match=r"float32, float16.*got 'float12'"):
        val.kind_code("float12")


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.integers(-40, 18))
def test_norms_of_blocks_are_exact_norms_rounded_up(seed, count, exponent):
    """Against sums of whole numbers in units of 2^-160, of which every float32 is a multiple."""
    values = (np.random.default_rng(seed).normal(size=count) * 10.0**exponent).astype(np.float32)
    norms = val.block_norms(values)
    for block, norm in enumerate(norms):
        members = [float(value) for value in values[1024 * block : 1024 * (block + 1)]]
        exact = sum(int(value * 2.0**160) ** 2 for value in members)
        assert int(float(norm) * 2.0**160) ** 2 >= exact * (1 - 1e-14)
        below = float(np.nextafter(norm, np.float32(0.0)))
        assert int(below * 2.0**160) ** 2 < exact * (1 + 1e-14) or norm == 0.0
