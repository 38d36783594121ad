"""Figures of docs/concepts.md about what a training costs: a round, kinds of joules, and marks."""

import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes

import fewjoules as fj
from fewjoules.planner.plan import Plan
from fewjoules.provenance import KINDS, MARKS
from fewjoules.scenario import Scenario

ROOT = Path(__file__).parents[1]
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#882255"
KIND_COLOURS = dict(zip(KINDS, (BLUE, "#56B4E9", ORANGE, GREEN, "#CC79A7"), strict=True))
MARK_COLOURS = dict(zip(MARKS, ("#1b7837", "#7fbf7b", "#c9b3d6", "#762a83"), strict=True))


def a_round(axes: Axes) -> list[str]:
    """Power over time of one phone in one round of the embedded plan; areas are joules."""
    problem = Scenario.embedded().problem()
    plan, fleet, garden = fj.solve(problem), problem.fleet, -1
    kinds = problem.round_costs.joules_by_kind(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    milli = {kind: 1000.0 * float(joules[garden]) for kind, joules in kinds.items()}
    watts = float(fleet.joules_per_step[garden] / fleet.seconds_per_step[garden])
    tail_watts, tail_ms = float(fleet.tail_watts[garden]), 1000.0 * float(fleet.tail_seconds[garden])
    down_watts = float(fleet.downlink_joules_per_bit[garden] / fleet.downlink_seconds_per_bit[garden])
    up_watts = float(fleet.joules_per_bit[garden] / fleet.seconds_per_bit[garden])
    spans = [("downlink", down_watts), ("compute", watts), ("uplink", up_watts)]
    start = 0.0
    for kind, power in spans:
        length = milli[kind] / power
        axes.fill_between([start, start + length], power, color=KIND_COLOURS[kind], lw=0)
        start += length
    axes.fill_between([start, start + tail_ms], tail_watts, color=KIND_COLOURS["tail"], lw=0)
    axes.set(xlim=(-4, start + tail_ms + 4), ylim=(0, 11.5), xlabel="milliseconds", ylabel="watts")
    words = {
        "downlink": (30, 1.1, "receive\n{:.0f} mJ"),
        "compute": (88, 9.2, "{steps} local steps\n{:.0f} mJ"),
        "uplink": (100, 2.2, "send\n{:.0f} mJ"),
        "tail": (190, 0.8, "the radio stays up\n{:.0f} mJ, waking it included"),
    }
    for kind, (x, y, text) in words.items():
        label = text.format(milli[kind], steps=plan.local_steps)
        axes.text(x, y, label, color=KIND_COLOURS[kind], weight="bold", va="bottom", ha="center" if x < 80 else "left")
    return [f"{milli['compute']:.0f} mJ", f"{milli['tail']:.0f} mJ", f"{milli['codec']:.0f} mJ"]


def lte_phones() -> Scenario:
    """The embedded task on twelve phones with LTE."""
    text = Scenario.embedded().text
    head = re.sub(r'channel = "drawn".*', 'channel = "average"', text[: text.index("[[device]]")])
    return Scenario.from_text(head + '[[device]]\nname = "phone"\ncount = 12\nprofile = "lte-phone"\n', "lte", ROOT)


def fleets() -> dict[str, Plan]:
    text = Scenario.from_toml(ROOT / "examples" / "shakespeare.toml")
    return {
        "small CNN,\n12 phones on Wi-Fi": fj.solve(Scenario.embedded().problem()),
        "small CNN,\n12 phones on LTE": fj.solve(lte_phones().problem()),
        "transformer,\n40 phones": fj.solve(text.problem()),
    }


def shares(axes: Axes, parts: dict[str, dict[str, float]], colours: dict[str, str]) -> None:
    """One bar for each name, cut by the shares of its parts."""
    for row, split in enumerate(parts.values()):
        left, total = 0.0, sum(split.values())
        for name, value in split.items():
            share = 100.0 * value / total
            axes.barh(row, share, left=left, color=colours[name], height=0.62, edgecolor="white", label=name)
            if share >= 6.0:
                axes.text(
                    left + share / 2, row, f"{share:.0f} %", ha="center", va="center", color="white", weight="bold"
                )
            left += share
    axes.set_yticks(range(len(parts)), list(parts))
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xticks=[])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    names = {name: colours[name] for name in colours if any(name in split for split in parts.values())}
    handles = [mpl.patches.Patch(color=colour, label=name) for name, colour in names.items()]
    axes.legend(handles=handles, ncols=len(names), loc="lower center", bbox_to_anchor=(0.4, 1.0), handlelength=1.0)


def kinds(axes: Axes) -> list[str]:
    """What the joules of the best plans of three fleets are spent on."""
    plans = fleets()
    parts = {name: {kind: sum(plan.joules[kind].values()) for kind in KINDS} for name, plan in plans.items()}
    shares(axes, parts, KIND_COLOURS)
    wifi, lte, text = ({kind: value / sum(split.values()) for kind, value in split.items()} for split in parts.values())
    return [
        f"{100 * lte['tail']:.0f} % of the joules",
        f"{100 * wifi['compute']:.0f} %",
        f"{100 * text['compute']:.0f} %",
    ]


def marks(axes: Axes) -> list[str]:
    """The joules of the plan for phones on Wi-Fi by kind, each with its mark."""
    plan = next(iter(fleets().values()))
    for row, kind in enumerate(KINDS):
        ((mark, joules),) = plan.joules[kind].items()
        axes.barh(row, joules, color=MARK_COLOURS[mark], height=0.66)
        axes.text(joules + 0.05, row, f"{joules:.2f} J, {mark}", va="center")
    axes.set_yticks(range(len(KINDS)), KINDS)
    axes.invert_yaxis()
    axes.set(xlabel="joules of the training", xlim=(0, 5.2))
    axes.tick_params(axis="y", length=0)
    total = sum(sum(split.values()) for split in plan.joules.values())
    profile = sum(split.get("profile", 0.0) for split in plan.joules.values())
    return [f"{100 * profile / total:.0f} %"]
