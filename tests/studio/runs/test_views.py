"""What the views tell is what the files and the commands say, while a run goes on and after."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.parquet import read_table, write_table
from fewjoules.ledger.schema import METRICS
from fewjoules.reports.page_figures import sections
from fewjoules.runs.lock import locked
from fewjoules.runs.results import RunResults
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.comparison_view import chosen_view, comparison_view
from fewjoules.studio.runs.run_view import run_view
from fewjoules.studio.runs.tuning_view import tuning_view
from tests.studio.client import with_studio
from tests.studio.runs.made import FOLDER, HOSTILE, copied
from tests.studio.runs.test_folders import unfinished
from tests.test_bad_input import run


def panel(view, title, place=0):
    return next(one for one in view["sections"] if one["title"] == title)["panels"][place]


def test_a_run_is_drawn_by_the_code_of_the_page(results, workspace):
    view = run_view(workspace, "deep/er/one")
    drawn = {one.title: list(one.panels) for one in sections([RunResults.load(results / "deep/er/one")])}
    for title in ("Test accuracy by round", "Test error by energy", "Energy by device", "Sparsity by device"):
        assert [one["figure"] for one in next(s for s in view["sections"] if s["title"] == title)["panels"]] == drawn[
            title
        ]


def test_curves_of_a_run_are_its_metrics(results, workspace):
    view, metrics = run_view(workspace, FOLDER), fj.Run.load(results / FOLDER).metrics
    for place, column in enumerate(("round", "total_joules")):
        (trace,) = panel(view, "Training loss by round and by energy", place)["figure"]["data"]
        np.testing.assert_allclose(trace["x"], metrics[column], rtol=1e-5)
        np.testing.assert_allclose(trace["y"], metrics["train_loss"], rtol=1e-5)
    (bits,) = panel(view, "Bits sent")["figure"]["data"]
    np.testing.assert_allclose(bits["y"], 8 * metrics["total_payload_bytes"], rtol=1e-5)
    kinds = panel(view, "Joules by kind")["figure"]["data"]
    np.testing.assert_allclose(sum(trace["y"][-1] for trace in kinds), metrics["total_joules"][-1], rtol=1e-5)


def test_predictions_stand_beside_what_was_measured(results, workspace):
    plan, summary = (
        fj.Plan.load(results / FOLDER / "plan.json"),
        json.loads((results / FOLDER / "run.json").read_text()),
    )
    rows = {name: cells for name, *cells in run_view(workspace, FOLDER)["predicted"]["rows"]}
    assert rows["rounds"] == [f"{plan.rounds:.4g}", "5", f"{5 / plan.rounds:.3g}"]
    assert float(rows["joules"][0]) == pytest.approx(plan.energy_joules, rel=1e-3)
    assert float(rows["joules"][1]) == pytest.approx(summary["joules"], rel=1e-3)
    ledger = fj.Run.load(results / FOLDER).ledger
    assert float(rows["bits of a message, mean"][1]) == pytest.approx(8 * ledger["payload_bytes"].mean(), rel=1e-3)
    bits = 650 / plan.sparsity * (np.log2(plan.sparsity) + 33)
    assert float(rows["bits of a message, mean"][0]) == pytest.approx(bits.mean(), rel=1e-3)


def test_the_command_repeats_the_run(results, workspace, tmp_path, monkeypatch):
    copied(results / FOLDER, tmp_path / FOLDER)
    monkeypatch.chdir(tmp_path)
    command = run_view(Workspace.of(tmp_path), FOLDER)["commands"]["Repeat it"]
    done = run(*shlex.split(command)[1:])
    assert done.exit_code == 0, done.stderr
    again = tmp_path / f"{FOLDER}-again"
    assert (again / "ledger.parquet").read_bytes() == (results / FOLDER / "ledger.parquet").read_bytes()


def test_a_run_that_goes_on_tells_what_is_written_so_far(results, tmp_path):
    folder = unfinished(results / "deep" / "er" / "one", tmp_path / "run")
    part = folder / "metrics" / "part-00000001-00000004.parquet"
    rows = read_table(part, METRICS)
    part.unlink()
    write_table(folder / "metrics" / "part-00000001-00000002.parquet", METRICS, [rows[:2]])
    write_table(folder / "metrics" / "live.parquet", METRICS, [rows[2:3]])
    workspace = Workspace.of(tmp_path)
    with locked(folder):
        view = run_view(workspace, "run")
    assert view["state"] == "running"
    assert panel(view, "Training loss by round and by energy")["figure"]["data"][0]["x"] == [1.0, 2.0, 3.0]
    assert "is training: 3 rounds" in view["headline"]
    stopped = run_view(workspace, "run")
    assert (stopped["state"], stopped["commands"]["Continue it"]) == ("stopped", "fewjoules train --resume run")
    assert panel(stopped, "Training loss by round and by energy")["figure"]["data"][0]["x"] == [1.0, 2.0]
    assert "Predicted and measured" not in [one["title"] for one in stopped["sections"]]


def test_a_comparison_has_the_table_of_the_command(results, workspace):
    view = comparison_view(workspace, "sides")
    told = json.loads((results / "sides" / "comparison.json").read_text())
    assert [row[0] for row in view["ranking"]["rows"]] == [one["scheme"] for one in told["schemes"]]
    page = (results / "sides" / "page.html").read_text(encoding="utf-8")
    assert view["ranking"]["headline"] in page
    assert all(f"<td>{cell}</td>" in page for row in view["ranking"]["rows"] for cell in row[1:])
    assert view["ranking"]["best"] == 0
    assert view["commands"]["Repeat it"].startswith(
        "fewjoules compare sides/scenario.toml --schemes flexible,fedavg --seeds 3"
    )
    assert len(view["runs"]) == 6


def test_any_runs_are_compared(workspace):
    view = chosen_view(workspace, ["deep/er/one", "sides/fedavg/seed-0"])
    assert {row[0] for row in view["ranking"]["rows"]} == {"fedavg", "unified"}
    assert len(panel(view, "Test accuracy by round")["figure"]["data"]) >= 2
    assert chosen_view(workspace, ["sides"])["names"] == comparison_view(workspace, "sides")["names"]
    with pytest.raises(InvalidInputError, match="at least 1 run"):
        chosen_view(workspace, [])


def test_a_comparison_shows_runs_that_are_damaged_or_go_on(results, tmp_path):
    copied(results / "sides", tmp_path / "sides")
    (tmp_path / "sides" / "comparison.json").unlink()
    (tmp_path / "sides" / "fedavg" / "seed-0" / "run.json").write_text("{")
    shutil.rmtree(tmp_path / "sides" / "fedavg" / "seed-1")
    unfinished(results / "sides" / "fedavg" / "seed-1", tmp_path / "sides" / "fedavg" / "seed-1")
    view = comparison_view(Workspace.of(tmp_path), "sides")
    assert view["state"] == "stopped"
    states = {row["folder"]: row["state"] for row in view["runs"]}
    assert states["sides/fedavg/seed-0"] == "damaged"
    assert states["sides/fedavg/seed-1"] == "stopped"
    assert view["ongoing"]
    assert view["commands"]["Continue it"] == "fewjoules compare --resume sides"


def test_a_tuning_tells_its_recipe_and_what_was_believed(results, workspace):
    view, record = tuning_view(workspace, "tuning"), json.loads((results / "tuning" / "tuning.json").read_text())
    assert view["headline"].startswith(f"{record['recipe']['name']} reaches accuracy 0.8")
    assert len(panel(view, "Every pilot")["figure"]["data"]) == len(record["pilots"])
    believed = panel(view, "What is believed")["figure"]["data"][-1]
    assert believed["x"] == list(range(1, len(record["pilots"]) + 1))
    assert [row[0] for row in view["law"]["rows"]] == ["tau", "c", "a", "q"]


def test_a_tuning_that_goes_on_tells_what_it_believes_now(results, tmp_path):
    folder = copied(results / "tuning", tmp_path / "tuning")
    (folder / "tuning.json").unlink()
    lines = (folder / "pilots.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "pilots.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])  # a line is being written
    beliefs = (folder / "beliefs.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "beliefs.jsonl").write_bytes(b"".join(beliefs[:2]) + beliefs[2][:10])
    workspace = Workspace.of(tmp_path)
    with locked(folder):
        view = tuning_view(workspace, "tuning")
    assert view["headline"].startswith("Tuning: 2 pilots so far")
    assert len(panel(view, "Every pilot")["figure"]["data"]) == 2
    assert view["remarks"][0].startswith("Best so far: ")
    assert (folder / "pilots.jsonl").read_bytes().endswith(lines[3][:20])  # whoever watches changes nothing
    stopped = tuning_view(workspace, "tuning")
    assert stopped["commands"]["Continue it"] == "fewjoules tune --resume tuning"


def test_what_the_pilots_took_is_what_the_record_says(results):
    last = json.loads((results / "tuning" / "beliefs.jsonl").read_text().splitlines()[-1])
    record = json.loads((results / "tuning" / "tuning.json").read_text())
    booked = ("pilots", "client_steps", "joules")
    assert {name: last[name] for name in booked} == {name: record["books"][name] for name in booked}


def test_names_are_escaped_in_labels_of_figures_and_are_text_elsewhere(workspace):
    found = run_view(workspace, FOLDER)["sections"]
    figures = [panel["figure"] for one in found for panel in one["panels"]]
    assert "&lt;script" in json.dumps(figures)
    assert "<script" not in json.dumps(figures)
    assert HOSTILE in json.dumps(found)  # in tables and words, which the browser shows as text


def test_what_has_not_changed_is_not_sent_again(results):
    async def ask(studio):
        first = await studio.get("/api/runs/run?folder=deep/er/one")
        headers = studio.headers | {"If-None-Match": first.headers["ETag"]}
        again = await studio.client.get("/api/runs/run?folder=deep/er/one", headers=headers)
        other = await studio.client.get(f"/api/runs/run?folder={FOLDER}", headers=headers)
        return first.status, again.status, other.status

    assert with_studio(results, ask) == (200, 304, 200)


def test_every_address_answers(results):
    pages = ["/runs", "/runs/run", "/runs/tuning", "/runs/compare", "/runs/ledger"]
    answers = ["/api/runs", "/api/runs/tuning?folder=tuning", "/api/runs/compare?folder=sides", "/api/runs/runs.csv"]
    refused = {
        "/api/runs/run?folder=../..": "below the folder of the studio",
        "/api/runs/run?folder=/etc": "below the folder of the studio",
        "/api/runs/run?folder=missing": "must be a folder that holds results",
        "/api/runs/compare": "at least 1 run",
        "/api/runs/ledger?folder=sides": "must be a folder that holds a run",
        "/api/runs/tuning?folder=%00": "no path below",
    }

    async def ask(studio):
        found = [(await studio.get(address)).status for address in [*pages, *answers]]
        return found, {address: await studio.json(address) for address in refused}

    found, told = with_studio(results, ask)
    assert found == [200] * 9
    for address, says in refused.items():
        answer, status = told[address]
        assert status == 422
        assert re.search(says, answer["error"]), answer
