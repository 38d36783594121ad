"""A table for the terminal that leaves out columns rather than cut its numbers where the terminal is narrow."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

GAP = 2  # characters between two columns
SPARE = ("payload", "seconds", "compute J", "radio J", "least to most")  # left out in this order; the page has them


@dataclass(frozen=True, slots=True)
class FittingTable:
    """Titles and rows of cells; rows numbered in ``dim`` are shown in a weaker colour."""

    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    dim: frozenset[int] = frozenset()

    def columns_within(self, width: int) -> list[int]:
        """Return the places of the columns to show in so many characters."""
        places = list(range(len(self.titles)))
        for title in SPARE:
            if self._width_of(places) <= width:
                break
            places = [place for place in places if self.titles[place] != title]
        return places

    def _width_of(self, places: Sequence[int]) -> int:
        cells = (self.titles, *self.rows)
        return sum(max(cell_len(row[place]) for row in cells) for place in places) + GAP * (len(places) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with the columns that there is room for."""
        places = self.columns_within(options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place in places:
            table.add_column(self.titles[place], justify="right" if place else "left", no_wrap=True)
        for number, row in enumerate(self.rows):
            table.add_row(*(escape(row[place]) for place in places), style="dim" if number in self.dim else None)
        yield table
