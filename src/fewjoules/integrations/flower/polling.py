"""Send messages and poll for their replies more often than Flower does, until a deadline."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS, SLOWER = 0.05, 1.0, 1.2


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as ``send`` sees it; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM_CLOCK = Clock()


def send(
    grid: Grid,
    messages: list[Message],
    deadline_seconds: float,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[int, Message]:
    """Push messages and return the reply to each by its place in the list; those missing at the deadline are left out.

    Flower's error replies name no node, so replies are matched by the message that they answer.
    """
    end = clock.now() + deadline_seconds
    pushed = grid.push_messages(messages) if messages else []
    waiting = {number: place for place, number in enumerate(pushed) if number}
    meanwhile()
    replies: dict[int, Message] = {}
    pause = FIRST_POLL_SECONDS
    while waiting:
        for reply in _pulled(grid, waiting):
            place = waiting.pop(reply.metadata.reply_to_message_id, None)
            if place is not None:
                replies[place], pause = reply, FIRST_POLL_SECONDS
        left = end - clock.now()
        if not waiting or left <= 0.0:
            break
        clock.sleep(min(pause, left))
        pause = min(SLOWER * pause, LONGEST_POLL_SECONDS)
    return replies


def _pulled(grid: Grid, waiting: Iterable[str]) -> list[Message]:
    return list(grid.pull_messages(list(waiting)))
