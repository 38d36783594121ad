"""[limits] of a scenario file: what a plan may choose from."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from fewjoules.errors import InvalidInputError
from fewjoules.planner.problem import MAX_LOCAL_STEPS
from fewjoules.scenario.schema.base import Positive, Table

AtLeastOne = Annotated[float, Field(ge=1.0)]
Steps = Annotated[int, Field(ge=1, le=MAX_LOCAL_STEPS)]


class SparsityTable(Table):
    """limits.sparsity and limits.downlink_sparsity."""

    min: AtLeastOne
    max: AtLeastOne


class StepRangeTable(Table):
    """limits.local_steps as a range: every whole number from min to max."""

    min: Steps
    max: Steps


class LimitsTable(Table):
    """[limits]; ``local_steps`` is {min, max} or a list."""

    sparsity: SparsityTable
    local_steps: Annotated[
        Annotated[StepRangeTable, Tag("range")] | Annotated[list[Steps], Field(min_length=1), Tag("list")],
        Discriminator(lambda value: "list" if isinstance(value, list) else "range"),
    ]
    round_seconds: Positive | None = None
    downlink_sparsity: (
        Annotated[
            Annotated[AtLeastOne, Tag("number")] | Annotated[SparsityTable, Tag("range")],
            Discriminator(lambda given: "range" if isinstance(given, dict | SparsityTable) else "number"),
        ]
        | None
    ) = None

    def downlink_limits(self) -> tuple[float, float] | None:
        """Return the limits of the server's sparsity; None where the file does not give them."""
        given = self.downlink_sparsity
        if not isinstance(given, SparsityTable):
            return None if given is None else (given, given)
        if given.min > given.max:
            raise InvalidInputError(
                f"limits.downlink_sparsity.min must be at most max = {given.max:g}, got {given.min:g}"
            )
        return given.min, given.max

    def fields(self) -> dict[str, Any]:
        """Return what a scenario keeps of its limits."""
        return {
            "sparsity": (self.sparsity.min, self.sparsity.max),
            "local_steps": self.choices(),
            "round_seconds": self.round_seconds,
            "downlink_sparsity": self.downlink_limits(),
        }

    def choices(self) -> tuple[int, ...] | range:
        """Return every H that may be chosen."""
        steps = self.local_steps
        if isinstance(steps, list):
            return tuple(steps)
        if steps.min > steps.max:
            raise InvalidInputError(f"limits.local_steps.min must be at most max = {steps.max}, got {steps.min}")
        return range(steps.min, steps.max + 1)
