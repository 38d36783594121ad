"""Sentences below a table of plans: what is proved, what is at its limit, and what the proof leaves open."""

from collections.abc import Sequence

from fewjoules.convergence.identify import not_identified, unidentified
from fewjoules.planner.at_limits import limits_reached
from fewjoules.planner.first_message import first_message_joules
from fewjoules.planner.plan import Plan
from fewjoules.planner.sensitivity import Sensitivity, sensitivity
from fewjoules.reports.numbers import number, span
from fewjoules.scenario.planning import ScenarioPlans

LEAST_SAVING = 1e-3  # savings below this are not worth a sentence
LEAST_FIRST_MESSAGE = 0.01  # of a plan's joules, below which the first message is not worth one either


def plan_remarks(planning: ScenarioPlans, plans: Sequence[Plan], each: int = 1) -> list[str]:
    """Return the sentences below the table; each device of the plans stands for ``each`` devices."""
    limits, first = _limits(planning, plans, each), _first_messages(planning, plans, each)
    return [*_proofs(plans, each), *limits, *first, _open(planning, plans, each)]


def first_message_words(joules: float, plan_joules: float) -> str | None:
    """Say what the first message adds to a plan, without a full stop; None where it is little."""
    if joules <= LEAST_FIRST_MESSAGE * plan_joules:
        return None
    return f"the first message to each device, the whole model, adds {number(joules)} J to the plan's joules"


def _proofs(plans: Sequence[Plan], each: int) -> list[str]:
    return [_proof(plan, each) for plan in plans if plan.solver == "benders" or len(plans) == 1]


def _proof(plan: Plan, each: int) -> str:
    if plan.solver == "benders" and plan.effort:
        outer, inner = plan.effort["outer_iterations"], plan.effort["inner_iterations"]
        return f"{plan.scheme}: Algorithm 2 took {outer} outer and {inner} inner iterations; it proves no bound."
    if plan.lower_bound_joules is None:
        return f"{plan.scheme}: nothing is planned, so nothing is proved."
    bound = f"{each * plan.lower_bound_joules:.10g} J"
    return f"{plan.scheme}: proved that no plan within the limits costs less than {bound} under this rounds law."


def _limits(planning: ScenarioPlans, plans: Sequence[Plan], each: int) -> list[str]:
    """Return each limit with the schemes that reached it."""
    reached: dict[str, list[str]] = {}
    for plan in plans:
        for limit in limits_reached(planning.problem(plan.scheme), plan, each):
            reached.setdefault(limit, []).append(plan.scheme)
    return [f"{', '.join(schemes)}: {limit}." for limit, schemes in reached.items()]


def _first_messages(planning: ScenarioPlans, plans: Sequence[Plan], each: int) -> list[str]:
    """Say what the first message adds, once for all schemes with the same words."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        joules = each * first_message_joules(planning.problem(plan.scheme), plan)
        words = first_message_words(joules, each * plan.energy_joules)
        if words is not None:
            found.setdefault(words, []).append(plan.scheme)
    return [f"{', '.join(schemes)}: {words}." for words, schemes in found.items()]


def _open(planning: ScenarioPlans, plans: Sequence[Plan], each: int) -> str:
    """Say what the constants of the law leave open to the best plan, beside the plans under the same law."""
    plan = min(plans, key=lambda plan: plan.energy_joules)
    problem, law_intervals = planning.problem(plan.scheme), planning.scenario_of(plan.scheme).rounds_intervals
    if law_intervals is None:
        return "The joules are as good as the constants of the rounds law, which have no intervals here."
    if law_intervals.correlations is not None and unidentified(law_intervals.intervals):  # too far for an ellipsoid
        return f"The joules may be far off: of the rounds law {not_identified(law_intervals.intervals)}."
    others = [other for other in plans if other is not plan and planning.problem(other.scheme) is problem]
    found = sensitivity(problem, plan, law_intervals, others=others)
    band = f"{number(each * found.least_joules)} to {number(each * found.most_joules)} J"
    return f"Within the intervals of the law's constants {plan.scheme} costs {band}; {_rivals(found, others)}."


def _rivals(found: Sensitivity, others: Sequence[Plan]) -> str:
    """Name the plans that would win for some constants, with the most that they would save."""
    savings = sorted(zip(found.savings, (other.scheme for other in others), strict=True), reverse=True)
    won = [f"{scheme} by up to {_percent(saving)}" for saving, scheme in savings if saving > LEAST_SAVING]
    if found.best is not None and found.best_saving > LEAST_SAVING:
        choice = f"H = {found.best.local_steps}, sparsity {span(found.best.sparsity)}"
        won.append(f"the best plan there ({choice}) by up to {_percent(found.best_saving)}")
    if not won:
        return f"nowhere in them would another plan cost {_percent(LEAST_SAVING)} less"
    return f"somewhere in them other plans cost less: {', '.join(won)}"


def _percent(saving: float) -> str:
    return f"{100.0 * saving:.{0 if saving >= 0.0995 else 1}f} %"
