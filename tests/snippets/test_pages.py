"""Every block of code in the documentation is run, read as a scenario, or says why it is not."""

import re
from pathlib import Path

import pytest

from tests.snippets.blocks import CODE, blocks_of
from tests.snippets.commands import commands_on, mistake_in
from tests.snippets.page import ROOT, run_page

PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "reproduction" / "README.md"]
    if ".template" not in path.name
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
RUN = [
    page for page in PAGES if any(block.language in ("setup", *CODE) and not block.mark for block in blocks_of(page))
]


def of_target(target: str) -> list[Path]:
    return [page for page in PAGES if any(block.mark.endswith(target) for block in blocks_of(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", RUN, ids=name)
def test_what_a_page_shows_is_what_its_code_prints(page, tmp_path):
    assert run_page(page, tmp_path) > 0


@pytest.mark.deploy
@pytest.mark.parametrize("page", of_target("test-deploy"), ids=name)
def test_what_a_page_shows_of_deployments_is_what_its_code_prints(page, tmp_path):
    assert run_page(page, tmp_path, targets=["test-deploy"]) > 0


@pytest.mark.gpu
@pytest.mark.parametrize("page", of_target("test-gpu"), ids=name)
def test_what_a_page_shows_of_gpus_is_what_its_code_prints(page, tmp_path):
    assert run_page(page, tmp_path, targets=["test-gpu"]) > 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_files_that_a_page_names_exist(page):
    mistakes = {command: mistake_in(command) for command in commands_on(page)}
    assert {command: mistake for command, mistake in mistakes.items() if mistake} == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_mark_belongs_to_a_block(page):
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(page)
    marks = re.findall(r"^ *<!-- (?:file|not run|run by|numbers within).*$", text, flags=re.MULTILINE)
    assert len(marks) == sum(bool(block.mark or block.tolerance) for block in blocks), marks


def test_few_blocks_are_not_run():
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language in CODE]
    not_run = [block for block in blocks if block.mark == "not run"]
    assert len(blocks) > 40
    assert len(not_run) <= 0.35 * len(blocks), [block.place for block in not_run]
