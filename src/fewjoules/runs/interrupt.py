"""Signals as requests to stop after the round."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

CTRL_C = (signal.SIGINT,)
CTRL_C_OR_KILL = (signal.SIGINT, signal.SIGTERM)  # for commands: whoever kills a process does not want it to go on


@contextlib.contextmanager
def stop_on_signal(told: Callable[[], None], signals: Sequence[signal.Signals]) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a run was asked to stop.

    The first of the signals calls ``told`` and asks; the second one ends the process as if nobody listened. Outside the
    main thread, where signals cannot be handled, nothing ever asks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = [False]

    def handle(number: int, _frame: object) -> None:
        if asked[0]:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        asked[0] = True
        told()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield lambda: asked[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
