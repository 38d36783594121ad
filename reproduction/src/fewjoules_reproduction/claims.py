"""Claims: sentences of the paper with verdicts, read and written as tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file
from fewjoules_reproduction.table import Table

_FIGURES = (
    *("1(a)", "1(b)", "1(c)", "1(d)", "1(c), 1(d)", "2(a)", "2(b)", "2(c)", "2(d)"),
    *("2(a, c), quick", "2(b, d), quick", "beyond 2", "beyond 2, quick"),
)
Verdict = Literal["reproduced", "partly", "not reproduced", "not run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One sentence under one reading, with the verdict, our number in a few words, and the reason."""

    figure: str
    sentence: str
    verdict: Verdict
    number: str
    why: str
    reading: str = ""


def verdict(parts: Iterable[bool]) -> Verdict:
    """Reproduced if every part of the sentence holds, partly if some do, not reproduced if none does."""
    held = [bool(part) for part in parts]
    if held and all(held):
        return "reproduced"
    return "partly" if any(held) else "not reproduced"


def claims_markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown table, in which a sentence is written once for all its readings."""
    lines = ["| figure | sentence | reading | verdict | our number | why |", "|---|---|---|---|---|---|"]
    before = None
    for claim in claims:
        same = before is not None and (before.figure, before.sentence) == (claim.figure, claim.sentence)
        why = "" if same and before is not None and before.why == claim.why else claim.why
        head = ("", "") if same else (claim.figure, claim.sentence)
        lines.append(f"| {' | '.join(map(_cell, (*head, claim.reading, claim.verdict, claim.number, why)))} |")
        before = claim
    return "\n".join(lines) + "\n"


def joined_claims(before: Sequence[Claim], new: Sequence[Claim]) -> list[Claim]:
    """New claims and earlier ones about other figures or studies, in the order of the figures."""
    made = {_subject(claim) for claim in new}
    kept = [claim for claim in before if _subject(claim) not in made]
    return sorted([*kept, *new], key=lambda claim: _FIGURES.index(claim.figure) if claim.figure in _FIGURES else -1)


def read_claims(path: Path) -> list[Claim]:
    """Read the claims that ``write_claims`` wrote as CSV; a missing file gives an empty list."""
    rows: Sequence[Mapping[str, Any]] = Table.read_csv(path).rows() if path.is_file() else ()
    try:
        return [Claim(**row) for row in rows]
    except TypeError as error:
        names = ", ".join(field.name for field in fields(Claim))
        raise InvalidInputError(f"{path}: must have the columns {names}, got others") from error


def write_claims(claims: Sequence[Claim], path: Path) -> None:
    """Write claims as CSV, or as Markdown if the name ends in .md."""
    if path.suffix == ".md":
        with whole_file(path) as stream:
            stream.write(claims_markdown(claims).encode())
    else:
        names = [field.name for field in fields(Claim)]
        Table({name: tuple(getattr(claim, name) for claim in claims) for name in names}).write_csv(path)


def _subject(claim: Claim) -> tuple[str, str]:
    """Key of a claim: its figure, plus the study for training claims."""
    study, comma, seeds = claim.reading.rpartition(", ")
    return claim.figure, study if comma and "seed" in seeds else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
