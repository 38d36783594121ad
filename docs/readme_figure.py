"""Draw the picture of README.md: ``python docs/readme_figure.py [FILE]``. Every number on it is a plan's."""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import fewjoules as fj

FILE = Path(__file__).parent / "images" / "talk-or-work.svg"
RADIO, COMPUTE = "#0072b2", "#e69f00"
GOOD, POOR = 1e-7, 1e-6  # joules of a bit
MOST_STEPS = 100
CELLS = 20  # a side of the square that stands for all entries of an update


def problem(local_steps: range) -> fj.ControlProblem:
    return fj.ControlProblem(
        fleet=fj.Fleet(joules_per_bit=[GOOD] * 4 + [POOR] * 2, message_joules=0.006, joules_per_step=0.004),
        rounds=fj.PowerLawRounds(tau=130.0, c=0.1, a=0.58, q=0.43),
        parameters=13_706,
        sparsity=(1.0, 400.0),
        local_steps=local_steps,
    )


def draw(file: Path) -> fj.Plan:
    """Draw the joules of the best plan for each H, and what its devices send; return the best of all."""
    best = fj.solve(problem(range(1, MOST_STEPS + 1)))
    with mpl.rc_context({"font.size": 10, "svg.hashsalt": "fewjoules", "savefig.facecolor": "white"}):
        figure = Figure(figsize=(9.2, 3.3), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.35, 1.0])
        _joules_by_local_steps(left, best)
        _entries_sent(right, best)
        figure.savefig(file, metadata={"Date": None})
    return best


def _joules_by_local_steps(axes: Axes, best: fj.Plan) -> None:
    steps = np.arange(1, MOST_STEPS + 1)
    plans = [fj.solve(problem(range(h, h + 1))) for h in steps]
    radio, compute = (np.array([getattr(plan, f"{kind}_joules") for plan in plans]) for kind in ("radio", "compute"))
    axes.stackplot(steps, compute, radio, colors=[COMPUTE, RADIO], labels=["working: local steps", "talking: radio"])
    axes.plot(best.local_steps, best.energy_joules, "o", color="black", markersize=6)
    axes.annotate(
        f"least: H = {best.local_steps}, {best.energy_joules:.2f} J",
        (best.local_steps, best.energy_joules),
        (1.15 * best.local_steps, 1.3 * best.energy_joules),
        arrowprops={"arrowstyle": "-", "color": "#555555"},
    )
    axes.set(xlabel="H, local steps between synchronisations", ylabel="joules of a training", xlim=(1, MOST_STEPS))
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.set_ylim(0.0, 1.2 * (radio + compute).max())
    axes.legend(loc="upper center", frameon=False, ncols=2, reverse=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("How long to work before talking", loc="left", fontsize=11)


def _entries_sent(axes: Axes, best: fj.Plan) -> None:
    groups = {"good channel": best.sparsity[0], "poor channel": best.sparsity[-1]}
    for place, (name, sparsity) in enumerate(groups.items()):
        left = place * 1.25 * CELLS
        entries = CELLS * CELLS
        sent = np.random.default_rng(1).choice(entries, max(1, round(entries / sparsity)), replace=False)
        axes.add_patch(Rectangle((left, 0), CELLS, CELLS, facecolor="#e4e4e4"))
        axes.bar(left + sent % CELLS, np.ones(sent.size), 1.0, sent // CELLS, align="edge", color=RADIO)
        lines = np.arange(CELLS + 1)
        axes.hlines(lines, left, left + CELLS, colors="white", linewidth=0.6)
        axes.vlines(left + lines, 0, CELLS, colors="white", linewidth=0.6)
        axes.text(left + CELLS / 2, -1.2, f"{name}\n1 entry in {sparsity:.0f}", ha="center", va="top")
    axes.set(xlim=(0, 2.25 * CELLS), ylim=(-6.5, CELLS), aspect="equal")
    axes.axis("off")
    axes.set_title("How much of its update a device sends", loc="left", fontsize=11)


if __name__ == "__main__":
    plan = draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    sys.stdout.write(f"H = {plan.local_steps}, {plan.energy_joules:.3f} J, sparsity {np.unique(plan.sparsity)}\n")
