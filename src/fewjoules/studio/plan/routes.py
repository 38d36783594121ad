"""Addresses of the plan view."""

import asyncio
import json
from typing import Any

from aiohttp import web

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.provenance import MARKS
from fewjoules.reports.curves import KIND_COLOURS
from fewjoules.studio.access import Workspace
from fewjoules.studio.answers import as_json, computed, posted
from fewjoules.studio.pages import shell
from fewjoules.studio.plan import files
from fewjoules.studio.plan.edited import Edited
from fewjoules.studio.plan.fields import field_of
from fewjoules.studio.plan.parts import PARTS, PlanParts

_TOO_LARGE = "the numbers are too large, or the tables are nested too deeply"


def routes(workspace: Workspace) -> list[web.RouteDef]:
    """Return the addresses of the plan view."""
    turn = asyncio.Lock()  # one plan at a time: the page asks for the next one while the last is being made

    async def page(request: web.Request) -> web.StreamResponse:
        return shell("plan", "Plan")

    async def sources(request: web.Request) -> web.StreamResponse:
        found = await computed(files.scenario_files, workspace)
        return as_json({"files": found, "profiles": files.profiles(), "kinds": KIND_COLOURS, "marks": MARKS})

    async def source(request: web.Request) -> web.StreamResponse:
        if "example" in request.query:
            return as_json(files.example(request.query["example"]))
        try:
            return as_json(await computed(files.load, workspace, request.query.get("file", "")))
        except (TypeError, ValueError) as error:  # dates and infinite numbers, which no scenario has
            if isinstance(error, FewJoulesError):
                raise
            raise InvalidInputError("the file must hold finite numbers, text and tables only") from error

    async def plan(request: web.Request) -> web.StreamResponse:
        edited = Edited.of(await posted(request), workspace)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson; charset=utf-8"})
        await response.prepare(request)
        async with turn:
            parts = PlanParts(edited)
            for name in PARTS:
                if request.transport is None or request.transport.is_closing():
                    break  # the page has asked for another plan meanwhile
                part = await computed(_made, parts, name)
                await response.write(json.dumps(part, allow_nan=False, separators=(",", ":")).encode() + b"\n")
                if "error" in part and name == "plan":
                    break
        return response

    return [
        web.get("/plan", page),
        web.get("/api/plan/sources", sources),
        web.get("/api/plan/source", source),
        web.post("/api/plan", plan),
    ]


def _made(parts: PlanParts, name: str) -> dict[str, Any]:
    """Return a part, or the sentence that says why there is none and the field that it is about."""
    try:
        return parts.made(name)
    except (FewJoulesError, OverflowError, RecursionError) as error:
        known = isinstance(error, FewJoulesError)
        sentence = " ".join(str(error).split()) if known else f"{parts.edited.name}: {_TOO_LARGE}"
        return {"part": name, "error": sentence, "field": field_of(sentence, parts.edited.name, parts.edited.tables)}
