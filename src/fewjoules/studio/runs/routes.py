"""Addresses of the runs view: pages that hold their state, and the JSON and CSV that they show."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

from fewjoules.studio.access import Workspace
from fewjoules.studio.answers import computed
from fewjoules.studio.pages import shell

PAGES = {
    "/runs": "Runs",
    "/runs/run": "Run",
    "/runs/tuning": "Tuning",
    "/runs/compare": "Comparison",
    "/runs/ledger": "Ledger",
}
MOST_CHOSEN = 200  # runs that one address names
View = Callable[[], dict[str, Any]]


def routes(workspace: Workspace) -> list[web.RouteDef]:
    """Return the addresses of the runs view. What reads folders is imported when it is first asked for."""

    async def page(request: web.Request) -> web.StreamResponse:
        return shell("runs", PAGES[request.path])

    async def rows(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.rows import listed

        return await _changed(request, lambda: listed(workspace))

    async def run(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.run_view import run_view

        return await _changed(request, lambda: run_view(workspace, request.query.get("folder", "")))

    async def tuning(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.tuning_view import tuning_view

        return await _changed(request, lambda: tuning_view(workspace, request.query.get("folder", "")))

    async def compare(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.comparison_view import chosen_view, comparison_view

        folder, chosen = request.query.get("folder"), request.query.getall("run", [])[:MOST_CHOSEN]
        if folder is not None:
            return await _changed(request, lambda: comparison_view(workspace, folder))
        return await _changed(request, lambda: chosen_view(workspace, chosen))

    async def ledger(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.ledger_view import ledger_view

        return await _changed(request, lambda: ledger_view(workspace, request.query))

    async def ledger_file(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.ledger_view import ledger_csv

        return await _streamed(request, await computed(ledger_csv, workspace, request.query), "ledger.csv")

    async def rows_file(request: web.Request) -> web.StreamResponse:
        from fewjoules.studio.runs.rows import listed

        found = await computed(listed, workspace)
        return await _streamed(request, _rows_csv(found["rows"]), "runs.csv")

    pages = [web.get(address, page) for address in PAGES]
    answers = {
        "/api/runs": rows,
        "/api/runs/run": run,
        "/api/runs/tuning": tuning,
        "/api/runs/compare": compare,
        "/api/runs/ledger": ledger,
        "/api/runs/ledger.csv": ledger_file,
        "/api/runs/runs.csv": rows_file,
    }
    return [*pages, *(web.get(address, handler) for address, handler in answers.items())]


async def _changed(request: web.Request, view: View) -> web.StreamResponse:
    """Answer with a view as JSON, or with 304 if the browser has the same already."""
    value = await computed(view)
    text = await computed(lambda: json.dumps(value, allow_nan=False, separators=(",", ":")))
    tag = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(text=text, content_type="application/json", headers={"ETag": tag})


async def _streamed(request: web.Request, pieces: Iterator[str], name: str) -> web.StreamResponse:
    """Answer with a CSV file, of which one piece at a time is in memory."""
    piece = await computed(next, pieces, None)  # whatever is refused is refused before the answer begins
    response = web.StreamResponse(
        headers={"Content-Type": "text/csv; charset=utf-8", "Content-Disposition": f'attachment; filename="{name}"'}
    )
    await response.prepare(request)
    while piece is not None:
        await response.write(piece.encode("utf-8", "replace"))
        piece = await computed(next, pieces, None)
    await response.write_eof()
    return response


def _rows_csv(rows: list[dict[str, Any]]) -> Iterator[str]:
    from fewjoules.studio.runs.ledger_table import csv_cell
    from fewjoules.studio.runs.rows import COLUMNS

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("folder", *COLUMNS, "problem"))
    for row in rows:
        writer.writerow([csv_cell(row[name]) for name in ("folder", *COLUMNS, "problem")])
    yield text.getvalue()
