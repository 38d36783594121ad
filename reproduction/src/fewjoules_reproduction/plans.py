"""Make Fig. 1: compute its tables, write CSV, PDF and PNG, and judge the claims."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules_reproduction import draw_plans, sweeps
from fewjoules_reproduction.claims import Claim
from fewjoules_reproduction.claims_choices import claims_by_radio_cost, claims_by_step_cost
from fewjoules_reproduction.claims_plans import claims_by_devices, claims_by_heterogeneity
from fewjoules_reproduction.readings import WITHOUT_BENDERS
from fewjoules_reproduction.sensitivity import FACTORS, sensitivity
from fewjoules_reproduction.table import Table

QUICK_DEVICES = 10_000
_POINTS = "every other point of the sweeps of Fig. 1"
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "fig1a": (
        f"Fig. 1(a) beyond {QUICK_DEVICES:,} devices",
        _POINTS,
        "four of the seven factors of the sensitivity to alpha and to the costs",
    ),
    **dict.fromkeys(("fig1b", "fig1c", "fig1d"), (_POINTS,)),
}
BIT_LABEL = r"energy of a bit ζ$_{com}$ (J/bit)"
STEP_LABEL = r"energy of a step ζ$_{cmp}$ (J/iteration)"


def plan_figures(names: Sequence[str], out: Path, quick: bool) -> list[Claim]:
    """Write the named figures of ``FIGURES`` to a folder and return their claims; ``quick`` omits ``LEFT_OUT``."""
    for name in names:
        if name not in FIGURES:
            raise InvalidInputError(f"the figure must be one of {', '.join(FIGURES)}, got {name!r}")
    out.mkdir(parents=True, exist_ok=True)
    return [claim for name in FIGURES if name in names for claim in FIGURES[name](out, quick)]


def _devices(out: Path, quick: bool) -> list[Claim]:
    problem, every = sweeps.base_problem("fig1a"), 2 if quick else 1
    table = sweeps.average_energy_by_devices(problem, sweeps.DEVICES[::every])
    _write(table, out / "fig1a")
    draw_plans.draw_by_devices(table, out / "fig1a")
    counts = {*sweeps.MANY_DEVICES, sweeps.cheapest_devices(problem)}
    shown = sorted(count for count in counts if count <= QUICK_DEVICES or not quick)
    many = sweeps.average_energy_by_devices(problem, shown, WITHOUT_BENDERS)
    _write(many, out / "fig1a-million")
    draw_plans.draw_by_many_devices(many, out / "fig1a-million")
    sensitive = sensitivity(problem, FACTORS[:: 3 if quick else 1])
    _write(sensitive, out / "fig1-sensitivity")
    draw_plans.draw_sensitivity(sensitive, out / "fig1-sensitivity")
    return claims_by_devices(table)


def _heterogeneity(out: Path, quick: bool) -> list[Claim]:
    table = sweeps.average_energy_by_heterogeneity(sweeps.base_problem("fig1b"), sweeps.LEVELS[:: 2 if quick else 1])
    _write(table, out / "fig1b")
    draw_plans.draw_by_heterogeneity(table, out / "fig1b")
    return claims_by_heterogeneity(table)


def _radio_cost(out: Path, quick: bool) -> list[Claim]:
    table = _choices_by_radio_cost(quick)
    _write(table, out / "fig1c")
    draw_plans.draw_choices(table, out / "fig1c", "joules_per_bit", BIT_LABEL)
    return claims_by_radio_cost(table)


def _step_cost(out: Path, quick: bool) -> list[Claim]:
    problem, by_radio_cost = sweeps.base_problem("fig1d"), _choices_by_radio_cost(quick)
    table = sweeps.choices_by_step_cost(problem, sweeps.STEP_COSTS[:: 2 if quick else 1])
    _write(table, out / "fig1d")
    draw_plans.draw_choices(table, out / "fig1d", "joules_per_step", STEP_LABEL)
    mirrored = sweeps.mirrored_choices(problem, by_radio_cost)
    _write(mirrored, out / "fig1d-mirror")
    return claims_by_step_cost(table, by_radio_cost, mirrored)


def _choices_by_radio_cost(quick: bool) -> Table:
    return sweeps.choices_by_radio_cost(sweeps.base_problem("fig1c"), sweeps.BIT_COSTS[:: 2 if quick else 1])


def _write(table: Table, stem: Path) -> None:
    table.write_csv(stem.with_name(f"{stem.name}.csv"))


FIGURES: Mapping[str, Callable[[Path, bool], list[Claim]]] = {
    "fig1a": _devices,
    "fig1b": _heterogeneity,
    "fig1c": _radio_cost,
    "fig1d": _step_cost,
}
