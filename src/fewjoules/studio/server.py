"""The web application, and how it is served on this machine until it is interrupted."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import plotly
from aiohttp import web

from fewjoules.errors import InvalidInputError
from fewjoules.studio.access import ADDRESS, Access, Workspace, gate, protect
from fewjoules.studio.answers import sentences
from fewjoules.studio.plan.routes import routes as plan_routes
from fewjoules.studio.runs.routes import routes as run_routes

MAX_POST_BYTES = 8 * 2**20
STATIC = Path(__file__).parent / "static"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def application(workspace: Workspace, access: Access) -> web.Application:
    """Return the studio of a folder."""
    app = web.Application(middlewares=[gate(access), sentences], client_max_size=MAX_POST_BYTES)
    app.on_response_prepare.append(protect)
    app.add_routes([web.get("/", _front), web.get("/plotly.js", _plotly), web.static("/static", STATIC)])
    app.add_routes([*plan_routes(workspace), *run_routes(workspace)])
    return app


def listen(port: int) -> socket.socket:
    """Return a socket on this machine alone; port 0 takes a free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":  # where it would let two programs share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InvalidInputError(
            f"--port {port} cannot be used ({error.strerror or error}); leave it out to take a free one"
        ) from error
    return listening


async def serve(workspace: Workspace, listening: socket.socket, announce: Callable[[Access], None]) -> None:
    """Serve the studio until Ctrl-C; ``announce`` is called once it answers."""
    access = Access(listening.getsockname()[1])
    runner = web.AppRunner(application(workspace, access), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        ended = _interrupted()
        announce(access)
        await ended.wait()
    finally:
        await runner.cleanup()


def _interrupted() -> asyncio.Event:
    """Return what is set by Ctrl-C or a request to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        except NotImplementedError:  # Windows, where KeyboardInterrupt ends the loop
            break
    return ended


async def _front(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/plan")


async def _plotly(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(PLOTLY, headers={"Content-Type": "text/javascript; charset=utf-8"})
