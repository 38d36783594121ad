"""Records come back as they were saved, are whole or not there, and foreign files are refused by name."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules_reproduction.records import Records

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)


@given(st.dictionaries(st.text().filter(lambda key: key != "version"), PLAIN, max_size=4), NAMES, NAMES)
@settings(max_examples=50, deadline=None)
def test_a_record_comes_back_as_it_was_saved(tmp_path_factory, record, study, name):
    folder = tmp_path_factory.mktemp("records") / "not" / "yet"
    Records(folder).save(study, name, record)
    assert Records(folder).load(study, name) == record | {"version": 1}


def test_what_was_not_made_is_none_and_leaves_no_folder(tmp_path):
    assert Records(tmp_path / "runs").load("mnist", "tune-dense") is None
    assert Records(tmp_path / "runs").of("mnist") == []
    assert not (tmp_path / "runs").exists()


def test_a_record_is_one_file_by_its_name_and_a_later_one_replaces_it(tmp_path):
    records = Records(tmp_path)
    records.save("mnist", "run-dense-rate0.1-seed0", {"rounds": 1})
    records.save("mnist", "run-dense-rate0.1-seed0", {"rounds": 2})
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == tmp_path / "mnist" / "run-dense-rate0.1-seed0.json"
    assert json.loads(file.read_text()).items() > {"version": 1, "rounds": 2}.items()


def test_all_records_of_a_study_are_those_of_no_other(tmp_path):
    records = Records(tmp_path)
    for study, name in (("mnist", "b"), ("mnist", "a"), ("mnist-lte", "c")):
        records.save(study, name, {"name": name})
    assert [record["name"] for record in records.of("mnist")] == ["a", "b"]
    assert [record["name"] for record in records.of("mnist-lte")] == ["c"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, object()], ids=["NaN", "infinity", "not JSON"])
def test_what_cannot_be_written_leaves_the_record_before_it_and_no_partial_file(tmp_path, bad):
    records = Records(tmp_path)
    records.save("mnist", "a", {"rounds": 1})
    with pytest.raises((ValueError, TypeError)):
        records.save("mnist", "a", {"rounds": bad})
    assert records.load("mnist", "a") == {"version": 1, "rounds": 1}
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "JSON"),
        (b'{"version": 1, "rounds": 3', "JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[" * 100_000, "JSON"),
        (b"[1, 2]", "'list'"),
        (b"null", "'NoneType'"),
        (b"{}", "None"),
        (b'{"version": 2}', "got 2"),
        (b'{"version": "1"}', "got '1'"),
    ],
    ids=["empty", "cut off", "not text", "deep", "a list", "null", "no version", "another version", "version a text"],
)
def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path, text, says):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "a.json").write_bytes(text)
    for read in (lambda: Records(tmp_path).load("mnist", "a"), lambda: Records(tmp_path).of("mnist")):
        with pytest.raises(InvalidInputError) as refusal:
            read()
        message = str(refusal.value)
        assert message.startswith(str(tmp_path / "mnist" / "a.json"))
        assert says in message
        assert "\n" not in message


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/a", "A", "a b", "-a", "a\n", "é", "a\x00"])
def test_names_that_are_no_plain_file_names_are_refused(tmp_path, name):
    for study, own in ((name, "a"), ("mnist", name)):
        with pytest.raises(InvalidInputError, match="small letters") as refusal:
            Records(tmp_path / "runs").load(study, own)
        assert repr(name) in str(refusal.value)
        with pytest.raises(InvalidInputError, match="small letters"):
            Records(tmp_path / "runs").save(study, own, {})
    assert not (tmp_path / "runs").exists()
