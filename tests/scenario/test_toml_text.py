"""Tables written as TOML read back as the same tables."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.scenario.toml_text import toml_text

EXAMPLES = Path(__file__).parents[2] / "examples"
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["sparsity", "local_steps", "a-b"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_tables_come_back(tables):
    assert tomllib.loads(toml_text(tables)) == tables


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.name)
def test_scenarios_come_back(file):
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    assert tomllib.loads(toml_text(tables)) == tables


def test_a_scenario_reads_like_one_written_by_hand():
    text = resources.files("fewjoules.embedded").joinpath("four-groups.toml").read_text(encoding="utf-8")
    lines = toml_text(tomllib.loads(text)).splitlines()
    assert lines[0] == "version = 1"
    assert "sparsity = {min = 1.0, max = 400.0}" in lines
    assert lines.count("[[device]]") == 4
    assert "[device.radio]" in lines
    assert "[recipe.rounds]" in lines
