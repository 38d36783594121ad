"""[rounds] of a scenario file: the rounds law, and how well its constants are known."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from fewjoules.convergence.intervals import FittedLaw, LawIntervals
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError
from fewjoules.scenario.schema.base import NonNegative, Positive, Table

Ends = Annotated[list[float], Field(min_length=2, max_length=2)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
_MEASURED = ("downlink_weight", "participation", "participation_weight")  # keys of every kind beside its constants


class PaperIntervalsTable(Table):
    """rounds.intervals of kind "paper": [low, high] of each constant."""

    alpha: Ends | None = None
    beta: Ends | None = None


class PowerLawIntervalsTable(Table):
    """rounds.intervals of kind "power-law": [low, high] of each constant."""

    tau: Ends | None = None
    c: Ends | None = None
    a: Ends | None = None
    q: Ends | None = None


class PaperTable(Table):
    """[rounds] of kind "paper"."""

    kind: Literal["paper"]
    alpha: NonNegative
    beta: NonNegative
    intervals: PaperIntervalsTable | None = None
    correlations: list[float] | None = None
    downlink_weight: NonNegative | None = None
    participation: Fraction = 1.0
    participation_weight: NonNegative | None = None

    def model(self) -> PaperRounds:
        """The rounds model."""
        return PaperRounds(alpha=self.alpha, beta=self.beta)

    def law_intervals(self) -> LawIntervals | None:
        """The intervals that the file gives."""
        return _checked_intervals(self.model(), self.intervals, self.correlations)


class BoundTable(Table):
    """[rounds] of kind "bound"."""

    kind: Literal["bound"]
    smoothness: Positive
    sigma: Positive
    gradient_bound: Positive
    initial_gap: Positive
    batch: Annotated[float, Field(ge=1.0)]
    epsilon: Positive
    form: Literal["exact", "printed"] = "exact"
    downlink_weight: NonNegative | None = None
    participation: Fraction = 1.0
    participation_weight: NonNegative | None = None

    def model(self) -> BoundRounds:
        """The rounds model."""
        return BoundRounds(**self.model_dump(exclude={"kind", *_MEASURED}))

    def law_intervals(self) -> LawIntervals | None:
        """Constants of the bound are known or guessed, not fitted."""
        return None


class PowerLawTable(Table):
    """[rounds] of kind "power-law"."""

    kind: Literal["power-law"]
    tau: Positive
    c: NonNegative
    a: float
    q: Positive
    intervals: PowerLawIntervalsTable | None = None
    correlations: list[float] | None = None
    downlink_weight: NonNegative | None = None
    participation: Fraction = 1.0
    participation_weight: NonNegative | None = None

    def model(self) -> PowerLawRounds:
        """The rounds model."""
        return PowerLawRounds(tau=self.tau, c=self.c, a=self.a, q=self.q)

    def law_intervals(self) -> LawIntervals | None:
        """The intervals that the file gives."""
        return _checked_intervals(self.model(), self.intervals, self.correlations)


def _checked_intervals(law: FittedLaw, table: Table | None, correlations: list[float] | None) -> LawIntervals | None:
    """Refuse intervals that do not hold their constant or leave its range."""
    given = {} if table is None else table.model_dump(exclude_none=True)
    if not given and correlations is None:
        return None
    intervals = {name: (low, high) for name, (low, high) in given.items()}
    try:
        for name, ends in intervals.items():
            for end in ends:
                replace(law, **{name: end})
        return LawIntervals(law, intervals, correlations)
    except InvalidInputError as error:
        raise InvalidInputError(f"rounds.intervals: {error}") from error


RoundsTable = Annotated[PaperTable | BoundTable | PowerLawTable, Field(discriminator="kind")]


def law_fields(table: PaperTable | BoundTable | PowerLawTable | None) -> dict[str, Any]:
    """Return what a scenario keeps of its rounds law."""
    return {
        "rounds": None if table is None else table.model(),
        "rounds_intervals": None if table is None else table.law_intervals(),
        "downlink_weight": None if table is None else table.downlink_weight,
        "law_participation": 1.0 if table is None else table.participation,
        "participation_weight": None if table is None else table.participation_weight,
    }
