"""A sentence of the paper, and whether it is reproduced."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fedjoule.files import whole_file
from fedjoule.reproduce.table import Table

Verdict = Literal["reproduced", "partly", "not reproduced", "not run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One sentence under one reading: the verdict, our number in a few words, and why."""

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
    """A table for the documentation; a sentence is written once for all its readings."""
    lines = ["| figure | sentence | reading | verdict | our number | why |", "|---|---|---|---|---|---|"]
    before = None
    for claim in claims:
        same = before is not None and (before.figure, before.sentence) == (claim.figure, claim.sentence)
        why = "" if same and before is not None and before.why == claim.why else claim.why
        head = ("", "") if same else (claim.figure, claim.sentence)
        lines.append(f"| {' | '.join(map(_cell, (*head, claim.reading, claim.verdict, claim.number, why)))} |")
        before = claim
    return "\n".join(lines) + "\n"


def write_claims(claims: Sequence[Claim], path: Path) -> None:
    """All claims as CSV, or as Markdown where the name ends in .md."""
    if path.suffix == ".md":
        with whole_file(path) as stream:
            stream.write(claims_markdown(claims).encode())
    else:
        Table.from_rows(asdict(claim) for claim in claims).write_csv(path)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
