"""Counts the bytes between nodes and SuperLink at the sockets: a TCP proxy for each node, which reads nothing."""

import asyncio
import contextlib
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one node, inside TCP: to the SuperLink and from it."""

    up_bytes: int
    down_bytes: int


@dataclass(slots=True)
class Counter:
    """Bytes of one direction of one node over time."""

    times: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=lambda: [0])

    def add(self, count: int) -> None:
        self.totals.append(self.totals[-1] + count)
        self.times.append(time.monotonic())

    def between(self, start_seconds: float, end_seconds: float) -> int:
        first, last = (self.totals[bisect_right(self.times, at)] for at in (start_seconds, end_seconds))
        return last - first


class Wire:
    """Proxies, one for each node, in a thread of their own. ``superlink`` says where to connect, once it is known."""

    def __init__(self, nodes: int) -> None:
        self.superlink: Callable[[], str] = lambda: ""
        self.addresses: list[str] = []
        self._counters = [(Counter(), Counter()) for _ in range(nodes)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def between(self, start_seconds: float, end_seconds: float) -> list[Traffic]:
        """What each node sent and received between two times of ``time.monotonic``."""
        return [
            Traffic(up.between(start_seconds, end_seconds), down.between(start_seconds, end_seconds))
            for up, down in self._counters
        ]

    async def _listen(self) -> None:
        for counters in self._counters:
            server = await asyncio.start_server(partial(self._forward, counters), HOST, 0)
            self.addresses.append(f"{HOST}:{server.sockets[0].getsockname()[1]}")

    async def _forward(
        self, counters: tuple[Counter, Counter], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = self.superlink().split(":")
        try:
            from_link, to_link = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        up, down = counters
        await asyncio.gather(_pump(reader, to_link, up), _pump(from_link, writer, down))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counter: Counter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(BLOCK_BYTES):
            counter.add(len(block))
            writer.write(block)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
