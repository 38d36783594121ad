"""A results folder is read back, and the ledger is summed by device without holding it."""

import json

import numpy as np
import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.ledger import parquet
from fewjoules.ledger.parquet import read_table, write_table
from fewjoules.ledger.schema import LEDGER
from fewjoules.runs.results import RunResults, plain_text
from tests.reports.made_up import make_run


def test_joules_of_a_device_are_the_sums_of_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)  # several blocks
    run = RunResults.load(make_run(tmp_path / "run", downlink=True))
    ledger = read_table(tmp_path / "run" / "ledger.parquet", LEDGER)
    for kind, joules in run.device_joules.items():
        expected = [np.nansum(ledger[f"{kind}_joules"][ledger["device"] == device]) for device in range(12)]
        np.testing.assert_allclose(joules, expected)
    assert list(run.device_joules) == ["uplink", "downlink", "compute"]


def test_kinds_that_the_ledger_does_not_know_are_left_out(tmp_path):
    assert list(RunResults.load(make_run(tmp_path / "a")).device_joules) == ["uplink", "compute"]
    assert RunResults.load(make_run(tmp_path / "b", joules=None)).device_joules == {}


def test_a_missing_value_counts_as_nothing(tmp_path):
    folder = make_run(tmp_path / "run", devices=2)
    rows = LEDGER.new_rows(3)
    rows["device"] = [0, 1, 1]
    rows["uplink_joules"] = [1.0, 2.0, np.nan]
    write_table(folder / "ledger.parquet", LEDGER, [rows])
    assert RunResults.load(folder).device_joules["uplink"].tolist() == [1.0, 2.0]


def test_joules_by_kind_are_read_where_they_are_told(tmp_path):
    told = {"uplink": {"measured": 1.0, "assumed": 0.5}, "codec": {"fitted": 0.0}}
    assert RunResults.load(make_run(tmp_path / "new", joules_by_kind=told)).summary.joules_by_kind == told
    assert RunResults.load(make_run(tmp_path / "old")).summary.joules_by_kind == {}


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (None, "joules_by_kind must be a table of uplink, downlink, tail, compute, codec, got None"),
        ({"radio": {}}, "joules_by_kind must be a table of uplink, downlink, tail, compute, codec, got"),
        ({"tail": 3.0}, "joules_by_kind of tail must be a table of measured, fitted, profile, assumed, got 3.0"),
        ({"tail": {"guessed": 1.0}}, "joules_by_kind of tail must be a table of measured, fitted, profile, assumed"),
        ({"tail": {"fitted": -1.0}}, "joules_by_kind of tail must be .*, got -1.0"),
    ],
)
def test_joules_by_kind_that_no_run_has_are_refused(tmp_path, told, says):
    with pytest.raises(InvalidInputError, match=says):
        RunResults.load(make_run(tmp_path / "run", joules_by_kind=told))


def test_a_device_that_the_run_does_not_have_is_refused(tmp_path):
    folder = make_run(tmp_path / "run", devices=2)
    rows = LEDGER.new_rows(2)
    rows["device"] = [0, 2]
    write_table(folder / "ledger.parquet", LEDGER, [rows])
    with pytest.raises(InvalidInputError, match="device must be from 0 to 1, got 0 to 2"):
        _ = RunResults.load(folder).device_joules


def test_totals_are_taken_where_the_target_was_met(tmp_path):
    folder = make_run(tmp_path / "run", target=None, rounds=20)
    changes = {"target_accuracy": 0.5, "target_reached": True, "rounds_to_target": 5}
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    run = RunResults.load(folder)
    assert run.at_target("total_payload_bytes") == 5 * 12_000
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_reached": False}))
    assert RunResults.load(folder).at_target("total_payload_bytes") == 20 * 12_000


def test_devices_that_share_a_name_are_numbered(tmp_path):
    run = RunResults.load(make_run(tmp_path / "run", devices=3, names=["phone", "hub", "phone"]))
    assert run.summary.device_names == ("phone #1", "hub", "phone #2")


def test_a_plan_and_a_scenario_may_be_absent(tmp_path):
    folder = make_run(tmp_path / "run", with_plan=False)
    (folder / "scenario.toml").unlink()
    run = RunResults.load(folder)
    assert run.plan is None
    assert run.scenario_text == ""
    assert "partition" not in run.summary.facts


def test_the_partition_is_told_by_the_scenario(tmp_path):
    folder = make_run(tmp_path / "run")
    assert RunResults.load(folder).summary.facts["partition"] == "dirichlet"
    (folder / "scenario.toml").write_text('training.partition = {kind = "dirichlet", concentration = 0.5}')
    assert "0.5" in RunResults.load(folder).summary.facts["partition"]
    (folder / "scenario.toml").write_text("no TOML")
    assert "partition" not in RunResults.load(folder).summary.facts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"rounds": -1}, "rounds must be a whole number"),
        ({"joules": "many"}, "joules must be a finite number"),
        ({"sparsity": [0.5]}, r"sparsity\[0\] must be"),
        ({"target_accuracy": 97}, "target_accuracy must be .* at most 1"),
        ({"target_reached": "yes"}, "target_reached must be true, false or null"),
        ({"devices": {"names": ["one"]}}, "devices.names must be a list of 12 names"),
        ({"devices": None}, "devices.names must be a list of 12 names"),
    ],
)
def test_a_damaged_summary_is_refused_by_name(tmp_path, changes, message):
    file = make_run(tmp_path / "run") / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InvalidInputError, match=message) as refusal:
        RunResults.load(file.parent)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1}', "[" * 100_000])
def test_text_that_is_no_summary_is_refused(tmp_path, text):
    folder = make_run(tmp_path / "run")
    (folder / "run.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"run\.json: "):
        RunResults.load(folder)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"run\.json: cannot be read"):
        RunResults.load(tmp_path / "absent")


def test_names_become_one_short_printable_line():
    assert plain_text("a\n b\x1b[31m\u202e") == "a b [31m"
    assert len(plain_text("x" * 1000)) == 60
