"""What the documentation shows is what the code does."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fewjoules as fj
from fewjoules.codec.values import KINDS
from fewjoules.convergence.fit import ROUNDS_COLUMNS, PilotRuns, fit_power_law_rounds
from fewjoules.datasets.load import DATASETS
from fewjoules.datasets.shapes import TEXTS
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.presets import PRESETS
from fewjoules.physics.gpu import GPU_COLUMNS
from fewjoules.planner import benders
from fewjoules.scenario import Scenario
from fewjoules.scenario.schema.tables import TABLES

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def test_every_training_option_is_documented():
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    arguments = {"local_steps", "sparsity", "rounds", "learning_rate", "batch_size", "seed"}
    options = set(TrainingOptions.__dataclass_fields__) - arguments
    assert {name for name in options if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", ["training", "scenario"])
def test_every_preset_compressor_and_kind_of_values_is_documented(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    names = {*PRESETS, *COMPRESSORS, *KINDS} - {"float32", "ternary"}
    assert {name for name in names if name not in text} == set()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_planned_with_proof(example):
    assert fj.solve(fj.Scenario.from_toml(example).problem()).relative_gap <= 1e-9


def test_the_example_of_ones_own_model_is_interrupted_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    example = importlib.import_module("own_model")
    monkeypatch.setattr(sys, "argv", ["own_model.py", str(tmp_path / "run"), "--rounds", "20"])
    real, asked = example.Watch.on_evaluation_end, []

    def once(self, run):
        real(self, run)
        if not asked:
            asked.append(run.round)
            raise KeyError("out of power")

    monkeypatch.setattr(example.Watch, "on_evaluation_end", once)
    with pytest.raises(KeyError, match="out of power"):
        example.main()
    example.main()
    assert asked == [10]
    assert "rounds after 20 rounds" in capsys.readouterr().out
    assert len((ROOT / "examples" / "own_model.py").read_text(encoding="utf-8").splitlines()) < 80


def test_there_are_four_examples():
    known = ["measured-costs", "paper-four-groups", "phones-and-jetsons", "shakespeare"]
    assert [path.stem for path in EXAMPLES] == known


def test_every_key_of_a_scenario_is_documented():
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    keys = {key for table in TABLES.values() for key in table.model_fields} - {"kind", "min", "max"}
    sections = {"model", "rounds", "limits", "device", "gpu", "radio", "point", "training"}
    missing = {key for key in keys - sections if f"`{key}`" not in text}
    assert missing == set()


def test_the_data_of_a_scenario_are_those_that_can_be_loaded():
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name in (*DATASETS, *TEXTS):
        assert TABLES["training",].model_validate({"data": name})
        assert f"`{name}`" in text or f'data = "{name}"' in text
    with pytest.raises(ValueError, match=r"'digits'.*'shakespeare' or 'package.module:function'"):
        TABLES["training",].model_validate({"data": "imagenet"})


def test_every_csv_column_and_repair_is_documented():
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    assert {name for name in (*GPU_COLUMNS, *ROUNDS_COLUMNS) if f"`{name}`" not in text} == set()
    planner = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    assert {name for name in (*benders.REPAIRS, *fj.schemes.SCHEMES) if f"`{name}`" not in planner} == set()


def test_every_reference_key_resolves():
    known = set(re.findall(r"\| \[([A-Z]+\d\d)\]", (ROOT / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    used = {key for file in files for key in re.findall(r"\[([A-Z]{2,}\d\d)[\],]", file.read_text(encoding="utf-8"))}
    assert used - known == set()


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pilot_example_writes_what_calibrate_reads(tmp_path, monkeypatch, capsys):
    text = (
        Scenario.embedded()
        .text.replace('"cnn"', '"softmax"')
        .replace("target_accuracy = 0.95", "target_accuracy = 0.7")
    )
    (tmp_path / "scenario.toml").write_text(text)
    monkeypatch.syspath_prepend(ROOT / "examples")
    pilots = importlib.import_module("pilot_runs")
    monkeypatch.setattr(pilots, "SPARSITIES", (1.0, 4.0, 16.0))
    monkeypatch.setattr(pilots, "LOCAL_STEPS", (1, 2, 4))
    monkeypatch.setattr(pilots, "SEEDS", (0,))
    pilots.main(str(tmp_path / "scenario.toml"), str(tmp_path / "runs.csv"))
    assert PilotRuns.from_csv(tmp_path / "runs.csv").rounds.size == 9
    assert "target not reached" not in capsys.readouterr().err


def test_the_rounds_of_the_embedded_scenario_are_the_fit_to_its_pilot_runs():
    fitted = fit_power_law_rounds(PilotRuns.from_csv(ROOT / "examples" / "pilot-runs-digits.csv")).model
    embedded = Scenario.embedded().rounds
    for name in ("tau", "c", "a", "q"):
        assert getattr(embedded, name) == pytest.approx(getattr(fitted, name), rel=2e-3)


def test_the_example_of_pilot_runs_says_how_it_is_called(tmp_path):
    script = [sys.executable, str(ROOT / "examples" / "pilot_runs.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: pilot_runs.py [-h] SCENARIO.toml pilot-runs.csv")
    missing = [*script, str(tmp_path / "nowhere.toml"), str(tmp_path / "runs.csv")]
    done = subprocess.run(missing, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs.csv").exists()


def test_the_picture_of_the_readme_shows_the_plan_of_today(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    drawn = importlib.import_module("readme_figure")
    plan = drawn.draw(tmp_path / "picture.svg")
    words = f"least: H = {plan.local_steps}, {plan.energy_joules:.2f} J"
    for picture in (drawn.FILE, tmp_path / "picture.svg"):
        assert f"<!-- {words} -->" in picture.read_text(encoding="utf-8")
