"""A studio to ask in tests: the application behind aiohttp's own test client, with and without the token."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from aiohttp.test_utils import TestClient, TestServer, unused_port

from fewjoules.studio.access import Access, Workspace
from fewjoules.studio.server import application

Result = TypeVar("Result")


class Studio:
    """Asks a studio of a folder as a browser with the token would."""

    def __init__(self, client: TestClient, access: Access) -> None:
        self.client = client
        self.access = access
        self.headers = {"Origin": f"http://127.0.0.1:{access.port}", "Cookie": f"{access.cookie}={access.token}"}

    async def get(self, address: str):
        return await self.client.get(address, headers=self.headers, allow_redirects=False)

    async def post(self, address: str, body):
        return await self.client.post(address, json=body, headers=self.headers)

    async def json(self, address: str, body=None):
        """Return the answer and its status."""
        response = await (self.get(address) if body is None else self.post(address, body))
        return await response.json(), response.status


def with_studio(folder: Path, ask: Callable[[Studio], Awaitable[Result]]) -> Result:
    """Start the studio of a folder, ask it, and end it."""

    async def run() -> Result:
        access = Access(unused_port())
        server = TestServer(application(Workspace.of(folder), access), host="127.0.0.1", port=access.port)
        async with TestClient(server) as client:
            return await ask(Studio(client, access))

    return asyncio.run(run())
