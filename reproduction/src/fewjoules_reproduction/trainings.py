"""Make Fig. 2 and the studies beyond it: train or read records, write CSV, PDF and PNG, judge the claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules_reproduction import tables_trainings as tables
from fewjoules_reproduction.claims import Claim
from fewjoules_reproduction.claims_energy import energy_claims, prediction_claims
from fewjoules_reproduction.claims_trainings import convergence_claims
from fewjoules_reproduction.draw_laws import draw_pilots, draw_predictions
from fewjoules_reproduction.draw_trainings import PAPER, draw_accuracy, draw_energy, energy_panels
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.pool import Means
from fewjoules_reproduction.results import StudyResults, carry_out_study
from fewjoules_reproduction.studies import STUDIES
from fewjoules_reproduction.table import Table


@dataclass(frozen=True)
class Sheet:
    """Files and labels of a study: ``name`` is the prefix of its tables, ``accuracy`` and ``energy`` are figures."""

    study: str
    name: str
    accuracy: str | None
    energy: str
    accuracy_label: str
    energy_label: str


CIFAR10 = Sheet("cifar10", "fig2ab", "fig2a", "fig2b", "2(a)", "2(b)")
MNIST = Sheet("mnist", "fig2cd", "fig2c", "fig2d", "2(c)", "2(d)")
QUICK = Sheet("digits", "fig2-quick", "fig2-quick-accuracy", "fig2-quick-energy", "2(a, c), quick", "2(b, d), quick")


def _beyond(study: str) -> Sheet:
    return Sheet(study, f"fig2-{study}", None, f"fig2-{study}", "beyond 2", "beyond 2")


def _quick_beyond(study: str, name: str) -> Sheet:
    return Sheet(study, name, None, name, "beyond 2, quick", "beyond 2, quick")


FIGURES: dict[str, tuple[Sheet, ...]] = {
    "fig2a": (CIFAR10,),
    "fig2b": (CIFAR10,),
    "fig2c": (MNIST,),
    "fig2d": (MNIST,),
    "lte": (_beyond("mnist-lte"), _beyond("cifar10-lte")),
    "dirichlet": (_beyond("mnist-dirichlet"),),
    "writers": (_beyond("qmnist-writers"),),
}
QUICK_FIGURES: dict[str, tuple[Sheet, ...]] = {
    **dict.fromkeys(("fig2a", "fig2b", "fig2c", "fig2d"), (QUICK,)),
    "lte": (_quick_beyond("digits-lte", "fig2-quick-lte"),),
    "dirichlet": (_quick_beyond("digits-dirichlet", "fig2-quick-dirichlet"),),
    "writers": (),
}
_SMALL = "Fig. 2 on CIFAR-10 and MNIST (digits of 8x8 pixels stand for both), and all seeds but one"
LEFT_OUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("fig2a", "fig2b", "fig2c", "fig2d", "dirichlet"), (_SMALL,)),
    "lte": (_SMALL, "the baselines with expensive bits"),
    "writers": ("Fig. 2 with QMNIST writers",),
}


def studies_of(names: Sequence[str], quick: bool) -> list[str]:
    """Titles of the studies that the figures show."""
    return [STUDIES[sheet.study].title for sheet in _wanted(names, quick)]


def training_figures(names: Sequence[str], out: Path, means: Means, quick: bool) -> tuple[list[Claim], list[str]]:
    """Write the named figures of ``FIGURES`` to a folder; return their claims and what was not run.

    With ``quick`` the small studies of ``QUICK_FIGURES`` replace them, and ``LEFT_OUT`` says what is missing.
    """
    for name in names:
        if name not in FIGURES:
            raise InvalidInputError(f"the figure must be one of {', '.join(FIGURES)}, got {name!r}")
    out.mkdir(parents=True, exist_ok=True)
    claims: list[Claim] = []
    not_run: list[str] = []
    for sheet, kinds in _wanted(names, quick).items():
        study = STUDIES[sheet.study]
        results = carry_out_study(study, embedded_scenario(study.scenario), means)
        write_sheet(results, sheet, kinds, out)
        claims += sheet_claims(results, sheet, kinds)
        not_run += [f"{study.title}: {what}" for what in results.not_run]
    return claims, not_run


def write_sheet(results: StudyResults, sheet: Sheet, kinds: frozenset[str], out: Path) -> None:
    """Write the figures and tables of a study, except those without any run."""
    has_runs = any(curve.runs for curve in results.curves.values())
    if has_runs and sheet.accuracy is not None and "accuracy" in kinds:
        _write(tables.curves_table(results, PAPER), out, sheet.accuracy)
        draw_accuracy(results, out / sheet.accuracy)
    if has_runs and "energy" in kinds:
        names = dict.fromkeys(name for panel in energy_panels(results) for name in panel)
        _write(tables.curves_table(results, names), out, sheet.energy)
        draw_energy(results, out / sheet.energy)
    if has_runs:
        _write(tables.summary_table(results), out, f"{sheet.name}-summary")
        _write(tables.predictions_table(results), out, f"{sheet.name}-predictions")
        draw_predictions(results, out / f"{sheet.name}-predictions")
    if results.pilots is not None and results.study.pilots == results.study.name:
        _write(tables.pilots_table(results), out, f"{sheet.name}-pilots")
        _write(tables.laws_table(results), out, f"{sheet.name}-laws")
        draw_pilots(results, out / f"{sheet.name}-pilots")


def sheet_claims(results: StudyResults, sheet: Sheet, kinds: frozenset[str]) -> list[Claim]:
    """Claims about the figures of the given kinds."""
    claims = convergence_claims(results, sheet.accuracy_label) if "accuracy" in kinds else []
    if "energy" in kinds:
        claims += energy_claims(results, sheet.energy_label) + prediction_claims(results, sheet.energy_label)
    return claims


def _wanted(names: Sequence[str], quick: bool) -> dict[Sheet, frozenset[str]]:
    """Each study once, in the order of ``FIGURES``, with the kinds of figures that the names ask for."""
    wanted: dict[Sheet, frozenset[str]] = {}
    for name, sheets in (QUICK_FIGURES if quick else FIGURES).items():
        kinds = _KINDS.get(name, frozenset({"accuracy", "energy"}))
        for sheet in sheets if name in names else ():
            wanted[sheet] = wanted.get(sheet, frozenset()) | kinds
    return wanted


def _write(table: Table, out: Path, name: str) -> None:
    table.write_csv(out / f"{name}.csv")


_KINDS = {
    "fig2a": frozenset({"accuracy"}),
    "fig2b": frozenset({"energy"}),
    "fig2c": frozenset({"accuracy"}),
    "fig2d": frozenset({"energy"}),
}
