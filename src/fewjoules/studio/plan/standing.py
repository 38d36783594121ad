"""Plan a large fleet by a small one: each device of the small fleet stands for ``each`` equal ones.

With counts n_g of the groups and d a common divisor of them, the fleet of n_g / d devices has the same means, so that
H, sparsities, rounds and seconds are the same, and its joules are 1 / d of the whole fleet's. This holds where the
rounds law knows only the mean of delta^q, not the number of devices, and where every device takes part in each round.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from fewjoules.convergence.rounds import PowerLawRounds
from fewjoules.physics.fleet import MAX_DEVICES
from fewjoules.planner.plan import Plan
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from fewjoules.scenario.toml_text import toml_text
from fewjoules.studio.plan.edited import Edited


@dataclass(frozen=True, slots=True)
class Standing:
    """Plans of a scenario whose devices each stand for ``each`` devices of the edited one."""

    planning: ScenarioPlans
    each: int

    @property
    def scenario(self) -> Scenario:
        """The scenario that is planned."""
        return self.planning.scenario

    def whole(self, plan: Plan) -> Plan:
        """Return a plan with the joules of the whole fleet; its sparsities stay those of the small one."""
        bound = plan.lower_bound_joules
        radio, compute = self.each * plan.radio_joules, self.each * plan.compute_joules
        return replace(
            plan,
            radio_joules=radio,
            compute_joules=compute,
            lower_bound_joules=None if bound is None else min(self.each * bound, radio + compute),  # despite rounding
            joules={kind: {mark: self.each * j for mark, j in split.items()} for kind, split in plan.joules.items()},
        )

    @property
    def devices(self) -> int:
        """Number of devices of the edited scenario."""
        return len(self.scenario.fleet) * self.each


def standing(edited: Edited) -> Standing:
    """Return the plans of an edited scenario, made with as few devices as have the same plans."""
    tables = edited.priced()
    each = _divisor(tables)
    if each > 1:
        devices = [one | {"count": one["count"] // each} for one in tables["device"]]
        small = edited.scenario(toml_text(tables | {"device": devices}))
        if _is_exact(small):
            return Standing(ScenarioPlans(small), each)
    return Standing(ScenarioPlans(edited.scenario()), 1)


def _divisor(tables: dict[str, Any]) -> int:
    """Return the greatest common divisor of the counts; 1 where they are no counts that a scenario may have."""
    devices = tables.get("device")
    if not isinstance(devices, list) or not devices:
        return 1
    counts = [one.get("count", 1) if isinstance(one, dict) else 1 for one in devices]
    if not all(type(count) is int and count >= 1 for count in counts) or sum(counts) > MAX_DEVICES:
        return 1
    return math.gcd(*counts)


def _is_exact(scenario: Scenario) -> bool:
    """Whether fewer devices in the same proportions have the same plans."""
    laws = [scenario.rounds, scenario.recipe_fields.get("rounds")]
    known = all(law is None or isinstance(law, PowerLawRounds) for law in laws)
    everyone = scenario.training is None or scenario.training.participation == 1.0
    measured = [scenario.law_participation, scenario.recipe_fields.get("law_participation", 1.0)]
    return known and everyone and all(part == 1.0 for part in measured)
