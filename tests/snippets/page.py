"""Run the blocks of a page in order, in a folder of its own, and compare what they print with what is shown."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fewjoules.scenario import Scenario
from tests.snippets import rounding
from tests.snippets.blocks import CODE, SHELL, Block, blocks_of
from tests.snippets.output import difference

ROOT = Path(__file__).parents[2]
SECONDS = 600
OF_TRAININGS = 0.1  # outputs with this tolerance or more are those of trainings


class PageError(AssertionError):
    """A block that fails, or prints something else than the page shows."""


def run_page(
    page: Path, folder: Path, targets: Collection[str] = (), changes: list[tuple[Block, str]] | None = None
) -> int:
    """Run what is to be run by ``make test`` or one of the ``targets``; return how many blocks that were.

    Outputs that differ are errors, or are appended to ``changes`` with what was printed.
    """
    names: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    ran = 0
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")  # as in a clone
    with _at_home(folder):
        for block in blocks_of(page):
            if block.language == "text" and block.follows and printed is not None and block.mark != "not run":
                found = difference(block.text, printed, block.tolerance)
                if found and changes is None and not _of_another_rounding(block):
                    raise PageError(f"{block.place}: {found}")
                if found and changes is not None:
                    changes.append((block, printed))
            printed = None
            if block.mark == "file":
                _write(folder, block)
            elif block.language in ("setup", *CODE) and (not block.mark or block.mark.split()[-1] in targets):
                printed = _run(block, folder, names)
                ran += 1
    return ran


def _of_another_rounding(block: Block) -> bool:
    """Whether the output is that of trainings, which this machine rounds in another way."""
    return block.tolerance >= OF_TRAININGS and not rounding.is_that_of_the_pages()


def _write(folder: Path, block: Block) -> None:
    file = folder / block.argument
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text, encoding="utf-8")


def _run(block: Block, folder: Path, names: dict[str, Any]) -> str | None:
    if block.language in SHELL:
        return _run_shell(block, folder)
    if block.language == "toml":
        return _read_scenario(block, folder)
    return _run_python(block, names)


def _run_shell(block: Block, folder: Path) -> str:
    path = f"{_commands(folder)}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "COLUMNS": "120",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise PageError(f"{block.place}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _commands(folder: Path) -> Path:
    """Return a folder with ``python``, ``fewjoules`` and ``torchrun`` of the interpreter that runs the tests."""
    place = folder / ".commands"
    if not place.exists():
        place.mkdir()
        for name, module in {"python": "", "fewjoules": "-m fewjoules", "torchrun": "-m torch.distributed.run"}.items():
            (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (place / name).chmod(0o755)
    return place


def _run_python(block: Block, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.first + block.text, str(block.page), "exec")
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # readers see them; those of other packages are none of ours
            exec(code, names)
    except Exception as error:
        raise PageError(f"{block.place}: {type(error).__name__}: {error}") from error
    return printed.getvalue()


def _read_scenario(block: Block, folder: Path) -> None:
    """Read the block as a scenario, with those tables of the embedded one that it lacks."""
    file = folder / "scenario-of-the-page.toml"
    try:
        given = tomllib.loads(block.text)
        file.write_text(block.text + _tables_of_the_embedded_scenario(without=given), encoding="utf-8")
        Scenario.from_toml(file).problem()
    except ValueError as error:
        raise PageError(f"{block.place}: {error}") from error


def _tables_of_the_embedded_scenario(without: Collection[str]) -> str:
    tables = re.split(r"^(?=\[)", Scenario.embedded().text, flags=re.MULTILINE)[1:]
    return "".join(table for table in tables if re.split(r"[\[\].]+", table)[1] not in without)


@contextlib.contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    """Work in the folder, find modules in it, and forget them at the end."""
    known = set(sys.modules)
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
