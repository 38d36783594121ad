"""Threads that run single-threaded torch kernels side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers:
    """A pool whose tasks may use torch; the caller's own number of torch threads is given back by ``close``."""

    def __init__(self, threads: int) -> None:
        """Start the threads; torch keeps one kernel thread in each."""
        self.threads = threads
        self._before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(threads, "fewjoules-train", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Results in the order of the tasks; the error of the first task that failed is raised."""
        return list(self._pool.map(function, tasks))

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown()
        torch.set_num_threads(self._before)
