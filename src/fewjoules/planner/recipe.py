"""A recipe: the options of a training that may be chosen beside its plan, that is the optimiser and the messages."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fewjoules.errors import InvalidInputError, require_name, shown

if TYPE_CHECKING:
    from fewjoules.planner.plan import Plan

OPTIMISER_OPTIONS = (
    *("learning_rate", "schedule", "warmup_rounds", "decay_rounds", "decay_factor"),
    *("inner", "momentum", "momentum_state", "adam_beta2", "adam_epsilon", "weight_decay", "gradient_clip"),
    *("outer", "outer_momentum", "outer_rate", "outer_beta2", "outer_epsilon", "averaging"),
    *("residual_decay", "error_feedback", "batch_size", "batch_growth"),
)
MESSAGE_OPTIONS = ("compressor", "values", "levels", "downlink_values")
RECIPE_KEYS = ("name", "optimiser", "message")
_KNOWN = {"optimiser": OPTIMISER_OPTIONS, "message": MESSAGE_OPTIONS}


@dataclass(frozen=True)
class Recipe:
    """The optimiser and the messages of a training, by name of option; options left out are those of the training.

    Args:
        name: What tables call the recipe.
        optimiser: Options such as ``learning_rate``, ``inner``, ``outer`` and ``batch_size``.
        message: Options ``compressor``, ``values``, ``levels`` and ``downlink_values``.
        plan: H, sparsity and rounds that go with it.
        report: Whatever its finder tells, not saved.

    Raises:
        InvalidInputError: An option is unknown or has the wrong type. Values are checked when they are used.
    """

    name: str
    optimiser: Mapping[str, Any]
    message: Mapping[str, Any] = field(default_factory=dict)
    plan: "Plan | None" = field(default=None, compare=False)
    report: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse unknown options and values that JSON cannot hold; make the mappings read-only."""
        require_name("the name of a recipe", self.name)
        for part in ("optimiser", "message"):
            object.__setattr__(self, part, _checked_options(part, getattr(self, part)))
        if "learning_rate" not in self.optimiser:
            raise InvalidInputError(f"the optimiser of a recipe must have learning_rate, got {_listed(self.optimiser)}")
        if self.plan is not None:
            self._require_own_plan(self.plan)

    def _require_own_plan(self, plan: Any) -> None:
        from fewjoules.planner.plan import Plan

        if not isinstance(plan, Plan):
            raise InvalidInputError(f"the plan of a recipe must be a fewjoules.Plan, got {type(plan).__name__}")
        if plan.recipe is not None and plan.recipe.options() != self.options():
            raise InvalidInputError(
                f"the plan of recipe {self.name!r} must carry the same options or none, got those of recipe "
                f"{plan.recipe.name!r}"
            )

    def options(self) -> dict[str, Any]:
        """Return all options of the recipe, as keyword arguments of ``TrainingOptions.of``."""
        return {**self.optimiser, **self.message}

    def without_plan(self) -> "Recipe":
        """Return what a plan keeps of the recipe: its name and options."""
        return replace(self, plan=None, report=None)

    def to_dict(self) -> dict[str, Any]:
        """Return name and options as values that JSON can hold."""
        return {"name": self.name} | {part: _plain(getattr(self, part)) for part in ("optimiser", "message")}

    @classmethod
    def from_dict(cls, entry: Any) -> "Recipe":
        """Return the recipe that ``to_dict`` wrote."""
        keys = list(entry) if isinstance(entry, dict) else []
        if set(keys) != set(RECIPE_KEYS):
            got = _listed(keys) if isinstance(entry, dict) else shown(entry)
            raise InvalidInputError(f"a recipe must have exactly the keys {', '.join(RECIPE_KEYS)}, got {got}")
        return cls(**entry)

    def describe(self) -> str:
        """Return the recipe in one short line of plain words."""
        return ", ".join([*_steps(self.optimiser), *_messages(self.message)])


def _checked_options(part: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"the {part} of a recipe must be a table of options, got {shown(given)}")
    known = _KNOWN[part]
    for name in given:
        if name not in known:
            raise InvalidInputError(f"the {part} of a recipe knows the options {', '.join(known)}, got {shown(name)}")
    return MappingProxyType({name: _checked_value(name, value) for name, value in given.items()})


def _checked_value(name: str, value: Any) -> Any:
    """Return a value of plain JSON, a list as a tuple; null is a value of batch_size alone, and means all samples."""
    plain = value.item() if isinstance(value, np.generic) else value
    if name == "decay_rounds":
        if isinstance(plain, list | tuple) and all(type(one) is int for one in plain):
            return tuple(plain)
    elif _is_plain(plain) or (plain is None and name == "batch_size"):
        return plain
    allowed = "a list of rounds" if name == "decay_rounds" else "a finite number, a name, true or false"
    raise InvalidInputError(f"{name} of a recipe must be {allowed}, got {shown(value)}")


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _listed(names: Any) -> str:
    return shown(sorted(map(str, names)), most=200)


def _steps(optimiser: Mapping[str, Any]) -> list[str]:
    """Describe what clients and server do with a gradient."""
    inner, outer = optimiser.get("inner"), optimiser.get("outer", "none")
    schedule = optimiser.get("schedule", "constant")
    found = [
        _named("momentum" if inner is None else inner, optimiser.get("momentum"), "on the devices")
        if inner not in (None, "sgd") or (inner is None and optimiser.get("momentum"))
        else "",
        _named(outer, optimiser.get("outer_momentum"), "on the server") if outer != "none" else "",
        f"step size {_number(optimiser['learning_rate'])}",
        {"constant": "", "cosine": "falling to zero", "step": "falling in steps"}.get(schedule, str(schedule)),
    ]
    if "outer_rate" in optimiser and optimiser["outer_rate"] != 1:
        found.append(f"server's step size {_number(optimiser['outer_rate'])}")
    if "batch_size" in optimiser:
        size = optimiser["batch_size"]
        found.append("all samples at every step" if size is None else f"batches of {_number(size)}")
    averaging = optimiser.get("averaging")
    if averaging:
        is_part = isinstance(averaging, int | float)  # else it is refused where it is used
        found.append(f"the mean of the last {_number(100 * averaging)} % of rounds" if is_part else f"mean {averaging}")
    if optimiser.get("error_feedback") is False:
        found.append("no error feedback")
    return [words for words in found if words]


def _messages(message: Mapping[str, Any]) -> list[str]:
    """Describe what is sent."""
    compressor, values = message.get("compressor"), message.get("values")
    kinds = [name for name in (compressor, values) if name is not None]
    found = []
    if compressor in ("ternary", "qsgd"):
        found.append(f"{compressor} values")
    else:
        found += [f"{compressor} entries"] if compressor is not None else []
        found += [f"{values} values"] if values is not None else []
    if "levels" in message and "qsgd" in kinds:
        found.append(f"{_number(message['levels'])} levels")
    if "downlink_values" in message:
        found.append(f"{message['downlink_values']} values from the server")
    return found


_NAMES = {"nesterov": "Nesterov", "adam": "Adam", "adamw": "AdamW"}


def _named(optimiser: Any, momentum: Any, where: str) -> str:
    constant = "" if momentum is None else f" {_number(momentum)}"
    return f"{_NAMES.get(optimiser, optimiser)}{constant} {where}"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
