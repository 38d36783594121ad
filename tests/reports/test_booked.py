"""What the terminal says about the joules that runs booked."""

import io
import re

from rich.console import Console

from fewjoules.reports.booked import outcome
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_run


def printed(*folders):
    output = io.StringIO()
    Console(file=output, width=140, highlight=False).print(outcome([RunResults.load(folder) for folder in folders]))
    return output.getvalue()


def below(text):
    """The lines of the table of marks, in which a column ends where two spaces follow."""
    return [re.split(r" {2,}", line.strip()) for line in text.split("\n\n")[1].splitlines()]


def test_the_marks_of_every_run_stand_below_the_outcome(tmp_path):
    dear = make_run(tmp_path / "a", scheme="dense", joules=0.5, joules_by_kind={"uplink": {"profile": 300.0}})
    split = {"uplink": {"measured": 1.0}, "compute": {"assumed": 0.5, "measured": 0.5}}
    cheap = make_run(tmp_path / "b", scheme="[red]flexible", joules_by_kind=split)
    assert below(printed(dear, cheap)) == [
        ["scheme", "J booked", "measured J", "profile J", "assumed J"],
        ["[red]flexible", "2", "1.5 (75 %)", "0", "0.5 (25 %)"],
        ["dense", "300", "0", "300 (100 %)", "0"],
    ]


def test_runs_that_do_not_tell_their_joules_by_mark_have_no_table_of_them(tmp_path):
    assert "booked" not in printed(make_run(tmp_path / "old"), make_run(tmp_path / "free", joules_by_kind={}))
