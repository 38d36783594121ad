"""Claims about Fig. 1(c) and 1(d), judged from FlexibleSpar's choices; claims_plans.py has 1(a) and 1(b)."""

from collections.abc import Callable

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules_reproduction.claims import Claim, verdict
from fewjoules_reproduction.claims_plans import VISIBLE
from fewjoules_reproduction.readings import CHOOSERS
from fewjoules_reproduction.table import Table

SEVERE = 10.0  # factor by which sparsity grows
SMOOTH = 2.0  # largest factor between neighbouring points
SLIGHT = 0.1  # of the energy
_GROUPS = (1, 2, 3, 4)
_FLOOR = (
    "Scaling delta by t and H by 1/t changes (27) only through the logarithm in the bits, which favours a small "
    "delta: the optimum keeps delta near its lower limit and adapts H to zeta_com / zeta_cmp. At a fixed H it adapts "
    "delta instead."
)


def claims_by_radio_cost(table: Table) -> list[Claim]:
    """Claims about Fig. 1(c), one per sentence and solver."""
    return _judged(
        table,
        (
            _sparsity_low_at_first,
            _radio_small_at_first,
            _steps_large_at_first,
            _second_term_dominates,
            _sparsity_grows,
            _first_group_sparsest,
            _radio_profound_at_last,
            _sparsity_severe_at_last,
            _first_term_takes_effect,
            _steps_decrease_at_last,
        ),
    )


def claims_by_step_cost(table: Table, by_radio_cost: Table, mirrored: Table) -> list[Claim]:
    """Claims about 1(d) and both figures, one per sentence and solver; ``mirrored`` is from ``mirrored_choices``."""
    claims = [_symmetrical(by_radio_cost, mirrored, solver) for solver in CHOOSERS]
    claims += _judged(table, (_sparsity_falls_with_step_cost, _steps_large_with_step_cost))
    claims += [_trade_off(by_radio_cost, table, solver) for solver in CHOOSERS]
    return claims + [_smooth_balance(by_radio_cost, table, solver) for solver in CHOOSERS]


def _judged(table: Table, judges: tuple[Callable[[Table, str], Claim], ...]) -> list[Claim]:
    return [judge(table.where(solver=solver), solver) for judge in judges for solver in CHOOSERS]


def _claim(figure: str, sentence: str, solver: str, parts: list[bool], number: str, why: str) -> Claim:
    return Claim(figure=figure, sentence=sentence, verdict=verdict(parts), number=number, why=why, reading=solver)


def _sparsity_low_at_first(table: Table, solver: str) -> Claim:
    """A part for each group: its sparsity at the smallest zeta_com is the least of all, within 1 %."""
    sparsity = _sparsity(table)
    return _claim(
        "1(c)",
        "When zeta_com is small, participants are allowed to sparsify the gradients at a relatively low degree.",
        solver,
        [bool(group[0] <= (1.0 + VISIBLE) * group.min()) for group in sparsity],
        f"delta {_range(sparsity[:, 0])} at the smallest zeta_com",
        "A cheap bit makes a dense message cheap.",
    )


def _radio_small_at_first(table: Table, solver: str) -> Claim:
    """One part: at the smallest zeta_com radio takes at most a tenth of the energy."""
    share = float(_radio_share(table)[0])
    return _claim(
        "1(c)",
        "This low degree does not add to the total energy cost significantly.",
        solver,
        [share <= SLIGHT],
        f"radio takes {100.0 * share:.2g} % of the energy at the smallest zeta_com",
        "Bits cost almost nothing there.",
    )


def _steps_large_at_first(table: Table, solver: str) -> Claim:
    """One part: H at the smallest zeta_com is the largest of the sweep, and some other H is smaller."""
    steps = table.numbers("local_steps")
    return _claim(
        "1(c)",
        "In this case a large temporal sparsity H is needed to reduce the number of necessary global rounds.",
        solver,
        [bool(steps[0] == steps.max() > steps.min())],
        f"H = {steps[0]:.0f} at the smallest zeta_com; H from {steps.min():.0f} to {steps.max():.0f} over the sweep",
        "With almost free communication the energy is K H times that of a step, and K H grows with H: H = 1 is best.",
    )


def _second_term_dominates(table: Table, solver: str) -> Claim:
    """One part: at the smallest zeta_com the second term is more than half of K."""
    share = float(table.numbers("second_term_share")[0])
    return _claim(
        "1(c)",
        "In this case the number of global rounds is dominantly affected by the second term.",
        solver,
        [share > 0.5],
        f"{100.0 * share:.3g} % of the rounds",
        "At an optimum inside the limits the second term is (1 + compute's share of the energy) / 2 of K.",
    )


def _sparsity_grows(table: Table, solver: str) -> Claim:
    """Two parts for each group: its sparsity never falls, and ends visibly higher than it began."""
    sparsity = _sparsity(table)
    return _claim(
        "1(c)",
        "As zeta_com grows, all the participants tend to increase the gradient sparsity.",
        solver,
        _rising(sparsity),
        f"group 1: delta {sparsity[0, 0]:.3g} to {sparsity[0, -1]:.3g}, falling in {_falls(sparsity[0])} of "
        f"{sparsity.shape[1] - 1} steps",
        _FLOOR,
    )


def _first_group_sparsest(table: Table, solver: str) -> Claim:
    """Two parts: group 1 is nowhere less sparse than another, and visibly sparser at more than half of the points."""
    sparsity = _sparsity(table)
    above = sparsity[0] / sparsity[1:].max(axis=0)
    points = int(np.sum(above > 1.0 + VISIBLE))
    return _claim(
        "1(c)",
        "Participants in Group 1 generally prefer higher gradient sparsity than the participants in the other groups.",
        solver,
        [bool(above.min() >= 1.0 - 1e-9), points > above.size / 2],
        f"visibly sparser at {points} of {above.size} points, by up to {100.0 * (above.max() - 1.0):.2g} %",
        "At the same H and mu, the closed form of delta grows with the energy of a bit.",
    )


def _radio_profound_at_last(table: Table, solver: str) -> Claim:
    """One part: at the largest zeta_com radio takes more than half of the energy."""
    share = _radio_share(table)
    points = int(np.sum(share > 0.5))
    return _claim(
        "1(c)",
        "When zeta_com is large enough, the impact of communication on the total energy exceeds that of computing.",
        solver,
        [bool(share[-1] > 0.5)],
        f"radio takes {100.0 * share[-1]:.2g} % of the energy at the largest zeta_com, more than half at {points} of "
        f"{share.size} points",
        "A planner counteracts this: it sends fewer bits when they are more expensive.",
    )


def _sparsity_severe_at_last(table: Table, solver: str) -> Claim:
    """A part for each group: its sparsity at the largest zeta_com is ten times that at the smallest, or more."""
    sparsity = _sparsity(table)
    return _claim(
        "1(c)",
        "When zeta_com is large enough, participants are forced to compress the gradients severely.",
        solver,
        [bool(group[-1] >= SEVERE * group[0]) for group in sparsity],
        f"delta {_range(sparsity[:, -1])} at the largest zeta_com, {_range(sparsity[:, 0])} at the smallest",
        _FLOOR,
    )


def _first_term_takes_effect(table: Table, solver: str) -> Claim:
    """Two parts: at the largest zeta_com the first term of K is a tenth or more, and ten times its first share."""
    first = 1.0 - table.numbers("second_term_share")
    return _claim(
        "1(c)",
        "Accordingly, the first term begins to take effects.",
        solver,
        [bool(first[-1] >= 0.1), bool(first[-1] >= 10.0 * first[0])],
        f"its share of the rounds goes from {100.0 * first[0]:.2g} % to {100.0 * first[-1]:.2g} %",
        "At an optimum inside the limits the first term is (radio's share of the energy) / 2 of K.",
    )


def _steps_decrease_at_last(table: Table, solver: str) -> Claim:
    """Two parts: H at the largest zeta_com is below that in the middle of the sweep, and below that at the smallest."""
    steps = table.numbers("local_steps")
    return _claim(
        "1(c)",
        "When zeta_com is large enough, the degree of temporal sparsity H decreases.",
        solver,
        [bool(steps[-1] < steps[len(steps) // 2]), bool(steps[-1] < steps[0])],
        _steps_text(steps),
        "With more expensive messages the optimum sends fewer of them and takes more steps in between. Algorithm 2 "
        "started at H = 1 may stay there.",
    )


def _symmetrical(by_radio_cost: Table, mirrored: Table, solver: str) -> Claim:
    """A part for each point of 1(c): a cheaper step instead of a more expensive bit gives the same H and, within 1 %,
    the same sparsity.
    """
    one, other = by_radio_cost.where(solver=solver), mirrored.where(solver=solver)
    apart = np.abs(_sparsity(one) / _sparsity(other) - 1.0).max(axis=0)
    same = (one.numbers("local_steps") == other.numbers("local_steps")) & (apart <= VISIBLE)
    return _claim(
        "1(d)",
        "The curves are somewhat symmetrical to 1(c): increasing zeta_cmp can be viewed as decreasing zeta_com.",
        solver,
        [bool(point) for point in same],
        f"{same.sum()} of {same.size} points alike, sparsities within {apart.max():.1g} of each other",
        "This is exact: (27) divided by zeta_com depends on zeta_cmp / zeta_com alone. Algorithm 2 deviates because "
        "its tolerance is absolute.",
    )


def _sparsity_falls_with_step_cost(table: Table, solver: str) -> Claim:
    """Two parts for each group: its sparsity never rises, and ends visibly lower than it began."""
    sparsity = _sparsity(table)[:, ::-1]
    return _claim(
        "1(d)",
        "The analysis is verified by varying zeta_cmp: gradient sparsity falls as computing becomes the bottleneck.",
        solver,
        _rising(sparsity),
        f"group 1: delta {sparsity[0, -1]:.3g} to {sparsity[0, 0]:.3g}, rising in {_falls(sparsity[0])} of "
        f"{sparsity.shape[1] - 1} steps",
        _FLOOR,
    )


def _steps_large_with_step_cost(table: Table, solver: str) -> Claim:
    """Two parts: H at the largest zeta_cmp is above that in the middle of the sweep, and above that at the smallest."""
    steps = table.numbers("local_steps")
    return _claim(
        "1(d)",
        "The analysis is verified by varying zeta_cmp: temporal sparsity H grows as computing becomes the bottleneck.",
        solver,
        [bool(steps[-1] > steps[len(steps) // 2]), bool(steps[-1] > steps[0])],
        _steps_text(steps),
        "With more expensive steps the optimum takes fewer of them, and K H grows with H.",
    )


def _trade_off(by_radio_cost: Table, by_step_cost: Table, solver: str) -> Claim:
    """A part for each step of both sweeps in which H changes: the mean sparsity moves the other way."""
    parts: list[bool] = []
    for table in (by_radio_cost, by_step_cost):
        own = table.where(solver=solver)
        steps, sparsity = np.diff(own.numbers("local_steps")), np.diff(np.log(_sparsity(own)).mean(axis=0))
        parts += [bool(s * d < 0.0) for s, d in zip(steps, sparsity, strict=True) if s != 0.0]
    return _claim(
        "1(c), 1(d)",
        "There is a trade-off between gradient sparsity and temporal sparsity.",
        solver,
        parts,
        f"sparsity moves against H in {sum(parts)} of the {len(parts)} steps in which H changes"
        if parts
        else "H never changes",
        "Mainly the product delta H matters: where H jumps up, delta falls, but delta H grows with zeta_com.",
    )


def _smooth_balance(by_radio_cost: Table, by_step_cost: Table, solver: str) -> Claim:
    """A part for each sweep and quantity, H and each group's sparsity: no step changes it by a factor above 2."""
    sweeps = [table.where(solver=solver) for table in (by_radio_cost, by_step_cost)]
    chosen = [np.log(np.vstack([own.numbers("local_steps"), _sparsity(own)])) for own in sweeps]
    jumps = np.exp([np.abs(np.diff(logs, axis=1)).max(axis=1) for logs in chosen])  # (sweeps, H and groups)
    return _claim(
        "1(c), 1(d)",
        "Participants can balance these two types of sparsity smoothly against one another.",
        solver,
        [bool(jump <= SMOOTH * (1.0 + 1e-9)) for jump in jumps.flat],
        f"from point to point H changes by a factor of up to {jumps[:, 0].max():.2g}, sparsity by up to "
        f"{jumps[:, 1:].max():.2g}",
        "H is an integer, and delta compensates for its jumps.",
    )


def _radio_share(table: Table) -> FloatArray:
    return table.numbers("average_radio_joules") / table.numbers("average_joules")


def _sparsity(table: Table) -> FloatArray:
    """Shape (groups, points)."""
    return np.array([table.numbers(f"sparsity_{group}") for group in _GROUPS])


def _rising(sparsity: FloatArray) -> list[bool]:
    """Two parts for each group: its sparsity never falls, and it ends visibly higher than it began."""
    visibly = [bool(group[-1] > (1.0 + VISIBLE) * group[0]) for group in sparsity]
    return [_falls(group) == 0 for group in sparsity] + visibly


def _falls(curve: FloatArray) -> int:
    """Number of steps in which the curve falls."""
    return int(np.sum(np.diff(curve) < -1e-6 * curve[:-1]))


def _range(values: FloatArray) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"


def _steps_text(steps: FloatArray) -> str:
    return f"H = {steps[0]:.0f} at the start, {steps[len(steps) // 2]:.0f} in the middle, {steps[-1]:.0f} at the end"
