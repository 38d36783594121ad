"""The blocks of code of a page and the marks above them. CONTRIBUTING.md tells how pages are written for it.

A mark is a comment of HTML in the line above the fence, which readers do not see:

<!-- file: NAME -->                        the block is written to this file
<!-- not run: REASON -->                   only its commands and options are looked up
<!-- run by make test-deploy: REASON -->   run by that target alone (or make test-gpu)
<!-- numbers within 20 % -->               above an output: its numbers may differ so much
<!-- setup ... -->                         Python that runs and is not shown, on as many lines as it takes
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```(\w*)[^`]*$")
MARK = re.compile(r"^ *<!-- (file|not run|run by make test-deploy|run by make test-gpu): (\S.*) -->$")
WITHIN = re.compile(r"^ *<!-- numbers within (\d+(?:\.\d+)?) % -->$")
SETUP = re.compile(r"^ *<!-- setup$")
SHELL = ("sh", "console", "bash")
CODE = (*SHELL, "python", "toml")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block. ``first`` and ``last`` number the lines of its text from 0; ``language`` may be "setup"."""

    page: Path
    language: str
    text: str
    first: int
    last: int
    mark: str = ""
    argument: str = ""
    tolerance: float = 0.0
    follows: bool = False  # nothing but empty lines and a mark between this block and the one before

    @property
    def place(self) -> str:
        """Page and line, as an editor opens them."""
        return f"{self.page}:{self.first}"


def blocks_of(page: Path) -> list[Block]:
    """Return all blocks of a page, in their order."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number, between = 0, ["begin"]
    while number < len(lines):
        line = lines[number]
        fence = FENCE.match(line)
        if fence is None and not SETUP.match(line):
            between.append(line)
            number += 1
            continue
        closing = f"{fence[1]}```" if fence else "-->"
        end = _closing(page, lines, number, closing)
        above = between[-1] if between else ""
        mark, within = MARK.match(above), WITHIN.match(above)
        yield Block(
            page=page,
            language=fence[2] if fence else "setup",
            text=textwrap.dedent("\n".join(lines[number + 1 : end]) + "\n"),
            first=number + 1,
            last=end,
            mark=mark[1] if mark else "",
            argument=mark[2] if mark else "",
            tolerance=float(within[1]) / 100.0 if within else 0.0,
            follows=not any(text.strip() for text in (between[:-1] if mark or within else between)),
        )
        number, between = end + 1, []


def _closing(page: Path, lines: list[str], opening: int, closing: str) -> int:
    for number in range(opening + 1, len(lines)):
        if lines[number].rstrip() == closing:
            return number
    raise AssertionError(f"{page}:{opening + 1}: this block is never closed")
