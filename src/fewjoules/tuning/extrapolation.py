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
    model on comes too soon: their geometric mean is taken. Curves bend beyond what was seen, so the range is never
    narrower than ``GUESS_DEVIATION`` allows, however well a line fits.
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
    taken, spread = float(pilot.local_steps_taken), math.exp(2.0 * GUESS_DEVIATION)
    least = max(least, taken)
    most = max(min(most, far), least)
    steps = min(max(line, least), most) if telling else math.sqrt(least * most)
    return Extrapolation(steps, max(min(least, steps / spread), taken), max(min(max(most, steps * spread), far), steps))


def note_of(pilot: PilotResult, found: Extrapolation) -> str:
    """Return the sentence about an extrapolation."""
    more = " or more" if found.most >= HOPELESS * pilot.local_steps_taken else ""
    return (
        f"The budget ended before a pilot reached the target, so the rounds are extrapolated from "
        f"{pilot.local_steps_taken:,} local steps: the target is expected after {found.steps:,.0f}, and may come after "
        f"{found.least:,.0f} to {found.most:,.0f}{more}."
    )
