"""One self-contained HTML page about one run or several, which works offline."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from fewjoules.errors import InvalidInputError
from fewjoules.files import whole_file
from fewjoules.reports.comparison import by_label
from fewjoules.reports.curves import Look
from fewjoules.reports.page_figures import Section, sections
from fewjoules.reports.ranking import RankedRow, ranking_of
from fewjoules.reports.seeds import by_rank
from fewjoules.runs.results import RunResults, plain_text
from fewjoules.scenario.schema.recipe import RecipeSearch

MAX_SCENARIO_CHARACTERS = 65_536
MAX_VALUES = 10  # of a fact that differs between seeds
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_page(
    runs: Sequence[RunResults],
    target: Path,
    title: str,
    diverged: Mapping[str, int] | None = None,
    search: RecipeSearch | None = None,
) -> None:
    """Write the page of the runs, under a temporary name until it is complete.

    ``diverged`` counts by scheme the seeds that have no run, and ``search`` is what finding the recipe took.
    """
    if not runs:
        raise InvalidInputError("a page must show at least 1 run, got 0")
    text = page(by_rank(runs, diverged), title, diverged, search)
    with whole_file(target) as stream:
        stream.write(text.encode("utf-8", "replace"))


def page(
    runs: Sequence[RunResults],
    title: str,
    diverged: Mapping[str, int] | None = None,
    search: RecipeSearch | None = None,
) -> str:
    """Return the page as HTML."""
    ranking = ranking_of(runs, diverged, search)
    above = [remark_list(ranking.remarks), ranking_table(ranking.titles, ranking.rows, ranking.best)]
    below = [_facts(runs), *scenario_texts(run.scenario_text for run in runs)]
    return document(title, ranking.headline, above, sections(runs), below)


def document(
    title: str, heading: str, above: Sequence[str], figures: Sequence[Section], below: Sequence[str] = ()
) -> str:
    """Return a page: a title, a heading, HTML above the sections and below them, and all that figures need."""
    from plotly.offline import get_plotlyjs

    scripts = [
        f'<script type="application/json" id="figure-{place}-{number}">{_json(panel)}</script>'
        for place, section in enumerate(figures)
        for number, panel in enumerate(section.panels)
    ]
    body = [
        f'<p class="title">{html.escape(plain_text(title))}</p>',
        f"<h1>{html.escape(heading)}</h1>",
        *above,
        *(_section(place, section) for place, section in enumerate(figures)),
        *below,
        "<footer>Made with FewJoules: federated learning for the fewest joules.</footer>",
        *scripts,
        f"<script>{get_plotlyjs()}</script>",
        f"<script>{_resource('page.js')}</script>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(plain_text(title))}</title>",
        f"<style>{_resource('page.css')}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>"]
    return "\n".join(line for line in lines if line) + "\n"


def ranking_table(titles: Sequence[str], rows: Sequence[RankedRow], best: int = 0) -> str:
    """Return a table whose best row, the one at place ``best``, is marked."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    lines = []
    for place, (cells, look, missed) in enumerate(rows):
        kind = "missed" if missed else "best" if place == best and len(rows) > 1 else ""
        others = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
        name = _swatch(_colour(look)) + html.escape(cells[0])
        lines.append(f'<tr class="{kind}"><td>{name}</td>{others}</tr>')
    body = "\n".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _colour(look: Look) -> str:
    return "var(--ink)" if look.colour == "#000000" else look.colour


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span>'


def remark_list(sentences: Sequence[str]) -> str:
    """Return sentences as a list."""
    items = "".join(f"<li>{html.escape(remark)}</li>" for remark in sentences)
    return f'<ul class="remarks">{items}</ul>' if items else ""


def _section(place: int, section: Section) -> str:
    panels = "".join(
        f'<div data-figure="figure-{place}-{number}" role="img" aria-label="{html.escape(words)}"></div>'
        for number, words in enumerate(section.words)
    )
    many = " many" if len(section.panels) > 1 else ""
    caption = f'<p class="caption">{html.escape(section.caption)}</p>' if section.caption else ""
    figure = f'<div class="panels{many}">{panels}</div>' if panels else ""
    title = f"<h2>{html.escape(section.title)}</h2>"
    return f"<section>{title}{caption}{_legend(section)}{figure}{_numbers(section)}</section>"


def _legend(section: Section) -> str:
    """Return the colours that all panels share, each with its name."""
    entries = "".join(f"<span>{_swatch(colour)}{html.escape(name)}</span>" for name, colour in section.legend.items())
    return f'<p class="legend">{entries}</p>' if entries else ""


def _numbers(section: Section) -> str:
    """Return the numbers of a section as a table, folded where panels show the same."""
    if section.numbers is None:
        return ""
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in section.numbers.titles)
    rows = "\n".join(
        f'<tr><th scope="row">{html.escape(name)}</th>{"".join(f"<td>{html.escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in section.numbers.rows
    )
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    return f"<details><summary>The numbers as a table</summary>{table}</details>" if section.panels else table


def _facts(runs: Sequence[RunResults]) -> str:
    """Return a table of how the runs were made; facts that differ are listed for each scheme."""
    schemes = by_label(runs)
    names = list(schemes)
    told = [[_all_facts(run) for run in own] for own in schemes.values()]
    rows = []
    for fact in dict.fromkeys(key for own in told for facts in own for key in facts):
        values = [_over_seeds([facts.get(fact, "-") for facts in own]) for own in told]
        if len(set(values)) == 1:
            text = html.escape(values[0])
        else:
            text = "<br>".join(f"{html.escape(n)}: {html.escape(v)}" for n, v in zip(names, values, strict=True))
        rows.append(f"<tr><th>{html.escape(fact)}</th><td>{text}</td></tr>")
    body = "\n".join(rows)
    return f'<section><h2>How this was made</h2><table class="facts"><tbody>\n{body}\n</tbody></table></section>'


def _over_seeds(values: Sequence[str]) -> str:
    """Return a fact of the runs of one scheme: one value, or the different ones of its seeds."""
    different = list(dict.fromkeys(values))
    return ", ".join([*different[:MAX_VALUES], *(["…"] if len(different) > MAX_VALUES else [])])


def _all_facts(run: RunResults) -> dict[str, str]:
    facts = dict(run.summary.facts)
    realised = run.summary.realised_over_planned_radio
    if realised is not None:
        facts["radio joules"] = f"{realised:.4g} times those at the average rate"
    return facts


def scenario_texts(found: Iterable[str | None]) -> list[str]:
    """Return each different scenario file once, folded."""
    texts = dict.fromkeys(text for text in found if text)
    shown = []
    for text in texts:
        cut = text[:MAX_SCENARIO_CHARACTERS] + ("\n…" if len(text) > MAX_SCENARIO_CHARACTERS else "")
        shown.append(f"<details><summary>The scenario file</summary><pre>{html.escape(cut)}</pre></details>")
    return shown


def _json(value: object) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return resources.files("fewjoules.reports").joinpath(name).read_text(encoding="utf-8")
