"""What the documentation shows is what the code does."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedjoule as fj
from fedjoule.cli import app
from fedjoule.convergence.fit import ROUNDS_COLUMNS
from fedjoule.physics.gpu import GPU_COLUMNS
from fedjoule.planner import benders
from fedjoule.schema.tables import TABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(blocks("python")[0], {})
    assert len(output.getvalue().splitlines()) == 2
    assert fj.Plan.load("plan.json").relative_gap <= 1e-9


def test_the_codec_example_of_the_readme_runs(capsys):
    exec(blocks("python")[1], {})
    assert "bits an entry" in capsys.readouterr().out


def test_the_scenario_of_the_readme_can_be_planned(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(blocks("toml")[0])
    assert fj.solve(fj.Scenario.from_toml(file).problem()).relative_gap <= 1e-9


def test_the_table_of_the_readme_is_what_the_demo_prints():
    printed = CliRunner().invoke(app, ["plan", "--scheme", "all"]).stdout
    gap = re.compile(r"\s+\S+(\s+\d+\.\d{3})$", flags=re.MULTILINE)  # the gap itself is rounding
    shown, real = (
        [line.rstrip() for line in gap.sub(r"\1", text).splitlines()] for text in (blocks("text")[0], printed)
    )
    assert [line for line in shown if line] == [line for line in real if line]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_planned_with_proof(example):
    assert fj.solve(fj.Scenario.from_toml(example).problem()).relative_gap <= 1e-9


def test_there_are_three_examples():
    assert [path.stem for path in EXAMPLES] == ["measured-costs", "paper-four-groups", "phones-and-jetsons"]


def test_every_key_of_a_scenario_is_documented():
    text = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    keys = {key for table in TABLES.values() for key in table.model_fields} - {"kind", "min", "max"}
    sections = {"model", "rounds", "limits", "device", "gpu", "radio", "training"}
    missing = {key for key in keys - sections if f"`{key}`" not in text}
    assert missing == set()


def test_every_csv_column_and_repair_is_documented():
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    assert {name for name in (*GPU_COLUMNS, *ROUNDS_COLUMNS) if f"`{name}`" not in text} == set()
    planner = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    assert {name for name in (*benders.REPAIRS, *fj.schemes.SCHEMES) if f"`{name}`" not in planner} == set()


def test_every_reference_key_resolves():
    known = set(re.findall(r"\| \[([A-Z]+\d\d)\]", (ROOT / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    used = {key for file in files for key in re.findall(r"\[([A-Z]{2,}\d\d)[\],]", file.read_text(encoding="utf-8"))}
    assert used - known == set()


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
