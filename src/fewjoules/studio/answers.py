"""Answers in JSON: work done off the event loop, and errors as the one sentence that the command line prints."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from fewjoules.errors import FewJoulesError, InvalidInputError

Made = TypeVar("Made")


async def computed(function: Callable[..., Made], *arguments: Any) -> Made:
    """Return what a function makes in a thread, so that the page stays responsive."""
    return await asyncio.to_thread(function, *arguments)


def as_json(value: object, status: int = 200) -> web.Response:
    """Return an answer in JSON; numbers that are not finite are a bug."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json")


async def posted(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that a request brings."""
    try:
        given = await request.json()
    except (ValueError, LookupError, RecursionError) as error:  # an unknown charset is a LookupError
        raise InvalidInputError("the request must be JSON") from error
    if not isinstance(given, dict):
        raise InvalidInputError("the request must be a JSON object")
    return given


@web.middleware
async def sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer refused input with one sentence as JSON."""
    try:
        return await handler(request)
    except FewJoulesError as error:
        return as_json({"error": " ".join(str(error).split())}, status=422)
    except OSError as error:
        return as_json({"error": f"cannot be read ({error.strerror or error})"}, status=422)
