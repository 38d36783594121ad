"""Addresses of the runs view."""

from aiohttp import web

from fewjoules.studio.access import Workspace
from fewjoules.studio.pages import shell


def routes(workspace: Workspace) -> list[web.RouteDef]:
    """Return the addresses of the runs view."""

    async def page(request: web.Request) -> web.StreamResponse:
        return shell("runs", "Runs")

    return [web.get("/runs", page)]
