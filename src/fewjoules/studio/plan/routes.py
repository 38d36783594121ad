"""Addresses of the plan view."""

from aiohttp import web

from fewjoules.studio.access import Workspace
from fewjoules.studio.pages import shell


def routes(workspace: Workspace) -> list[web.RouteDef]:
    """Return the addresses of the plan view."""

    async def page(request: web.Request) -> web.StreamResponse:
        return shell("plan", "Plan")

    return [web.get("/plan", page)]
