"""All folders of results are found, each with its state; what is damaged is a row with its sentence."""

import json
import os
import shutil

import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.runs.lock import locked
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.folders import find_folders, look_at, state_of
from fewjoules.studio.runs.reading import folder_of
from fewjoules.studio.runs.rows import listed
from tests.studio.runs.made import FOLDER, copied


def rows_of(folder):
    return {row["folder"]: row for row in listed(Workspace.of(folder))["rows"]}


def test_every_kind_is_listed_with_what_its_files_say(results):
    rows = rows_of(results)
    seeds = {f"sides/{scheme}/seed-{seed}" for scheme in ("flexible", "fedavg") for seed in range(3)}
    assert set(rows) == {FOLDER, "deep/er/one", "sides", "tuning"} | seeds
    assert {row["state"] for row in rows.values()} == {"finished"}
    told = json.loads((results / "deep/er/one/run.json").read_text())
    row = rows["deep/er/one"]
    assert (row["kind"], row["scheme"], row["rounds"]) == ("run", "unified, seed 0", told["rounds"])
    assert (row["joules"], row["seconds"], row["bits"]) == (told["joules"], told["seconds"], 8 * told["payload_bytes"])
    assert row["metric_value"] == told["test_accuracy"]
    assert rows["sides"]["kind"] == "comparison"
    assert rows["sides/fedavg/seed-1"]["parent"] == "sides"
    pilots = len((results / "tuning/pilots.jsonl").read_text().splitlines()) - 1
    assert (rows["tuning"]["kind"], rows["tuning"]["rounds"]) == ("tuning", pilots)


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("run.json", lambda data: data[: len(data) // 2], "must be JSON"),
        ("ledger.parquet", lambda data: data[:100] + b"x" + data[101:], "the file is damaged: its checksum"),
        ("settings.json", lambda data: data.replace(b'"cpu"', b'"gpu"'), "the file is damaged"),
        ("metrics.parquet", None, "metrics.parquet: cannot be read"),
    ],
)
def test_a_damaged_folder_is_a_row_with_its_sentence(results, tmp_path, name, spoil, says):
    run = copied(results / "deep" / "er" / "one", tmp_path / "run")
    copied(results / FOLDER, tmp_path / "good")
    if spoil is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(spoil((run / name).read_bytes()))
    rows = rows_of(tmp_path)
    assert rows["run"]["state"] == "damaged"
    assert says in rows["run"]["problem"]
    assert rows["good"]["state"] == "finished"


def test_a_damaged_comparison_or_tuning_is_a_row_too(results, tmp_path):
    copied(results / "tuning", tmp_path / "tuning")
    copied(results / "sides", tmp_path / "sides")
    (tmp_path / "tuning" / "tuning.json").write_text('{"books": 3}')
    (tmp_path / "sides" / "comparison.json").write_text("[]")
    rows = rows_of(tmp_path)
    assert [rows[name]["state"] for name in ("tuning", "sides")] == ["damaged", "damaged"]
    assert all(rows[name]["problem"] for name in ("tuning", "sides"))
    assert rows["sides/fedavg/seed-0"]["state"] == "finished"


def unfinished(source, target):
    """The folder of a run that was killed after its last checkpoint."""
    copied(source, target)
    for table in ("ledger", "metrics"):
        (target / table).mkdir()
        (target / f"{table}.parquet").rename(target / table / "part-00000001-00000004.parquet")
    for name in ("run.json", "model.safetensors"):
        (target / name).unlink()
    return target


def test_an_unfinished_run_is_stopped_unless_a_process_holds_its_folder(results, tmp_path):
    run = unfinished(results / "deep" / "er" / "one", tmp_path / "run")
    full = rows_of(results)["deep/er/one"]
    row = rows_of(tmp_path)["run"]
    assert row["state"] == "stopped"
    same = ("rounds", "metric", "joules", "bits", "seconds", "scheme")
    assert {name: row[name] for name in same} == {name: full[name] for name in same} | {"scheme": "unified"}
    with locked(run):
        assert rows_of(tmp_path)["run"]["state"] == "running"


def test_of_a_comparison_that_goes_on_the_newest_run_is_training(results, tmp_path):
    copied(results / "sides", tmp_path / "sides")
    (tmp_path / "sides" / "comparison.json").unlink()
    for place, name in enumerate(("flexible", "fedavg")):
        folder = tmp_path / "sides" / name / "seed-2"
        shutil.rmtree(folder)
        unfinished(results / "sides" / name / "seed-2", folder)
        for file in (folder, *folder.rglob("*")):
            os.utime(file, (1e9 + place, 1e9 + place))
    with locked(tmp_path / "sides"):
        rows = rows_of(tmp_path)
    assert rows["sides"]["state"] == "running"
    assert rows["sides/fedavg/seed-2"]["state"] == "running"
    assert rows["sides/flexible/seed-2"]["state"] == "stopped"
    assert rows_of(tmp_path)["sides/fedavg/seed-2"]["state"] == "stopped"


def test_links_that_lead_out_are_not_read(results, tmp_path):
    outside = copied(results / "deep" / "er" / "one", tmp_path / "outside")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(outside)
    run = copied(outside, root / "run")
    (run / "scenario.toml").unlink()
    (run / "scenario.toml").symlink_to(outside / "scenario.toml")
    rows = rows_of(root)
    assert set(rows) == {"run"}
    assert "leads out of the folder" in rows["run"]["problem"]
    with pytest.raises(InvalidInputError, match="below the folder of the studio"):
        folder_of(Workspace.of(root), "linked")


def test_other_folders_are_refused_by_one_sentence(workspace):
    for name in ("deep", "missing", ""):
        with pytest.raises(InvalidInputError, match="must be a folder that holds results"):
            folder_of(workspace, name)
    with pytest.raises(InvalidInputError, match="must be a folder that holds a tuning"):
        folder_of(workspace, "sides", "tuning")


def test_a_list_ends_somewhere(results, monkeypatch):
    monkeypatch.setattr("fewjoules.studio.runs.folders.MOST_FOLDERS", 3)
    found, complete = find_folders(results)
    assert (len(found), complete) == (3, False)
    assert state_of(look_at(results / "tuning", results)) == "finished"
