"""Plans with partial participation: a round costs what those who take part in it spend on average."""

from dataclasses import replace

from fewjoules.convergence.participation import USUAL_PARTICIPATION_WEIGHT, PartialRounds, rounds_growth
from fewjoules.errors import require_integer, require_number
from fewjoules.planner.problem import ControlProblem


def with_participants(
    problem: ControlProblem,
    participants: int,
    *,
    weight: float = USUAL_PARTICIPATION_WEIGHT,
    law_participation: float = 1.0,
) -> ControlProblem:
    """Return the problem with so many devices in each round, drawn uniformly.

    Every device then costs the mean of a round in which it may take part: joules and batteries are those of the whole
    training on average. What a device receives is all that changed since it last took part (catch_up.py), in joules
    and seconds the mean over its absences. Rounds grow by ``weight`` (docs/model.md) from the fraction
    ``law_participation`` at which the rounds law was measured. Each device that takes part must keep the deadline, as
    before.
    """
    require_integer("participants", participants, low=1, high=problem.devices)
    require_number("participation weight", weight, low=0.0)
    require_number("participation of the rounds law", law_participation, low=0.0, high=1.0, above=True)
    fraction = participants / problem.devices
    growth = rounds_growth(fraction, weight) / rounds_growth(law_participation, weight)
    if fraction == 1.0 and growth == 1.0:
        return problem
    server = problem.server
    return replace(
        problem,
        downlink="free" if server is None else replace(server, participation=fraction),
        fleet=problem.fleet.taking_part(fraction),
        rounds=problem.rounds if growth == 1.0 else PartialRounds(problem.rounds, growth),
        cohort=participants,
    )
