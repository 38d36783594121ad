"""Split the text of a play into the speeches of its roles.

A speech begins with a heading, the name of a role alone in a line after an empty one: ``HAMLET.``, ``MRS. PAGE.``,
``THESEUS`` (capitals need no full stop), ``1 Clown.`` It ends at the next heading, act or scene. Stage directions, in
brackets, are left out.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_DIRECTION = re.compile(r"[\[{][^\][{}]*?(?:[\]}]|(?=\n[ \t]*\n)|\Z)")  # one left open ends with its paragraph
_CAPITALS = re.compile(r"[A-Z0-9](?:[A-Z0-9' ,&.-]*[A-Z])?\.?$")
_NAME = re.compile(r"[A-Z0-9][A-Za-z' ,&.-]*\.$")
_DIVISION = re.compile(r"(?:ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION)\b", re.IGNORECASE)
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Speech:
    """What a role says before another one speaks: lines without indentation, joined by line feeds."""

    role: str
    text: str


def speeches(play: str) -> list[Speech]:
    """Return the speeches of a play in their order."""
    lines = [line.rstrip() for line in _DIRECTION.sub("", play).splitlines()]
    headings = _headings(lines)
    found: list[Speech] = []
    role: str | None = None
    said: list[str] = []

    def end() -> None:
        if role is not None and said:
            found.append(Speech(role, "\n".join(said)))
        said.clear()

    for number, line in enumerate(lines):
        if number in headings or (_opens_paragraph(lines, number) and _DIVISION.match(line)):
            end()
            role = headings.get(number)
        elif line:
            said.append(line.lstrip())
    end()
    return found


def texts_of_roles(play: str) -> dict[str, str]:
    """Return all that each role with at least two speeches says; an empty line stands between two speeches."""
    said: dict[str, list[str]] = {}
    for speech in speeches(play):
        said.setdefault(speech.role, []).append(speech.text)
    return {role: "\n\n".join(texts) for role, texts in said.items() if len(texts) > 1}


def _headings(lines: list[str]) -> dict[int, str]:
    """Return the role that each heading names, by the number of its line.

    A name not in capitals counts if it heads a paragraph twice, so that a short sentence is not taken for a name.
    """
    candidates = dict(_candidates(lines))
    times = Counter(candidates.values())
    return {number: name for number, name in candidates.items() if name.isupper() or times[name] > 1}


def _candidates(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines[:-1]):
        if not line or len(line) > _LONGEST_NAME or not lines[number + 1] or not _opens_paragraph(lines, number):
            continue
        if (_CAPITALS.match(line) or _NAME.match(line)) and not _DIVISION.match(line):
            yield number, " ".join(line.removesuffix(".").split())


def _opens_paragraph(lines: list[str], number: int) -> bool:
    return number == 0 or not lines[number - 1]
