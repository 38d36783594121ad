"""Run folders written under the first name of the package are read as ever; tests/golden/runs has one."""

import shutil
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from fewjoules.cli import app
from fewjoules.runs.results import RunResults

FOLDER = Path(__file__).parent / "golden" / "runs" / "first-name"


def test_a_finished_run_of_the_first_name_is_reported(tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(FOLDER, copy)
    done = CliRunner().invoke(app, ["train", "--resume", str(copy)])
    assert done.exit_code == 0, done.output
    assert (copy / "page.html").is_file()
    assert "flexible" in done.output


def test_its_tables_hold_what_its_summary_says():
    run = RunResults.load(FOLDER)
    assert run.summary.rounds == 4
    assert run.metrics["round"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(run.metrics["total_joules"][-1], run.summary.joules, rtol=1e-12)
