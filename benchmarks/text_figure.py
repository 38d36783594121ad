"""Joules and bits of the entries of a study of text as one figure; text.py draws it by ``--figure``."""

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

COLOUR, OURS = "#0072B2", "#882255"
CLOSE = 1.3, 3.0  # factors of joules and of megabits within which two names overlap
VARIANTS = (", last model", ", mean")  # of entries, which the tables have


def draw(records: Iterable[dict[str, Any]], study: str, title: str, file: Path) -> None:
    """Draw each entry that reached the target at its mean megabits and joules, with the range of its seeds."""
    import matplotlib.pyplot as plt

    from fewjoules.reports.plots import STYLE, save_with_words

    points = _points(records, study)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
        above = math.inf, math.inf
        for entry, (megabits, joules) in sorted(points.items(), key=lambda one: -np.mean(one[1][1])):
            mean, colour = float(np.mean(joules)), OURS if entry == "fewest" else COLOUR
            apart = abs(math.log(above[1] / megabits))  # on the right, the name may lie on that of the point above
            left = CLOSE[0] * mean > above[0] and apart < math.log(CLOSE[1])
            above = (math.inf, math.inf) if left else (mean, megabits)
            spread = [[mean - min(joules)], [max(joules) - mean]]
            axes.errorbar(megabits, mean, yerr=spread, fmt="o", color=colour, capsize=3, markersize=6)
            place = {"xytext": (-8 if left else 8, 0), "ha": "right" if left else "left"}
            axes.annotate(entry, (megabits, mean), textcoords="offset points", va="center", color=colour, **place)
        axes.set(xscale="log", yscale="log", xlabel="megabits up and down, all devices", ylabel="joules, all devices")
        axes.margins(x=0.22, y=0.12)
        axes.set_title(title, fontsize=10, loc="left")
        words = "; ".join(f"{name} {bits:.3g} megabits and {np.mean(j):.4g} J" for name, (bits, j) in points.items())
        with file.open("wb") as stream:
            save_with_words(figure, stream, file.suffix.lstrip("."), f"{title}: {words}.", dpi=200)
        plt.close(figure)


def _points(records: Iterable[dict[str, Any]], study: str) -> dict[str, tuple[float, list[float]]]:
    """Return the mean megabits and the joules of each seed, by entry."""
    bits, joules = defaultdict(list), defaultdict(list)
    for one in records:
        found = one["found"]
        if one["study"] != study or one["kind"] != "run" or one.get("aside") or one["entry"].endswith(VARIANTS):
            continue
        if found.get("reached"):
            joules[one["entry"]].append(sum(found["joules"].values()))
            bits[one["entry"]].append((found["uplink_bits"] + found["downlink_bits"]) / 1e6)
    return {entry: (float(np.mean(bits[entry])), joules[entry]) for entry in joules}
