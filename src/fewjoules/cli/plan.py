"""``fewjoules plan``: plan sparsity and local steps."""

import warnings
from typing import Annotated, Optional, cast

import typer

from fewjoules.cli import options
from fewjoules.cli.console import console, plain_errors
from fewjoules.cli.reading import read_scenario
from fewjoules.errors import FewJoulesWarning, InfeasiblePlanError, InvalidInputError
from fewjoules.planner.plan import Plan, plans_to_json
from fewjoules.planner.schemes import SCHEME_NAMES
from fewjoules.planner.solve import Solver
from fewjoules.scenario.planning import ScenarioPlans, available_schemes


def plan(
    scenario: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Argument(help="Scenario file (TOML). Left out: the embedded one, 12 devices in four groups."),
    ] = None,
    scheme: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME|all",
            help=f"One of {', '.join(SCHEME_NAMES)}; or all, to compare them. "
            "Default: fewest if there is a [recipe], else flexible.",
        ),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            metavar="pareto|benders",
            help="pareto, the default, proves its plan; benders is the paper's Algorithm 2.",
            show_default=False,
        ),
    ] = "pareto",
    json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON and nothing else.")] = False,
    plot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FILE", help="Also draw energy against H (.png, .pdf or .svg)."),
    ] = None,
    allow_outside: options.AllowOutside = False,
) -> None:
    """Plan sparsity and local steps for least energy, with a proof.

    For each device the plan says how sparse its updates should be (delta: one entry in delta is sent), and for all
    devices how many local steps H to take between synchronisations. It splits the predicted joules by what they are
    spent on and by where their costs come from, and states by how much another plan could at most improve on it (the
    proved gap), which choices are at their limits, and what the intervals of the rounds law's constants leave open.

    Examples:

    \b
      fewjoules plan                                  the embedded scenario
      fewjoules plan fleet.toml                       the plan of least energy
      fewjoules plan fleet.toml --scheme all          beside the baselines
      fewjoules plan fleet.toml --plot ridge.png      energy against H
      fewjoules plan fleet.toml --json > plan.json    for scripts
      fewjoules plan fleet.toml --solver benders      the paper's own algorithm

    To write a first scenario file, run fewjoules init; docs/scenario.md lists every key.
    """
    with plain_errors():
        if scheme is not None and scheme not in (*SCHEME_NAMES, "all"):
            raise InvalidInputError(f"--scheme must be one of {', '.join(SCHEME_NAMES)} or all, got {scheme!r}")
        if solver not in ("pareto", "benders"):
            raise InvalidInputError(f"--solver must be pareto or benders, got {solver!r}")
        if plot is not None:
            from fewjoules.reports.plots import plot_energy_by_local_steps, require_plot_path

            require_plot_path(plot)
        chosen = read_scenario(scenario, allow_outside)
        available = available_schemes(chosen, cast(Solver, solver))
        names = available if scheme == "all" else [scheme or available[0]]
        planning = ScenarioPlans(chosen)
        plans = plans_of(planning, names, cast(Solver, solver))
        if plot is not None:
            plot_energy_by_local_steps(planning, plans, plot)
        if json:
            typer.echo(plans_to_json(plans))
            return
        from fewjoules.reports.tables import plan_report

        optimum = planning.plan("flexible") if solver == "benders" else None
        console().print(plan_report(planning, plans, optimum))


def plans_of(planning: ScenarioPlans, names: list[str], solver: Solver) -> list[Plan]:
    """Return the plans of the schemes; if there are several, infeasible ones are skipped with a warning."""
    plans: list[Plan] = []
    for name in names:
        try:
            plans.append(planning.plan(name, solver))
        except InfeasiblePlanError as error:
            if len(names) == 1 or (name == "flexible" and not plans):
                raise
            warnings.warn(f"scheme {name} is left out: {error}", FewJoulesWarning, stacklevel=2)
    return plans
