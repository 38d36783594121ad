"""The pages of the reproduction show what its results say."""

import re
import subprocess
import sys
from pathlib import Path

import fewjoules_reproduction

ROOT = Path(__file__).parents[2]
SOURCE = Path(fewjoules_reproduction.__file__).parent


def test_the_page_of_the_reproduction_is_what_its_results_say():
    done = subprocess.run([sys.executable, "docs/render.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_links_of_the_reproduction_lead_somewhere():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((\.\./[^)]+)\)", page)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


def test_the_links_of_its_readme_lead_somewhere():
    folder = ROOT / "reproduction"
    links = re.findall(r"\]\(([^)#:]+)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 3
    assert [link for link in links if not (folder / link).exists()] == []


def test_every_reference_key_in_its_source_resolves():
    known = set(re.findall(r"\| \[([A-Z]+\d\d)\]", (ROOT / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml"), ROOT / "reproduction" / "README.md"]
    used = {key for file in files for key in re.findall(r"\[([A-Z]{2,}\d\d)[\],]", file.read_text(encoding="utf-8"))}
    assert used
    assert used - known == set()
