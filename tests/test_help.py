"""The help teaches: commands in the order of use, a whole sentence for each, and examples that parse."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from fewjoules.cli import app
from fewjoules.cli.commands import LATE

TOP = typer.main.get_command(app)


def commands(group=TOP, path=()) -> dict[tuple[str, ...], click.Command]:
    """All commands, groups included, by the words that call them."""
    found = {path: group}
    if hasattr(group, "list_commands"):
        with click.Context(group, info_name="fewjoules") as context:
            for name in group.list_commands(context):
                found |= commands(group.get_command(context, name), (*path, name))
    return found


ALL = commands()


def examples(command: click.Command) -> list[str]:
    """The lines of the help that call fewjoules, without what is said about them."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    calls = [line for line in lines if line.startswith(("fewjoules ", "torchrun "))]
    return [re.split(r"\s{2,}| > ", call)[0].partition("fewjoules ")[2] for call in calls]


def parse(words: list[str]) -> None:
    """Parse the words as the command line would, and run nothing."""
    path = tuple(words[:2]) if tuple(words[:2]) in ALL else tuple(words[:1])
    with ALL[path].make_context(" ".join(path), words[len(path) :]):
        pass


def shown(*words: str) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_examples_of_itself_that_parse(path):
    calls = examples(ALL[path])
    assert any(call.startswith(" ".join(path)) for call in calls)
    for call in calls:
        parse(shlex.split(call.removesuffix(" --help")))


def test_an_example_that_does_not_parse_would_be_noticed():
    for call in ("plan --no-such-option", "measure step a b", "calibrate gpu"):
        with pytest.raises(click.UsageError):
            parse(call.split())
    with pytest.raises(KeyError):
        parse(["plam"])


@pytest.mark.parametrize("path", [path for path in ALL if hasattr(ALL[path], "list_commands")], ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut_short(path):
    listed = shown(*path).split("Commands:")[1].splitlines()
    lines = [line for line in listed if line.strip()]
    assert len(lines) == len([other for other in ALL if other[:-1] == path and other])
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("path", [("plan",), ("init",), ("measure", "step")], ids=" ".join)
def test_an_argument_is_explained_once(path):
    assert shown(*path).lower().count("arguments:") == 1


def test_commands_are_listed_in_the_order_of_use():
    names = [path[0] for path in ALL if len(path) == 1]
    assert tuple(names[: len(LATE)]) == LATE
    assert LATE.index("init") < LATE.index("plan") < LATE.index("tune") < LATE.index("train") < LATE.index("compare")


def test_a_command_imports_no_other_command():
    code = (
        "import sys; from fewjoules.cli import app; app(['plan', '--json'], standalone_mode=False); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    found = {name for name in LATE if f"fewjoules.cli.{name}" in loaded}
    assert found == {"plan"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_every_usual_shell(shell):
    words = ["-c", "from fewjoules.cli import main; main()", "--show-completion"]
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run([sys.executable, *words, shell], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "COMPLETE" in done.stdout


def test_completion_offers_commands_and_options():
    program = Path(sys.executable).parent / "fewjoules"

    def offered(words: str, place: int) -> set[str]:
        asked = {"_FEWJOULES_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert offered("fewjoules p", 1) == {"plan", "profiles"}
    assert offered("fewjoules plan --so", 2) == {"--solver"}
