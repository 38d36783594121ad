"""What the page shows of an edited scenario, in parts: the plan first, then what takes longer."""

import math
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

from fewjoules.errors import FewJoulesWarning, InfeasiblePlanError
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.reports.numbers import number
from fewjoules.reports.plan_figures import kinds_figure, kinds_in_words, ridge_figure
from fewjoules.reports.plan_remarks import plan_remarks
from fewjoules.reports.plots import ridge_curves, ridge_in_words
from fewjoules.reports.split import joules_of_kinds
from fewjoules.scenario.planning import available_schemes
from fewjoules.studio.plan.edited import Edited
from fewjoules.studio.plan.groups import completed_devices, group_rows, shown_groups
from fewjoules.studio.plan.standing import Standing, standing

Part = dict[str, Any]


@dataclass(frozen=True)
class PlanParts:
    """The parts of one edited scenario. Each is made when it is asked for, in the order of ``PARTS``."""

    edited: Edited
    warned: list[str] = field(default_factory=list)

    def made(self, name: str) -> Part:
        """Return a part with its name and the milliseconds that it took."""
        began = perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FewJoulesWarning)
            part = PARTS[name](self)
        self.warned.extend(str(one.message) for one in caught if issubclass(one.category, FewJoulesWarning))
        return {"part": name, "milliseconds": 1e3 * (perf_counter() - began), **part}

    @cached_property
    def standing(self) -> Standing:
        """Plans, made with as few devices as have the same plans."""
        return standing(self.edited)

    @cached_property
    def schemes(self) -> list[str]:
        """Schemes that the scenario can be planned by, the usual one first."""
        return available_schemes(self.standing.scenario)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the usual scheme."""
        return self.standing.planning.plan(self.schemes[0])

    @cached_property
    def plans(self) -> list[Plan]:
        """The plans of all schemes that are feasible, the usual one first."""
        found = [self.plan]
        for name in self.schemes[1:]:
            try:
                found.append(self.standing.planning.plan(name))
            except InfeasiblePlanError as error:
                warnings.warn(f"scheme {name} is left out: {error}", FewJoulesWarning, stacklevel=2)
        return found

    def plan_part(self) -> Part:
        """The plan, its joules by group, and the file and command that plan the same."""
        small, text = self.standing, self.edited.text()
        plan = small.whole(self.plan)
        rows = group_rows(small, self.plan)
        drawn = shown_groups(rows)
        return {
            "plan": {**numbers_of(plan), "downlink_sparsity": plan.downlink_sparsity},
            "groups": rows,
            "joules": plan.joules,
            "figure": kinds_figure(drawn),
            "words": kinds_in_words("group", drawn),
            "devices": small.devices,
            "each": small.each,
            "parameters": small.scenario.parameters,
            "recipe": None if small.scenario.recipe is None else small.scenario.recipe.name,
            "completed": completed_devices(self.edited),
            "toml": text,
            "file": self.edited.file_name,
            "command": f"fewjoules plan {shlex.quote(self.edited.file_name)} --scheme all",
        }

    def ridge_part(self) -> Part:
        """The least energy for each H."""
        small = self.standing
        planning, plan = small.planning, small.whole(self.plan)
        energy = {name: small.each * joules for name, joules in ridge_curves(planning, [self.plan]).items()}
        steps = {name: planning.problem(name).step_choices for name in energy}
        return {"figure": ridge_figure(steps, energy, [plan]), "words": ridge_in_words([plan])}

    def schemes_part(self) -> Part:
        """What each scheme would cost."""
        plans = [self.standing.whole(plan) for plan in self.plans]
        least = min(plan.energy_joules for plan in plans)
        joules = {plan.scheme: joules_of_kinds(plan.joules) for plan in plans}
        rows = [numbers_of(p) | {"times": p.energy_joules / least if least > 0.0 else None} for p in plans]
        return {"schemes": rows, "figure": kinds_figure(joules), "words": kinds_in_words("scheme", joules)}

    def constraints_part(self) -> Part:
        """Joules without the deadline, without batteries, and without both."""
        problem = self.standing.planning.problem(self.plan.scheme)
        free: dict[str, dict[str, Any]] = {}
        if problem.round_seconds is not None:
            free[f"deadline of {number(problem.round_seconds)} s for a round"] = {"round_seconds": None}
        if problem.has_batteries:
            free["batteries"] = {"fleet": problem.fleet.changed(battery_joules=None)}
        if len(free) == 2:
            free["deadline and batteries"] = {key: value for one in free.values() for key, value in one.items()}
        held = self.standing.each * self.plan.energy_joules
        rows = []
        for words, without in free.items():
            other = self.standing.whole(SCHEMES["flexible"](replace(problem, **without)))
            rows.append({"constraint": words, "with": held, "without": other.energy_joules, "H": other.local_steps})
        return {"constraints": rows}

    def remarks_part(self) -> Part:
        """What is proved, what is at its limit and what the proof leaves open."""
        return {"remarks": [*plan_remarks(self.standing.planning, [self.plan], self.standing.each), *self.warned]}


PARTS: dict[str, Callable[[PlanParts], Part]] = {
    "plan": PlanParts.plan_part,
    "ridge": PlanParts.ridge_part,
    "schemes": PlanParts.schemes_part,
    "constraints": PlanParts.constraints_part,
    "remarks": PlanParts.remarks_part,
}


def numbers_of(plan: Plan) -> dict[str, Any]:
    """Return the numbers of a plan that the page shows."""
    return {
        "scheme": plan.scheme,
        "local_steps": plan.local_steps,
        "rounds": plan.rounds,
        "joules": plan.energy_joules,
        "radio_joules": plan.radio_joules,
        "compute_joules": plan.compute_joules,
        "seconds": plan.seconds if plan.seconds is not None and math.isfinite(plan.seconds) else None,
        "gap": plan.relative_gap,
        "lower_bound_joules": plan.lower_bound_joules,
    }


def all_parts(edited: Edited) -> Iterator[Part]:
    """Return every part in order."""
    parts = PlanParts(edited)
    return (parts.made(name) for name in PARTS)
