import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules_reproduction.table import Table

CELLS = (st.text(max_size=8), st.integers(), st.floats())


@st.composite
def tables(draw):
    size = draw(st.integers(0, 5))
    names = draw(st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True))
    return Table(
        {name: tuple(draw(st.lists(draw(st.sampled_from(CELLS)), min_size=size, max_size=size))) for name in names}
    )


@given(tables())
def test_reading_inverts_writing(tmp_path_factory, table):
    file = tmp_path_factory.mktemp("table") / "table.csv"
    table.write_csv(file)
    assert repr(Table.read_csv(file)) == repr(table)  # repr: NaN equals NaN, 1 is not 1.0, 0.0 is not -0.0


def test_text_that_looks_like_a_number_stays_text(tmp_path):
    table = Table({"a": ("1", "2.0"), "b": (1, 2), "c": (1.0, math.inf)})
    table.write_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == '"a","b","c"\n"1",1,1.0\n"2.0",2,inf\n'
    assert Table.read_csv(tmp_path / "table.csv") == table


def test_rows_are_found_by_value_and_keep_their_order():
    table = Table.from_rows([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, {"x": 3, "y": "a"}])
    assert table.where(y="a").rows() == [{"x": 1, "y": "a"}, {"x": 3, "y": "a"}]
    assert table.where(y="a", x=3)["x"] == (3,)
    assert len(table.where(y="c")) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least 1 column"),
        ({"a": (1,), "b": ()}, "equal lengths"),
        ({"a": (1, 1.0)}, "column 'a' must be all str, all int or all float, got float, int"),
        ({"a": (True,)}, "got bool"),
    ],
)
def test_a_table_that_is_not_one_is_refused(columns, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        Table(columns)


def test_rows_with_other_keys_are_refused():
    with pytest.raises(fj.InvalidInputError, match="every row must have the keys"):
        Table.from_rows([{"a": 1}, {"b": 1}])


@pytest.mark.parametrize("text", ["", '"a"\n1,2\n', '"a","a"\n1,2\n', '"a"\nword\n'])
def test_a_file_that_no_table_wrote_is_refused(tmp_path, text):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(fj.InvalidInputError, match=r"table\.csv: must"):
        Table.read_csv(tmp_path / "table.csv")
