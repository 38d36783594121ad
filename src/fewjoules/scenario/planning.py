"""Plans of a scenario by the names of schemes: those of the paper by [rounds], fewest by [recipe]."""

from dataclasses import dataclass
from functools import cached_property

from fewjoules.errors import InvalidInputError
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipes import Candidate, choose_recipe
from fewjoules.planner.schemes import FEWEST, SCHEME_NAMES, SCHEMES
from fewjoules.planner.solve import Solver
from fewjoules.scenario.scenario import Scenario


def available_schemes(scenario: Scenario, solver: Solver = "pareto") -> list[str]:
    """Return the schemes that the scenario can be planned by, the usual one first."""
    papers = list(SCHEMES)
    if scenario.recipe is None or solver != "pareto":
        return papers
    return [FEWEST, *(papers if scenario.rounds is not None else [])]


@dataclass(frozen=True)
class ScenarioPlans:
    """What each scheme plans with, made once."""

    scenario: Scenario

    def scenario_of(self, scheme: str) -> Scenario:
        """Return the scenario as a scheme plans it."""
        return self._under_recipe if scheme == FEWEST else self.scenario

    def problem(self, scheme: str) -> ControlProblem:
        """Return the control problem that a scheme solves."""
        return self._recipe_problem if scheme == FEWEST else self._problem

    def plan(self, scheme: str, solver: Solver = "pareto") -> Plan:
        """Return the plan of a scheme."""
        if scheme not in SCHEME_NAMES:
            raise InvalidInputError(f"scheme must be one of {', '.join(SCHEME_NAMES)}, got {scheme!r}")
        if scheme != FEWEST:
            return SCHEMES[scheme](self.problem(scheme), solver=solver)
        if solver != "pareto":
            raise InvalidInputError(f"scheme {FEWEST} must be solved by pareto, got solver {solver!r}")
        problem = self.problem(scheme)
        assert self.scenario.recipe is not None
        return choose_recipe([Candidate(self.scenario.recipe, problem)]).plan

    @cached_property
    def _under_recipe(self) -> Scenario:
        return self.scenario.under_recipe()

    @cached_property
    def _recipe_problem(self) -> ControlProblem:
        return self.scenario.recipe_problem()

    @cached_property
    def _problem(self) -> ControlProblem:
        return self.scenario.problem()
