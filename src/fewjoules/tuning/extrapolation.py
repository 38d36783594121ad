"""The steps to the target of a pilot that a budget has ended before it got there, and how uncertain they are."""

import math
from dataclasses import dataclass

from fewjoules.tuning.pilot import PilotResult
from fewjoules.tuning.reach import ERRORS, HOPELESS, is_telling, out_of_reach, unjudged
from fewjoules.tuning.search import Search

GUESS_DEVIATION = 0.4  # of ln(steps to the target), the least where a curve was extrapolated


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """Expected local steps to the target, between the least and the most that a curve allows."""

    steps: float
    least: float
    most: float

    @property
    def deviation(self) -> float:
        """Standard deviation of ln(steps to the target); the range is two of them to either side."""
        return max(GUESS_DEVIATION, math.log(self.most / self.least) / 4.0)


def extrapolated(search: Search, pilot: PilotResult, start_metric: float) -> Extrapolation:
    """Return the steps to the target by the curve of a pilot, or raise the error that says why there are none.

    With few evaluations the line through a curve is mostly noise and comes too late, while the pace from the untrained
    model on comes too soon: their geometric mean is taken.
    """
    aim, far = search.aim, HOPELESS * pilot.local_steps_taken
    line, telling = aim.expected_steps(pilot), is_telling(pilot)
    if telling:
        least, most = (aim.expected_steps(pilot, errors=errors) for errors in (ERRORS, -ERRORS))
    else:
        least, most = aim.steps_at_first_pace(pilot, start_metric), line
    if math.isinf(least) and not telling:
        raise unjudged(search, [pilot])
    if least > far:
        raise out_of_reach(search, [pilot], least)
    least = max(least, float(pilot.local_steps_taken))
    most = max(min(most, far), least)
    return Extrapolation(min(max(line, least), most) if telling else math.sqrt(least * most), least, most)


def note_of(pilot: PilotResult, found: Extrapolation) -> str:
    """Return the sentence about an extrapolation."""
    more = " or more" if found.most >= HOPELESS * pilot.local_steps_taken else ""
    return (
        f"The budget ended before a pilot reached the target, so the rounds are extrapolated from "
        f"{pilot.local_steps_taken:,} local steps: the target is expected after {found.steps:,.0f}, and may come after "
        f"{found.least:,.0f} to {found.most:,.0f}{more}."
    )
