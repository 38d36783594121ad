"""Draw the pictures of docs/concepts.md: ``python docs/figures.py [FOLDER]``.

Each figure is one function that computes its numbers with the planner or the simulator, draws them, and returns the
phrases in which the page quotes them; tests/test_concepts.py compares the two.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cost_figures import BLUE, GREEN, ORANGE, PURPLE, RED, ROOT, a_round, kinds, marks
from kept_back import watch_one_weight
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fewjoules as fj
from fewjoules.convergence.fit import PilotRuns, fit_power_law_rounds
from fewjoules.planner.objective import Objective
from fewjoules.planner.pareto import lower_bounds
from fewjoules.planner.pooling import Pooling
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.solve import energy_by_local_steps
from fewjoules.scenario import Scenario
from fewjoules.tuning.belief import Belief, Choice, Observation

FOLDER = ROOT / "docs" / "images" / "concepts"
GREY = "#8a8a8a"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "svg.hashsalt": "fewjoules",
}


def without_tails() -> ControlProblem:
    """The embedded problem as the paper counts: bits sent and local steps, nothing else."""
    problem = Scenario.embedded().problem()
    fleet = fj.Fleet(joules_per_bit=problem.fleet.joules_per_bit, joules_per_step=problem.fleet.joules_per_step)
    return replace(problem, fleet=fleet, downlink="free")


def _energy(problem: ControlProblem, local_steps: Any, sparsity: float) -> float:
    """Joules of the training for any real H, so that contours are smooth between whole numbers."""
    return problem.predicted_rounds(local_steps, sparsity) * float(problem.round_joules(local_steps, sparsity).sum())


def ridge(left: Axes, right: Axes) -> list[str]:
    """Energy over H and one sparsity for all devices, without and with tails."""
    steps, deltas = np.geomspace(1, 50, 40), np.geomspace(1, 400, 40)
    said = []
    for axes, problem, title, labels in (
        (left, without_tails(), "bits and steps alone", [(10, 7), (10, 3.5), (5, 2), (10, 35), (10, 90), (20, 200)]),
        (
            right,
            Scenario.embedded().problem(),
            "with the radio's tails",
            [(30, 5), (24, 6), (14, 8), (5, 20), (2.5, 8)],
        ),
    ):
        energy = np.array([[_energy(problem, h, d) for h in steps] for d in deltas])
        times = energy / energy.min()
        levels = [1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 4, 8, 100]
        colours = mpl.colormaps["YlGnBu_r"](np.linspace(0.12, 0.98, len(levels) - 1))
        axes.contourf(steps, deltas, times, levels=levels, colors=colours)
        lines = axes.contour(steps, deltas, times, levels=levels[1:-1], colors="white", linewidths=0.6)
        axes.clabel(lines, fmt=lambda x: f"{x:g}", fontsize=8, colors="black", manual=labels)
        place = np.unravel_index(energy.argmin(), energy.shape)
        axes.plot(
            steps[place[1]], deltas[place[0]], "o", color=RED, ms=9, mec="white", mew=1.5, clip_on=False, zorder=5
        )
        axes.set(xscale="log", yscale="log", title=title, xlabel="local steps H between messages")
        for axis, ticks in ((axes.xaxis, [1, 2, 5, 10, 20, 50]), (axes.yaxis, [1, 4, 20, 100, 400])):
            axis.set_ticks(ticks, [str(tick) for tick in ticks])
            axis.set_minor_locator(mpl.ticker.NullLocator())
        best = energy_by_local_steps(problem)
        said.append(best / best.min())
    left.set_ylabel("sparsity, the same for all devices")
    return [f"{100 * (said[0].max() - 1):.1f} %", f"{said[1][0]:.0f} times"]


def error_feedback(left: Axes, right: Axes) -> list[str]:
    """One weight of one device: what it has learned and what it has sent, with and without error feedback."""
    said = []
    for axes, feedback in ((left, True), (right, False)):
        learned, sent, accuracy, silent = watch_one_weight(feedback)
        rounds = np.arange(learned.size)
        axes.fill_between(rounds, sent, learned, step="post", color=ORANGE, alpha=0.35, lw=0)
        axes.step(rounds, learned, where="post", color=GREEN, label="learned by the device")
        axes.step(rounds, sent, where="post", color=BLUE, lw=2, label="sent to the server")
        axes.set(title=f"{'with' if feedback else 'without'} error feedback", xlabel="round")
        said.append((np.count_nonzero(np.diff(sent)), accuracy, silent))
    left.set_ylabel("sum of changes of one weight")
    left.legend(loc="upper left")
    left.sharey(right)
    left.text(30, 0.2, "kept: the residual", color="#a06a00", weight="bold")
    right.text(38, 0.33, "lost", color="#a06a00", weight="bold")
    (with_sends, with_accuracy, with_silent), (_, without_accuracy, without_silent) = said
    return [
        f"in {with_sends} of the 60 rounds",
        f"{100 * with_silent:.0f} % of its weights",
        f"{100 * without_silent:.0f} % of its weights",
        f"{100 * with_accuracy:.1f} %",
        f"{100 * without_accuracy:.1f} %",
    ]


def pilot_table() -> tuple[PilotRuns, dict[tuple[float, int], float]]:
    runs = PilotRuns.from_csv(ROOT / "examples" / "pilot-runs-digits.csv")
    cells: dict[tuple[float, int], list[float]] = {}
    for s, h, k in zip(runs.sparsity.tolist(), runs.local_steps.astype(int).tolist(), runs.rounds, strict=True):
        cells.setdefault((s, h), []).append(float(k))
    return runs, {cell: float(np.mean(found)) for cell, found in cells.items()}


def rounds_law(axes: Axes) -> list[str]:
    """Rounds of pilot runs, and the law that was fitted to them."""
    runs, cells = pilot_table()
    fit = fit_power_law_rounds(runs)
    deltas = np.geomspace(1, 400, 100)
    for h, colour in zip((1, 5, 20, 100), (BLUE, GREEN, ORANGE, PURPLE), strict=True):
        found = {s: k for (s, steps), k in cells.items() if steps == h}
        axes.plot(list(found), list(found.values()), "o", color=colour, ms=6, mec="white")
        axes.plot(deltas, fit.model.rounds(deltas**fit.model.q, h, 12), color=colour, lw=1.6)
        end = float(fit.model.rounds(400.0**fit.model.q, h, 12))
        axes.text(470, end, f"H = {h}", color=colour, weight="bold", va="center")
    _log_axes(axes, "sparsity", "rounds to 95 %")
    apart = [np.log(k / cells[s, int(h)]) for s, h, k in zip(runs.sparsity, runs.local_steps, runs.rounds, strict=True)]
    noise = float(np.sqrt(np.sum(np.square(apart)) / (runs.rounds.size - len(cells))))
    return [f"{runs.rounds.size} pilot runs", f"{100 * fit.rms_log_residual:.0f} %", f"{100 * noise:.0f} %"]


def few_pilots(axes: tuple[Axes, ...]) -> list[str]:
    """What is believed of H = 20 after one, two and four pilots, beside what long experiments measured."""
    _, cells = pilot_table()
    pilots = [(5.0, 20), (100.0, 20), (20.0, 2), (400.0, 50)]
    deltas, said = np.geomspace(1, 400, 60), []
    for one, count in zip(axes, (1, 2, 4), strict=True):
        seen = [Observation(Choice(h, (s,)), cells[s, h] * h, 0.1) for s, h in pilots[:count]]
        belief = Belief.prior(np.random.default_rng(0)).after(*seen)
        middle, spread = np.array([belief.predicted_steps(Choice(20, (d,))) for d in deltas]).T
        low, high = middle / 20 * np.exp(-2 * spread), middle / 20 * np.exp(2 * spread)
        one.fill_between(deltas, low, high, color=ORANGE, alpha=0.3, lw=0)
        one.plot(deltas, middle / 20, color=ORANGE, lw=2)
        found = {s: k for (s, steps), k in cells.items() if steps == 20}
        one.plot(list(found), list(found.values()), "o", color=GREY, ms=6, mec="white")
        here = [s for s, h in pilots[:count] if h == 20]
        one.plot(here, [found[s] for s in here], "o", color=RED, ms=8, mec="white")
        _log_axes(one, "sparsity", "rounds at H = 20" if count == 1 else "")
        one.set(title=f"{count} pilot{'s' if count > 1 else ''}", ylim=(4, 90))
        said.append(float(np.exp(2 * spread[-1])))
    return [f"a factor of {said[0]:.1f}", f"a factor of {said[-1]:.1f}"]


def _log_axes(axes: Axes, across: str, up: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.set_xticks([1, 5, 20, 100, 400])
    axes.set_yticks([2, 5, 10, 20, 50, 100, 200])
    axes.minorticks_off()


def frontier(left: Axes, right: Axes) -> list[str]:
    """The frontier with three tangents, and the floor that they put under every plan."""
    problem = without_tails()
    plan, senders = fj.solve(problem), Pooling(problem).frontier()
    low, high = senders.log_multiplier_range
    curve = senders.points(np.linspace(high, low, 400))
    objective = Objective.of(problem, plan.local_steps)
    energy = objective.energy(curve.mean_power, curve.radio_joules)[:, 0]
    s, radio = curve.mean_power, 1000 * curve.radio_joules
    touch = senders.points(np.interp([2.0, 4.0, 8.0, 15.0], s, curve.log_multiplier))
    lines = 1000 * (touch.radio_joules[:, None] - touch.multiplier[:, None] * (s - touch.mean_power[:, None]))
    floor = objective.energy(s, np.maximum(lines.max(axis=0), 0.0) / 1000)[:, 0]
    for line in lines:
        left.plot(s, line, color=ORANGE, lw=1.2)
    left.fill_between(s, radio, radio.max(), color=BLUE, alpha=0.10, lw=0)
    left.plot(s, radio, color=BLUE, lw=2.2)
    left.plot(touch.mean_power, 1000 * touch.radio_joules, "o", color=ORANGE, ms=6, mec="white")
    left.text(8.5, 62, "rounds that\ncan be had", color=BLUE, weight="bold", ha="center")
    left.set(title="least radio energy of a round", ylabel="radio millijoules of a round", ylim=(0, 110))
    right.fill_between(s, 0, floor, color=ORANGE, alpha=0.15, lw=0)
    right.plot(s, floor, color=ORANGE, lw=1.6)
    right.plot(s, energy, color=BLUE, lw=2.2)
    right.plot(s[energy.argmin()], energy.min(), "o", color=RED, ms=9, mec="white")
    right.text(8.5, 2.2, "no plan is down here", color="#a06a00", weight="bold", ha="center")
    right.annotate("the plan", (s[energy.argmin()], energy.min()), (9, 6.4), color=RED, weight="bold")
    right.set(title=f"joules of the whole training, H = {plan.local_steps}", ylabel="joules", ylim=(0, 12))
    for axes in (left, right):
        axes.set(xlabel="s, the mean power of the sparsities", xlim=(1, 16), xticks=[1, 4, 8, 12, 16])
    _, at_cuts = lower_bounds(touch, objective)  # where neighbouring tangents meet, the floor is lowest
    bound = min(float(at_cuts.min()), float(floor[0]), float(floor[-1]))
    return [f"{100 * (1 - bound / plan.energy_joules):.1f} %", f"{plan.effort['tangents']} tangents"]


DRAWINGS: dict[str, tuple[Callable[..., list[str]], int, tuple[float, float]]] = {
    "a-round": (a_round, 1, (7.4, 2.9)),
    "kinds": (kinds, 1, (7.4, 2.4)),
    "ridge": (ridge, 2, (7.4, 3.3)),
    "error-feedback": (error_feedback, 2, (7.4, 3.0)),
    "rounds-law": (rounds_law, 1, (5.6, 3.4)),
    "few-pilots": (few_pilots, 3, (7.4, 2.7)),
    "frontier": (frontier, 2, (7.4, 3.2)),
    "marks": (marks, 1, (6.4, 2.4)),
}


def two_dials() -> list[str]:
    """Rows of the table of rounds, messages and joules for a few H and sparsities of the embedded problem."""
    problem, rows = Scenario.embedded().problem(), []
    for h, delta in ((1, 1.0), (1, 100.0), (50, 1.0), (50, 100.0)):
        costs = problem.costs(h, delta, 1.0)
        kilobytes = float(problem.message_size.bits(problem.parameters, delta)) / 8000
        joules = f"{costs.radio_joules:.3g} J | {costs.compute_joules:.3g} J"
        rows.append(f"| {h} | {delta:g} | {costs.rounds:.3g} | {kilobytes:.2g} kB | {joules} |")
    return rows


def draw(folder: Path, names: Iterable[str] = tuple(DRAWINGS)) -> dict[str, list[str]]:
    """Draw figures as SVG files; return what the page must say of each."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {}
    for name in names:
        function, panels, size = DRAWINGS[name]
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=size, layout="constrained")
            axes = figure.subplots(1, panels, squeeze=False)[0]
            said[name] = function(tuple(axes)) if panels > 2 else function(*axes)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    return said


if __name__ == "__main__":
    for figure_name, phrases in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER).items():
        print(f"{figure_name}: {'; '.join(phrases)}")  # noqa: T201
