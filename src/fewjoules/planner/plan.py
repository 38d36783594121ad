"""A plan: local steps, sparsities, predicted costs, and the proved lower bound."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_array, require_integer, require_name, require_number, shown
from fewjoules.files import read_text, whole_file
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.points import MAX_POINTS
from fewjoules.planner.choosing_points import at_points
from fewjoules.planner.problem import MAX_LOCAL_STEPS, MAX_PARAMETERS, MAX_SPARSITY, ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.provenance import require_joules

PLAN_VERSION = 5
# a plan of version 1 does not say for how many parameters it was made, one of version 2 knows no downlink and no
# points, one of version 3 no recipe, one of version 4 not how many devices take part
PLAN_VERSIONS = (1, 2, 3, 4, 5)
PLAN_KEYS = (
    "scheme",
    "solver",
    "parameters",
    "local_steps",
    "sparsity",
    "rounds",
    "energy_joules",
    "radio_joules",
    "compute_joules",
    "seconds",
    "lower_bound_joules",
    "relative_gap",
    "downlink_sparsity",
    "operating_points",
    "joules",
    "recipe",
    "participants",
)
# the first version with a key
_SINCE = {"parameters": 2, "downlink_sparsity": 3, "operating_points": 3, "joules": 3, "recipe": 4, "participants": 5}
_DERIVED = ("energy_joules", "relative_gap")  # of other keys


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """H, the sparsity of each device, and what the training is predicted to take. ``solve`` and schemes make plans.

    Args:
        scheme: Name of the scheme.
        solver: "pareto" or "benders".
        parameters: Size of the model that the plan is for; None fits every model.
        local_steps: H.
        sparsity: One for each device, shape (devices,), before entries are rounded to whole numbers.
        rounds: Predicted rounds, a real number.
        radio_joules: Predicted joules of uplink, downlink and tails, all devices and rounds.
        compute_joules: Predicted joules of steps and coding, all devices and rounds.
        seconds: Predicted seconds; None if a time is unknown.
        lower_bound_joules: No plan of the scheme costs less; None if nothing is proved.
        downlink_sparsity: The server's; None where the downlink is not planned.
        operating_points: Number of each device's point, from 0, where the fleet has some.
        joules: Predicted joules by kind and by mark.
        recipe: Training options that go with the plan; None if it goes with any.
        participants: How many devices take part in each round; None if the plan does not say.
        effort: Counts of the solver's work, not saved.
    """

    scheme: str
    solver: str
    parameters: int | None = None
    local_steps: int
    sparsity: FloatArray
    rounds: float
    radio_joules: float
    compute_joules: float
    seconds: float | None
    lower_bound_joules: float | None
    downlink_sparsity: float | None = None
    operating_points: IntArray | None = None
    joules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    recipe: Recipe | None = None
    participants: int | None = None
    effort: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that no plan can have, and convert the others to their types."""
        for name in ("scheme", "solver"):
            require_name(name, getattr(self, name))
        checked: dict[str, Any] = {
            "local_steps": require_integer("local_steps", self.local_steps, low=1, high=MAX_LOCAL_STEPS),
            "sparsity": np.atleast_1d(require_array("sparsity", self.sparsity, low=1.0, high=MAX_SPARSITY)),
        }
        if self.parameters is not None:
            checked["parameters"] = require_integer("parameters", self.parameters, low=1, high=MAX_PARAMETERS)
        for name in ("rounds", "radio_joules", "compute_joules"):
            checked[name] = require_number(name, getattr(self, name), low=0.0)
        for name in ("seconds", "lower_bound_joules"):
            value = getattr(self, name)
            checked[name] = None if value is None else require_number(name, value, low=0.0)
        if self.downlink_sparsity is not None:
            checked["downlink_sparsity"] = require_number(
                "downlink_sparsity", self.downlink_sparsity, low=1.0, high=MAX_SPARSITY
            )
        if self.operating_points is not None:
            checked["operating_points"] = _checked_points(self.operating_points, checked["sparsity"].size)
        checked["joules"] = require_joules("joules", self.joules)
        checked["recipe"] = _checked_recipe(self.recipe)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.sparsity.size == 0:
            raise InvalidInputError("sparsity must have an entry for each device, got none")
        if self.participants is not None:
            most = self.sparsity.size
            own = require_integer("participants", self.participants, low=1, high=most)
            object.__setattr__(self, "participants", own)
        energy = require_number("energy_joules", self.energy_joules, low=0.0)
        told = math.fsum(value for split in self.joules.values() for value in split.values())
        if self.joules and not math.isclose(told, energy, rel_tol=1e-9):
            raise InvalidInputError(f"joules by kind must sum to energy_joules = {energy!r}, got {told!r}")
        bound = self.lower_bound_joules
        if bound is not None and bound > energy and not math.isclose(bound, energy, rel_tol=1e-9):
            raise InvalidInputError(f"lower_bound_joules must be at most energy_joules = {energy!r}, got {bound!r}")

    @property
    def energy_joules(self) -> float:
        """Predicted joules of the whole training, objective (27) of [LI21]."""
        return self.radio_joules + self.compute_joules

    @property
    def relative_gap(self) -> float | None:
        """Proved gap: no plan of the scheme costs less than (1 - gap) times this one; None if nothing is proved."""
        if self.lower_bound_joules is None:
            return None
        return 1.0 - self.lower_bound_joules / self.energy_joules if self.energy_joules > 0.0 else 0.0

    def kept_entries(self, parameters: int) -> IntArray:
        """Return the number of entries that each device sends: k = max(1, round(d / delta)), shape (devices,)."""
        return kept_of(self.sparsity, parameters)

    def require_model(self, parameters: int) -> None:
        """Refuse a model of another size than the plan was made for: its messages would cost something else."""
        if self.parameters not in (None, parameters):
            raise InvalidInputError(
                f"the plan was made for a model of {self.parameters:,} parameters, got a model of {parameters:,}"
            )

    def participation_option(self, devices: int) -> dict[str, float]:
        """Return the part of the devices in each round as an option of a training; nothing where all take part."""
        if self.participants is None or self.participants == self.sparsity.size or self.sparsity.size != devices:
            return {}
        return {"participation": self.participants / devices}

    def require_participants(self, participants: int, devices: int) -> None:
        """Refuse a training in which more or fewer devices take part in each round than the plan was made for."""
        if self.participants not in (None, participants) and self.sparsity.size == devices:
            raise InvalidInputError(
                f"participation must be that of the plan, {self.participants} of {devices} devices in each round, got "
                f"{participants} of {devices}"
            )

    def chooses_like(self, other: "Plan") -> bool:
        """Whether both make the same choices, up to rounding."""
        if self.local_steps != other.local_steps or self.sparsity.size != other.sparsity.size:
            return False
        servers = [1.0 if plan.downlink_sparsity is None else plan.downlink_sparsity for plan in (self, other)]
        return bool(
            np.allclose(self.sparsity, other.sparsity, rtol=1e-6)
            and math.isclose(*servers, rel_tol=1e-6)
            and np.array_equal(self.operating_points, other.operating_points)  # type: ignore[arg-type]
            and self.recipe == other.recipe
        )

    def downlink_option(self) -> dict[str, float]:
        """Return the server's sparsity as an option of a training; nothing where the downlink is not planned."""
        return {} if self.downlink_sparsity is None else {"downlink_sparsity": self.downlink_sparsity}

    def fleet_at_points(self, fleet: Fleet) -> Fleet:
        """Return the fleet with each device at the operating point that the plan chose."""
        chosen, points = self.operating_points, fleet.operating_points
        if chosen is None:
            return fleet
        there = points is not None and chosen.size == len(fleet) and int(chosen.max()) < points.count
        if not there or points is None or not np.isfinite(points.at(chosen)["joules_per_step"]).all():
            raise InvalidInputError("the operating_points of the plan must be those of the fleet, got others")
        return fleet.at_points(chosen)

    def rounds_to_train(self, times: int = 1) -> int:
        """Return ``times`` as many rounds as planned, rounded up, at least 1."""
        return max(1, math.ceil(times * Fraction(self.rounds)))  # the product of floats may be infinite

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as the dictionary of its JSON file."""
        points = self.operating_points
        plain = {
            "sparsity": self.sparsity.tolist(),
            "operating_points": None if points is None else points.tolist(),
            "recipe": None if self.recipe is None else self.recipe.to_dict(),
        }
        return {key: getattr(self, key) for key in PLAN_KEYS} | plain

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, under a temporary name until it is complete."""
        with whole_file(_checked_path(path)) as stream:
            stream.write((plans_to_json([self]) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read the plan that ``save`` wrote."""
        plans = plans_from_json(read_text(_checked_path(path)), source=str(path))
        if len(plans) != 1:
            raise InvalidInputError(f"{path}: must hold exactly 1 plan, got {len(plans)}")
        return plans[0]


def evaluate_plan(
    problem: ControlProblem,
    *,
    scheme: str,
    solver: str,
    local_steps: int,
    sparsity: FloatArray,
    lower_bound_joules: float | None,
    downlink_sparsity: float | None = None,
    operating_points: IntArray | None = None,
    effort: Mapping[str, int] | None = None,
) -> Plan:
    """Make a plan whose predictions come from objective (27) as written, not from the solver's own arithmetic."""
    if operating_points is not None:
        problem = at_points(problem, operating_points)
    costs = problem.costs(local_steps, sparsity, downlink_sparsity)
    bound = lower_bound_joules
    return Plan(
        scheme=scheme,
        solver=solver,
        parameters=problem.parameters,
        local_steps=local_steps,
        sparsity=sparsity,
        rounds=costs.rounds,
        radio_joules=costs.radio_joules,
        compute_joules=costs.compute_joules,
        seconds=costs.seconds,
        # rounding may make the two sums differ by a few units in the last place
        lower_bound_joules=None if bound is None else min(bound, costs.energy_joules),
        downlink_sparsity=downlink_sparsity,
        operating_points=operating_points,
        participants=problem.cohort or problem.devices,
        joules=costs.joules,
        effort={} if effort is None else dict(effort),
    )


def plans_to_json(plans: Sequence[Plan]) -> str:
    """Return plans as the JSON of ``fewjoules plan --json``."""
    document = {"version": PLAN_VERSION, "plans": [plan.to_dict() for plan in plans]}
    return json.dumps(document, allow_nan=False)


def plans_from_json(text: str, *, source: str) -> list[Plan]:
    """Read the plans of a JSON document; ``source`` names it in errors."""
    try:
        document = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{source}: must be JSON ({error})") from error
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version not in PLAN_VERSIONS:
        allowed = " or ".join(map(str, PLAN_VERSIONS))
        raise InvalidInputError(f"{source}: version must be {allowed}, got {shown(version)}")
    entries = document.get("plans")
    if not isinstance(entries, list):
        raise InvalidInputError(f"{source}: plans must be a list, got {type(entries).__name__}")
    try:
        return [_plan_from_dict(entry, version) for entry in entries]
    except InvalidInputError as error:
        raise InvalidInputError(f"{source}: {error}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} is given twice")
    return table


def _plan_from_dict(entry: Any, version: int) -> Plan:
    wanted = [key for key in PLAN_KEYS if version >= _SINCE.get(key, 1)]
    keys = sorted(entry) if isinstance(entry, dict) else []
    if keys != sorted(wanted):
        wrong = shown(sorted(set(keys) ^ set(wanted)), most=200)
        raise InvalidInputError(f"a plan must have exactly the keys {', '.join(wanted)}; check {wrong}")
    if not isinstance(entry["sparsity"], list) or any(isinstance(one, bool) for one in entry["sparsity"]):
        raise InvalidInputError(f"sparsity must be a list of numbers, got {shown(entry['sparsity'])}")
    given = {key: entry[key] for key in wanted if key not in _DERIVED}
    if given.get("recipe") is not None:
        given["recipe"] = Recipe.from_dict(given["recipe"])
    plan = Plan(**given)
    energy = require_number("energy_joules", entry["energy_joules"], low=0.0)
    if not math.isclose(energy, plan.energy_joules, rel_tol=1e-9):
        raise InvalidInputError(
            f"energy_joules must be radio_joules + compute_joules = {plan.energy_joules!r}, got {shown(energy)}"
        )
    return plan


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"path must be the path of a file, got {shown(path)}")
    return Path(path)


def _checked_points(points: Any, devices: int) -> IntArray:
    if isinstance(points, np.ndarray) and points.shape == (devices,) and points.dtype.kind == "i":
        if 0 <= points.min() <= points.max() < MAX_POINTS:
            return points
        points = points.tolist()
    if not isinstance(points, list) or len(points) != devices:
        raise InvalidInputError(f"operating_points must be a list of {devices} numbers, got {shown(points)}")
    return np.array([require_integer("operating_points", one, low=0, high=MAX_POINTS - 1) for one in points])


def _checked_recipe(recipe: Any) -> Recipe | None:
    if not isinstance(recipe, Recipe | None):
        raise InvalidInputError(f"recipe must be a fewjoules.Recipe, got {type(recipe).__name__}")
    return None if recipe is None else recipe.without_plan()


def kept_of(sparsity: FloatArray, parameters: int) -> IntArray:
    """Return k = max(1, round(d / delta)) for each sparsity delta of a model with d parameters."""
    return np.maximum(1, np.rint(parameters / sparsity)).astype(np.int64)
