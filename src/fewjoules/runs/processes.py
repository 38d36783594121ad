"""Processes for trainings that go on at the same time."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor


@contextlib.contextmanager
def processes_of(count: int) -> Iterator[Executor]:
    """Start ``count`` processes for trainings, each with its own data; an error or Ctrl-C ends them at once."""
    others = multiprocessing.active_children()
    executor = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        executor.shutdown()


def _end_with_parent() -> None:
    """End this process when its parent ends; otherwise it would outlive a killed parent and keep GPU memory."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
