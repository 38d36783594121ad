"""Claims about Fig. 1(a) and 1(b), judged from the tables of sweeps.py; claims_choices.py has 1(c) and 1(d).

A sentence is split into parts, which each function states, and the verdict says whether all, some or none of them
hold. A difference counts as visible from 1 % on: smaller ones could not be seen in a figure.
"""

from collections.abc import Callable

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules_reproduction.claims import Claim, verdict
from fewjoules_reproduction.readings import NAMES, VARIANTS, Variant
from fewjoules_reproduction.table import Table

VISIBLE = 0.01
ROUNDING = 1e-6  # solvers agree to this
FLAT = 0.1  # of the first saving per added device
SIGNIFICANT = 2.0  # as a factor
READING_NAMES: dict[Variant, str] = {"pareto": "pareto", "benders": "benders", "second": "second readings"}
_RIDGE = "scaling delta by t and H by 1/t changes (27) only by a logarithm, so H = 1 with its own best delta is near"
Curves = dict[str, FloatArray]


def claims_by_devices(table: Table) -> list[Claim]:
    """Claims about Fig. 1(a), one per sentence and reading."""
    return _judged(
        table,
        (
            _energy_falls,
            _curves_flatten,
            _convergence_speeds_up,
            _speed_up_slight_at_last,
            _synchronous_most,
            _more_radio,
            _flexible_least,
        ),
    )


def claims_by_heterogeneity(table: Table) -> list[Claim]:
    """Claims about Fig. 1(b), one per sentence and reading."""
    return _judged(table, (_heterogeneity_hurts, _flexible_resilient, _synchronous_incomparable))


def curves(table: Table, column: str, variant: Variant) -> Curves:
    """A column by scheme under one reading; a scheme without such a reading has its values of pareto."""
    found = {}
    for scheme in NAMES:
        own = table.where(scheme=scheme, variant=variant)
        found[scheme] = (own if len(own) else table.where(scheme=scheme, variant="pareto")).numbers(column)
    return found


def _judged(table: Table, judges: tuple[Callable[[Table, Variant], Claim], ...]) -> list[Claim]:
    return [judge(table, variant) for judge in judges for variant in VARIANTS]


def _claim(figure: str, sentence: str, variant: Variant, parts: list[bool], number: str, why: str) -> Claim:
    return Claim(
        figure=figure,
        sentence=sentence,
        verdict=verdict(parts),
        number=number,
        why=why,
        reading=READING_NAMES[variant],
    )


def _energy_falls(table: Table, variant: Variant) -> Claim:
    """A part for each scheme: its average energy falls at every step."""
    energy = curves(table, "average_joules", variant)
    return _claim(
        "1(a)",
        "The average energy consumption decreases with the growing scale of the FL system under all the schemes.",
        variant,
        [_falls(curve) for curve in energy.values()],
        _ends(energy, "J per device"),
        "K has a term that falls with M, beta/(sqrt(M) H), and one that grows, alpha H sum(delta^2). The second one "
        "dominates in the end if a scheme does not lower delta H as M grows.",
    )


def _curves_flatten(table: Table, variant: Variant) -> Claim:
    """A part for each scheme: it falls, and its last saving for each added device is at most a tenth of the first."""
    energy = curves(table, "average_joules", variant)
    devices = np.unique(table.numbers("devices"))
    savings = {scheme: -np.diff(curve) / np.diff(devices) for scheme, curve in energy.items()}
    return _claim(
        "1(a)",
        "All the curves tend to be flat.",
        variant,
        [_falls(energy[scheme]) and saving[-1] <= FLAT * saving[0] for scheme, saving in savings.items()],
        "with FlexibleSpar an added device saves each of the others "
        f"{savings['flexible'][0]:.3g} J at the start, {savings['flexible'][-1]:.2g} J at the end",
        "Energy falls as 1/sqrt(M). It does not level off because the data are covered, since the model does not "
        "include data. With many more devices the curves rise again.",
    )


def _convergence_speeds_up(table: Table, variant: Variant) -> Claim:
    """Two parts for each scheme: its rounds fall at every step, and so do its local steps, rounds times H."""
    rounds, steps = curves(table, "rounds", variant), curves(table, "local_steps", variant)
    work = {scheme: rounds[scheme] * steps[scheme] for scheme in rounds}
    return _claim(
        "1(a)",
        "Increasing the number of participants can help to speed up the convergence of the training process.",
        variant,
        [_falls(curve) for curve in (*rounds.values(), *work.values())],
        f"FlexibleSpar: {_span(rounds['flexible'])} rounds, {_span(work['flexible'])} local steps; "
        f"GreedySpar: {_span(rounds['greedy'])} rounds",
        "A planner uses the speed-up for a smaller H, so local steps fall even where rounds do not.",
    )


def _speed_up_slight_at_last(table: Table, variant: Variant) -> Claim:
    """A part for each scheme: added devices save local steps at the start, and at most a tenth as many at the end."""
    rounds, steps = curves(table, "rounds", variant), curves(table, "local_steps", variant)
    devices = np.unique(table.numbers("devices"))
    savings = {scheme: -np.diff(rounds[scheme] * steps[scheme]) / np.diff(devices) for scheme in rounds}
    return _claim(
        "1(a)",
        "Such speed-ups will be slight when the participating devices are enough.",
        variant,
        [bool(saving[0] > 0.0 and saving[-1] <= FLAT * saving[0]) for saving in savings.values()],
        f"an added device saves FlexibleSpar {savings['flexible'][0]:.3g} local steps at the start, "
        f"{savings['flexible'][-1]:.2g} at the end",
        "The gain diminishes as 1/sqrt(M). The paper's reason, that enough devices capture the data, is not part of "
        "its model.",
    )


def _synchronous_most(table: Table, variant: Variant) -> Claim:
    """A part for each number of devices: SynSgdSpar costs visibly more than every other scheme."""
    energy = curves(table, "average_joules", variant)
    return _claim(
        "1(a)",
        "Among the four schemes, SynSgdSpars is shown to consume the most energy.",
        variant,
        [bool(most) for most in energy["synchronous"] >= (1.0 + VISIBLE) * _others(energy, "synchronous").max(axis=0)],
        _ratios(table, variant),
        f"The optimum lies on a ridge: {_RIDGE} it. GreedySpar's largest delta multiplies the rounds.",
    )


def _more_radio(table: Table, variant: Variant) -> Claim:
    """Two parts for each number of devices: SynSgdSpar's radio takes visibly more than FlexibleSpar's, and twice it."""
    radio = curves(table, "average_radio_joules", variant)
    ratio = radio["synchronous"] / radio["flexible"]
    return _claim(
        "1(a)",
        "SynSgdSpars increases the communication complexity significantly.",
        variant,
        [bool(more) for least in (1.0 + VISIBLE, SIGNIFICANT) for more in ratio >= least],
        f"its radio takes {ratio.min():.4g} to {ratio.max():.4g} times FlexibleSpar's joules",
        "SynSgdSpar sends more messages, but sparser ones, unless it has to keep a sparsity planned for a larger H.",
    )


def _flexible_least(table: Table, variant: Variant) -> Claim:
    """Two parts for each other scheme: it costs more than FlexibleSpar at every number of devices, and visibly more."""
    energy = curves(table, "average_joules", variant)
    excess = {scheme: curve / energy["flexible"] - 1.0 for scheme, curve in energy.items() if scheme != "flexible"}
    margins = ", ".join(
        f"{NAMES[scheme]} {_percent(part.min())} to {_percent(part.max())}" for scheme, part in excess.items()
    )
    return _claim(
        "1(a)",
        "FlexibleSpar outperforms the others.",
        variant,
        [bool(part.min() > least) for least in (ROUNDING, VISIBLE) for part in excess.values()],
        f"above FlexibleSpar: {margins}",
        "UnifiedSpar loses little where bits are a small part of the energy and groups differ little; "
        f"{_RIDGE} the optimum.",
    )


def _heterogeneity_hurts(table: Table, variant: Variant) -> Claim:
    """Two parts for each scheme drawn: its energy rises at every level, and visibly from the first to the last."""
    energy = _drawn(curves(table, "average_joules", variant))
    return _claim(
        "1(b)",
        "The high level of communication heterogeneity impairs the system energy efficiency.",
        variant,
        [_falls(-curve) for curve in energy.values()] + [_rise(curve) >= VISIBLE for curve in energy.values()],
        _rises(energy),
        "The mean of 1/W grows as bandwidths spread, but it affects only the radio, a small part of the energy.",
    )


def _flexible_resilient(table: Table, variant: Variant) -> Claim:
    """A part for each other scheme drawn: its energy rises by more percent than FlexibleSpar's."""
    energy = _drawn(curves(table, "average_joules", variant))
    least = _rise(energy["flexible"])
    return _claim(
        "1(b)",
        "FlexibleSpar exhibits more resilience than the others to cope with high heterogeneity.",
        variant,
        [_rise(energy[scheme]) > least + ROUNDING for scheme in energy if scheme != "flexible"],
        _rises(energy),
        "UnifiedSpar cannot shift bits to the better channels; GreedySpar sends too few bits for channels to matter.",
    )


def _synchronous_incomparable(table: Table, variant: Variant) -> Claim:
    """Two parts: at every level SynSgdSpar costs visibly more than every other, and twice FlexibleSpar."""
    energy = curves(table, "average_joules", variant)
    synchronous = energy["synchronous"]
    most = synchronous >= (1.0 + VISIBLE) * _others(energy, "synchronous").max(axis=0)
    ratio = synchronous / energy["flexible"]
    return _claim(
        "1(b)",
        "SynSgdSpars performs so poorly that it is incomparable to the other schemes.",
        variant,
        [bool(most.all()), bool((ratio >= SIGNIFICANT).all())],
        f"{ratio.min():.4g} to {ratio.max():.4g} times FlexibleSpar",
        f"The optimum lies on a ridge: {_RIDGE} it.",
    )


def _drawn(energy: Curves) -> Curves:
    """The schemes that the paper draws in Fig. 1(b)."""
    return {scheme: curve for scheme, curve in energy.items() if scheme != "synchronous"}


def _others(energy: Curves, scheme: str) -> FloatArray:
    return np.array([curve for name, curve in energy.items() if name != scheme])


def _falls(curve: FloatArray) -> bool:
    return bool(np.all(np.diff(curve) < -1e-9 * np.abs(curve[:-1])))


def _rise(curve: FloatArray) -> float:
    return float(curve[-1] / curve[0] - 1.0)


def _rises(energy: Curves) -> str:
    return ", ".join(f"{NAMES[scheme]} +{_percent(_rise(curve))}" for scheme, curve in energy.items())


def _span(curve: FloatArray) -> str:
    return f"{curve[0]:,.0f} to {curve[-1]:,.0f}"


def _ends(energy: Curves, unit: str) -> str:
    return ", ".join(f"{NAMES[s]} {curve[0]:.3g} to {curve[-1]:.3g}" for s, curve in energy.items()) + f" {unit}"


def _ratios(table: Table, variant: Variant) -> str:
    """Energy of each scheme divided by FlexibleSpar's at 12 devices, or at the nearest number."""
    energy, devices = curves(table, "average_joules", variant), np.unique(table.numbers("devices"))
    at = int(np.argmin(np.abs(devices - 12)))
    ratios = ", ".join(
        f"{NAMES[s]} {curve[at] / energy['flexible'][at]:.4f}" for s, curve in energy.items() if s != "flexible"
    )
    return f"energy divided by FlexibleSpar's at {devices[at]:.0f} devices: {ratios}"


def _percent(part: float) -> str:
    if abs(part) < 1e-7:
        return "0 %"
    return f"{100.0 * part:.2g} %" if abs(part) < 1.0 else f"{100.0 * part:,.0f} %"
