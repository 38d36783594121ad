"""A plan: local steps, sparsities, predicted costs, and the proved lower bound."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_array, require_integer, require_number, shown
from fewjoules.files import read_text, whole_file
from fewjoules.planner.problem import MAX_LOCAL_STEPS, ControlProblem

PLAN_VERSION = 1
PLAN_KEYS = (
    "scheme",
    "solver",
    "local_steps",
    "sparsity",
    "rounds",
    "energy_joules",
    "radio_joules",
    "compute_joules",
    "seconds",
    "lower_bound_joules",
    "relative_gap",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """H, the sparsity of each device, and predictions; ``lower_bound_joules`` is None if nothing is proved.

    ``effort`` counts the solver's work; it is not saved.
    """

    scheme: str
    solver: str
    local_steps: int
    sparsity: FloatArray
    rounds: float
    radio_joules: float
    compute_joules: float
    seconds: float | None
    lower_bound_joules: float | None
    effort: Mapping[str, int] = field(default_factory=dict)

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

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as the dictionary of its JSON file."""
        return {key: getattr(self, key) for key in PLAN_KEYS} | {"sparsity": self.sparsity.tolist()}

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, under a temporary name until it is complete."""
        with whole_file(Path(path)) as stream:
            stream.write((plans_to_json([self]) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read the plan that ``save`` wrote."""
        plans = plans_from_json(read_text(path), source=str(path))
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
    effort: Mapping[str, int] | None = None,
) -> Plan:
    """Make a plan whose predictions come from objective (27) as written, not from the solver's own arithmetic."""
    costs = problem.costs(local_steps, sparsity)
    bound = lower_bound_joules
    return Plan(
        scheme=scheme,
        solver=solver,
        local_steps=local_steps,
        sparsity=sparsity,
        rounds=costs.rounds,
        radio_joules=costs.radio_joules,
        compute_joules=costs.compute_joules,
        seconds=costs.seconds,
        # rounding may make the two sums differ by a few units in the last place
        lower_bound_joules=None if bound is None else min(bound, costs.energy_joules),
        effort={} if effort is None else dict(effort),
    )


def plans_to_json(plans: Sequence[Plan]) -> str:
    """Return plans as the JSON of ``fewjoules plan --json``."""
    document = {"version": PLAN_VERSION, "plans": [plan.to_dict() for plan in plans]}
    return json.dumps(document, allow_nan=False)


def plans_from_json(text: str, *, source: str) -> list[Plan]:
    """Read the plans of a JSON document; ``source`` names it in errors."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{source}: must be JSON ({error})") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != PLAN_VERSION:
        raise InvalidInputError(f"{source}: version must be {PLAN_VERSION}, got {shown(version)}")
    entries = document.get("plans")
    if not isinstance(entries, list):
        raise InvalidInputError(f"{source}: plans must be a list, got {type(entries).__name__}")
    try:
        return [_plan_from_dict(entry) for entry in entries]
    except InvalidInputError as error:
        raise InvalidInputError(f"{source}: {error}") from error


def _plan_from_dict(entry: Any) -> Plan:
    keys = sorted(entry) if isinstance(entry, dict) else []
    if keys != sorted(PLAN_KEYS):
        wrong = sorted(set(keys) ^ set(PLAN_KEYS))
        raise InvalidInputError(f"a plan must have exactly the keys {', '.join(PLAN_KEYS)}; check {wrong}")

    def required(name: str) -> float:
        return require_number(name, entry[name], low=0.0)

    plan = Plan(
        scheme=str(entry["scheme"]),
        solver=str(entry["solver"]),
        local_steps=require_integer("local_steps", entry["local_steps"], low=1, high=MAX_LOCAL_STEPS),
        sparsity=np.atleast_1d(require_array("sparsity", entry["sparsity"], low=1.0)),
        rounds=required("rounds"),
        radio_joules=required("radio_joules"),
        compute_joules=required("compute_joules"),
        seconds=None if entry["seconds"] is None else required("seconds"),
        lower_bound_joules=None if entry["lower_bound_joules"] is None else required("lower_bound_joules"),
    )
    energy = required("energy_joules")
    if not math.isclose(energy, plan.energy_joules, rel_tol=1e-9):
        raise InvalidInputError(
            f"energy_joules must be radio_joules + compute_joules = {plan.energy_joules!r}, got {shown(energy)}"
        )
    return plan


def kept_of(sparsity: FloatArray, parameters: int) -> IntArray:
    """Return k = max(1, round(d / delta)) for each sparsity delta of a model with d parameters."""
    return np.maximum(1, np.rint(parameters / sparsity)).astype(np.int64)
