"""Damage records of trainings, a byte at a time, and see that each damage is noticed or does no harm: ``make soak``.

Like tests/soak/damage.py, which says what is done to a file and how it is judged. A sample is in test_soak_records.py.
"""

import argparse
import collections
import dataclasses
import io
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.soak.damage import GOOD, cuts_and_flips, hostile

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules_reproduction import tables_trainings as tables
from fewjoules_reproduction.studies import STUDIES
from fewjoules_reproduction.trainings import QUICK, sheet_claims
from test_results import SCALE, Pretended, carried_out, from_records

KINDS = frozenset({"accuracy", "energy"})


def outcome_of(folder: Path) -> Any:
    """Every number that is drawn from the records."""
    results = from_records(folder)
    made = [tables.summary_table(results), tables.predictions_table(results)] if results.curves else []
    if results.pilots is not None:
        made += [tables.pilots_table(results), tables.laws_table(results)]
    return (
        [table.rows() for table in made],
        sheet_claims(results, QUICK, KINDS) if results.curves else [],
        results.not_run,
    )


def made_in(folder: Path) -> list[Path]:
    """Records of a small study whose trainings are made up."""
    carried_out(folder, Pretended())
    return sorted(folder.rglob("*.json"))


def small_studies(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(STUDIES, "digits", dataclasses.replace(STUDIES["digits"], scale=SCALE))


def attempts(files: list[Path], every: int) -> Iterator[tuple[Path, str, bytes, bool]]:
    for file in files:
        data = file.read_bytes()
        yield from ((file, what, spoilt, False) for what, spoilt in cuts_and_flips(data, every))
        yield from ((file, what, spoilt, True) for what, spoilt in hostile(file.name, data))


def attempt(folder: Path, file: Path, spoilt: bytes, expected: Any, *, may_differ: bool) -> str:
    data = file.read_bytes()
    file.write_bytes(spoilt)
    try:
        found = outcome_of(folder)
        return "same" if repr(found) == repr(expected) else "accepted" if may_differ else "other results"
    except InvalidInputError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 1000 else f"not one sentence: {error}"
    except FewJoulesError as error:
        return "refused" if may_differ else f"another error: {error}"
    except Exception as error:
        return f"escaped: {type(error).__name__}: {str(error)[:200]}"
    finally:
        file.write_bytes(data)


def campaign(every: int, minutes: float, seed: int) -> int:
    deadline = time.monotonic() + 60 * minutes
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        small_studies(patch)
        files = made_in(Path(place))
        expected = outcome_of(Path(place))
        todo = list(attempts(files, every))
        random.Random(seed).shuffle(todo)
        for file, what, spoilt, may_differ in todo:
            if time.monotonic() > deadline:
                break
            with redirect_stdout(io.StringIO()):
                verdict = attempt(Path(place), file, spoilt, expected, may_differ=may_differ)
            counts[verdict if verdict in GOOD else "WRONG"] += 1
            if verdict not in GOOD:
                print(f"  records: {file.name}: {what}: {verdict}", flush=True)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    print(f"{'records':20} {sum(counts.values()):6} of {len(todo):6} attempts: {told}", flush=True)
    return counts["WRONG"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=10, help="damage every so many bytes")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after so many minutes")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    given = parser.parse_args()
    sys.exit(min(1, campaign(given.every, given.minutes, given.seed)))
