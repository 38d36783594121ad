"""Look up commands that are shown and not run: their options, targets of make, and files of the repository."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from fewjoules.cli import app
from tests.snippets.blocks import SHELL, blocks_of

ROOT = Path(__file__).parents[2]
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"^(?:results|benchmarks|examples|tests|docs|src|reproduction)/[\w./-]+\.\w+$")


def commands_on(page: Path) -> Iterator[str]:
    """Yield every command of FewJoules, make or Python in the blocks and the running text of a page."""
    for block in blocks_of(page):
        if block.language in SHELL:
            yield from re.sub(r"\\\n\s*", " ", block.text).splitlines()
    for code in INLINE.findall(re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)):
        if code.split()[0] in ("fewjoules", "make", "python") or FILE.match(code):
            yield code


def mistake_in(command: str) -> str | None:
    """Return what is wrong with a command, or None."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None  # a part of a longer line of shell
    if "-m" in words and words[words.index("-m") + 1 :][:1] == ["fewjoules"]:
        words = words[words.index("-m") + 1 :]
    if not words:
        return None
    if words[0] == "fewjoules":
        return _unknown_option(words[1:])
    if words[0] == "make":
        return _unknown_target(words[1:])
    missing = [word for word in words if FILE.match(word) and not (ROOT / word).exists()]
    return f"there is no file {missing[0]}" if missing else None


def _unknown_option(words: list[str]) -> str | None:
    command: Any = _command_line()
    while words and hasattr(command, "commands") and words[0] in command.list_commands(None):
        command, words = command.get_command(None, words[0]), words[1:]
    if words and hasattr(command, "commands") and re.fullmatch(r"[a-z]+", words[0]):
        return f"there is no command {words[0]}"
    known = {"--help", *(name for option in command.params for name in (*option.opts, *option.secondary_opts))}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
    return f"there is no option {unknown[0]}" if unknown else None


@cache
def _command_line() -> Any:
    return get_command(app)


def _unknown_target(words: list[str]) -> str | None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    unknown = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word not in targets]
    return f"there is no target {unknown[0]}" if unknown else None
