"""[recipe] of a scenario file: the training options that go with the scheme fewest, and what they change in a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pydantic

from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.errors import InvalidInputError
from fewjoules.planner.recipe import MESSAGE_OPTIONS, OPTIMISER_OPTIONS, Recipe
from fewjoules.scenario.schema.base import Name, NonNegative, Table
from fewjoules.scenario.schema.limits import LimitsTable
from fewjoules.scenario.schema.message_size import MessageSizeTable
from fewjoules.scenario.schema.rounds import RoundsTable, law_fields
from fewjoules.scenario.schema.training import OPTIONS, TrainingTable, option_type, plain_options


def _options_table(name: str, options: Sequence[str], required: Sequence[str] = ()) -> Any:
    """Return a table of some options of a training, with the types and limits of [training]."""
    types: dict[str, Any] = {one: option_type(OPTIONS[one]) for one in options}
    fields: dict[str, Any] = {
        one: (kind, ...) if one in required else (kind | None, None) for one, kind in types.items()
    }
    return pydantic.create_model(name, __base__=Table, **fields)


if TYPE_CHECKING:

    class RecipeOptimiserTable(Table):
        """[recipe.optimiser]."""

    class RecipeMessageTable(Table):
        """[recipe.message]."""
else:
    RecipeOptimiserTable = _options_table("RecipeOptimiserTable", OPTIMISER_OPTIONS, required=("learning_rate",))
    RecipeMessageTable = _options_table("RecipeMessageTable", MESSAGE_OPTIONS)


MAX_PILOT_STEPS = 2**53


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeSearch:
    """What the search for a recipe found beside it, and what it took; None where the file does not tell it.

    ``plain_learning_rate`` is the best step size of plain SGD. Client-steps and joules are those of all pilot runs.
    """

    plain_learning_rate: float | None = None
    pilots: int | None = None
    pilot_client_steps: int | None = None
    pilot_joules: float | None = None


SEARCH_KEYS = tuple(RecipeSearch.__dataclass_fields__)


class RecipeTable(Table):
    """[recipe]."""

    name: Name
    optimiser: RecipeOptimiserTable
    message: RecipeMessageTable = RecipeMessageTable()
    rounds: RoundsTable
    limits: LimitsTable | None = None
    message_size: MessageSizeTable | None = None
    downlink_message_size: MessageSizeTable | None = None
    plain_learning_rate: option_type(OPTIONS["learning_rate"]) | None = None  # type: ignore[valid-type]
    pilots: Annotated[int, pydantic.Field(ge=1, le=MAX_PILOT_STEPS)] | None = None
    pilot_client_steps: Annotated[int, pydantic.Field(ge=1, le=MAX_PILOT_STEPS)] | None = None
    pilot_joules: NonNegative | None = None

    def recipe(self, training: TrainingTable | None) -> Recipe:
        """Return the recipe; refuse options that contradict each other or those of [training] that stay."""
        optimiser, message = (
            plain_options(part.model_dump(exclude_unset=True)) for part in (self.optimiser, self.message)
        )
        found = Recipe(self.name, optimiser, message)
        stated = {} if training is None else training.stated()
        try:
            TrainingOptions.of(**overridden(stated, found.options()), local_steps=1, sparsity=[1.0], rounds=1)
        except InvalidInputError as error:
            raise InvalidInputError(f"recipe: {error}") from error
        return found

    def search(self) -> RecipeSearch:
        """Return what the file tells of the search for the recipe."""
        return RecipeSearch(**{key: getattr(self, key) for key in SEARCH_KEYS})

    def scenario_fields(self) -> dict[str, Any]:
        """Return the fields of the scenario that the recipe plans with in place of the file's."""
        try:
            laws = law_fields(self.rounds) | ({} if self.limits is None else self.limits.fields())
        except InvalidInputError as error:
            raise InvalidInputError(f"recipe.{error}") from error
        sizes = {"message_size": self.message_size, "downlink_message_size": self.downlink_message_size}
        return laws | {name: table.law() for name, table in sizes.items() if table is not None}
