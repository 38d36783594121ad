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
        """Standard deviation of ln(steps to the target); the range is four of them wide."""
        return max(GUESS_DEVIATION, math.log(self.most / self.least) / 4.0)

    def widened(self, least: float, most: float) -> "Extrapolation":
        """Return the same with a range of two ``GUESS_DEVIATION`` to either side or more, within limits."""
        spread = math.exp(2.0 * GUESS_DEVIATION)
        low, high = min(self.least, self.steps / spread), max(self.most, self.steps * spread)
        return Extrapolation(self.steps, max(low, least), min(high, most))


def extrapolated(search: Search, pilot: PilotResult, start_metric: float) -> Extrapolation:
    """Return the steps to the target by the curve of a pilot, or raise the error that says why there are none.

    A line through a curve with few evaluations or much scatter comes too late, while the pace from the untrained model
    on comes too soon: their geometric mean is taken. Curves bend beyond what was seen, so the range is never narrower
    than ``GUESS_DEVIATION`` allows, however well a line fits.
    """
    aim, taken = search.aim, float(pilot.local_steps_taken)
    far, pace = HOPELESS * taken, aim.steps_at_first_pace(pilot, start_metric)
    line, telling = aim.expected_steps(pilot), is_telling(pilot)
    least, most = (aim.expected_steps(pilot, errors=one) for one in (ERRORS, -ERRORS)) if telling else (pace, line)
    if math.isinf(least) and not telling:
        raise unjudged(search)
    if least > far:
        raise out_of_reach(search, least)
    least, most, line, pace = (min(max(one, taken), far) for one in (least, most, line, pace))
    found = Extrapolation(line, least, most)
    if not telling or found.deviation > GUESS_DEVIATION:
        found = Extrapolation(math.sqrt(pace * max(line, pace)), min(least, pace), most)
    return found.widened(taken, far)


def note_of(pilot: PilotResult, found: Extrapolation) -> str:
    """Return the sentence about an extrapolation."""
    more = " or more" if found.most >= HOPELESS * pilot.local_steps_taken else ""
    return (
        f"The budget ended before a pilot reached the target, so the rounds are extrapolated from "
        f"{pilot.local_steps_taken:,} local steps: the target is expected after {found.steps:,.0f}, and may come after "
        f"{found.least:,.0f} to {found.most:,.0f}{more}."
    )
