"""``fewjoules.Comparison``: what several schemes took to the same target, and which of them are tied."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fewjoules.extras import require_extra
from fewjoules.reports.booked import outcome
from fewjoules.reports.comparison import guard_sentences
from fewjoules.reports.comparison_file import scheme_summaries
from fewjoules.reports.seed_comparison import overall_headline
from fewjoules.runs.results import RunResults

if TYPE_CHECKING:
    import pandas

    from fewjoules.runs.run import Run

_WIDTH = 160  # of the printed table


@dataclass(frozen=True, slots=True)
class Comparison:
    """Schemes that were trained to the same target with the same seeds; printing it shows the table.

    Args:
        runs: The run of each scheme with each seed, by (scheme, seed).
        results: The same runs as tables and figures read them.
        diverged: For each scheme, the number of seeds that diverged and have no run.
    """

    runs: "Mapping[tuple[str, int], Run]"
    results: tuple[RunResults, ...]
    diverged: Mapping[str, int]

    @property
    def schemes(self) -> list[dict[str, Any]]:
        """What each scheme comes to, ranked by its mean joules to the target.

        ``joules``, ``rounds`` and the like have mean, least and most over the seeds; ``times_least`` is the mean joules
        over those of the best, and ``tied`` tells whether noise explains the difference (None below three seeds).
        """
        return scheme_summaries(self.results, self.diverged)

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        return overall_headline(self.results, self.diverged)

    def __str__(self) -> str:
        """Return the table as text, and the outcome in a sentence."""
        text = io.StringIO()
        Console(file=text, width=_WIDTH).print(outcome(self.results, self.diverged))
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *guard_sentences(self.results), self.headline])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return one row for each scheme; a number with a range has the columns NAME, NAME_least and NAME_most."""
        require_extra("dataframes", "to_pandas", "pandas")
        import pandas

        return pandas.DataFrame([_flat(one) for one in self.schemes])


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            flat |= {name: value["mean"], f"{name}_least": value["least"], f"{name}_most": value["most"]}
        else:
            flat[name] = value
    return flat
