"""The site of the documentation builds without a warning and asks no other host for anything."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site):
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if ".template" not in page.name}
    assert len(pages) > 20
    assert {page for page in pages if not (site / page).with_suffix(".html").is_file()} == set()
    assert (site / "index.html").is_file()


def test_no_page_loads_anything_from_another_host(site):
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//[^\"' >]+")
    for page in site.rglob("*.html"):
        found = loaded.search(page.read_text(encoding="utf-8"))
        assert found is None, f"{page.relative_to(site)}: {found and found[0]}"


def test_the_help_of_every_command_is_on_the_page_of_commands(site):
    from typer.main import get_command

    from fewjoules.cli import app

    page = (site / "command-line.html").read_text(encoding="utf-8")
    commands = get_command(app).list_commands(None)  # type: ignore[attr-defined,arg-type]
    assert len(commands) > 8
    assert {name for name in commands if f"fewjoules {name}" not in page} == set()


def test_links_to_files_of_the_repository_lead_to_copies(site):
    copies = {path.relative_to(site / "repository").as_posix() for path in (site / "repository").rglob("*.*")}
    assert "results/true-costs.txt" in copies
    assert "results/reproduction/fig1a.png" in copies


def test_links_are_named_by_titles_not_by_files(site):
    page = (site / "costs.html").read_text(encoding="utf-8")
    assert ">references.md</a>" not in page
    assert re.search(r'href="references\.html"[^>]*>References</a>', page)
    assert re.search(r'href="ledger\.html"[^>]*>', page)


def test_a_block_that_is_a_file_shows_its_name(site):
    assert '<span class="filename">fleet.toml</span>' in (site / "tutorial.html").read_text(encoding="utf-8")


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    pages = importlib.import_module("notebook_pages")
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": "aGk=\n", "text/plain": "<Figure>"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Words."]},
        {"cell_type": "code", "source": "print(1)", "outputs": outputs},
    ]
    (tmp_path / "small.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert pages.as_markdown(tmp_path / "small.ipynb") == (
        "# Title\n\nWords.\n\n```python\nprint(1)\n```\n\n```text\none\ntwo\n```\n\n"
        '<img alt="drawn by the code above" src="data:image/png;base64,aGk=">\n\n'
        "This page is the notebook [small.ipynb](small.ipynb).\n"
    )
