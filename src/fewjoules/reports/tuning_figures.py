"""The figures of a finished tuning as plotly.js JSON, with their words and tables."""

from fewjoules.reports.curves import Look
from fewjoules.reports.law_figures import forecast_section, law_section
from fewjoules.reports.page_figures import Section
from fewjoules.reports.pilot_figures import looks_of_names, pilot_name, pilots_section
from fewjoules.runs.tuning import Tuning


def looks_of(tuning: Tuning) -> dict[str, Look]:
    """Return how each optimiser is drawn."""
    return looks_of_names([*(one.name for one in tuning.tuned.contenders), *map(pilot_name, tuning.tuned.pilots)])


def sections(tuning: Tuning) -> list[Section]:
    """Return the pilots, the rounds law, and its predictions beside what pilots took."""
    pilots = pilots_section(tuning.tuned.pilots, tuning.aim, looks_of(tuning), tuning.tuned.optimiser)
    return [pilots, law_section(tuning), forecast_section(tuning)]
