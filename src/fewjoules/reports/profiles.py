"""Device profiles as tables for the terminal."""

from collections.abc import Sequence

from rich.console import Group as Stack
from rich.markup import escape
from rich.table import Table

from fewjoules.profiles import Profile
from fewjoules.reports.numbers import number


def profile_list(profiles: Sequence[Profile]) -> Stack:
    """Return the names, the main figures and the descriptions of some profiles."""
    figures = Table(box=None, pad_edge=False, header_style="bold")
    figures.add_column("profile")
    for title in ("uplink nJ/bit", "downlink nJ/bit", "tail J", "nJ/FLOP", "measured", "fitted", "assumed"):
        figures.add_column(title, justify="right")
    for profile in profiles:
        marks = [source.mark for source in profile.sources.values()]
        counts = [str(marks.count(mark)) for mark in ("measured", "fitted", "assumed")]
        figures.add_row(escape(profile.name), *_figures(profile), *counts)
    words = Table(box=None, pad_edge=False, show_header=False)
    for profile in profiles:
        words.add_row(escape(profile.name), escape(profile.description))
    return Stack(figures, "", words)


def profile_report(profile: Profile) -> Stack:
    """Return every number of a profile with its mark and its source."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("mark", no_wrap=True)
    table.add_column("source")
    for key, source in profile.sources.items():
        value = profile.value(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_row(
            escape(key), number(value) if is_number else escape(str(value)), source.mark, escape(source.source)
        )
    heading = f"{escape(profile.name)}: {escape(profile.description)}" if profile.description else escape(profile.name)
    return Stack(heading, "", table)


def _figures(profile: Profile) -> list[str]:
    device = profile.device
    tail = device.get("promotion_joules", 0.0) + device.get("tail_watts", 0.0) * device.get("tail_seconds", 0.0)
    nanojoules = [
        f"{device[key] * 1e9:.3g}" if key in device else "-"
        for key in ("joules_per_bit", "downlink_joules_per_bit", "joules_per_flop")
    ]
    return [nanojoules[0], nanojoules[1], f"{tail:.3g}", nanojoules[2]]
