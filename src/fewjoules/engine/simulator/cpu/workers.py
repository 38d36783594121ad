"""Threads that run single-threaded torch kernels side by side."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar, cast

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run single-threaded kernels for a while: with few samples, threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers:
    """A thread pool whose tasks may use torch; ``close`` restores the caller's number of torch threads."""

    def __init__(self, threads: int) -> None:
        """Start the threads; each runs torch with one kernel thread."""
        self.threads = threads
        self._before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(threads, "fewjoules-train", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return the results in the order of the tasks, or raise the error of the first task that failed."""
        listed = list(tasks)
        results: list[Result | None] = [None] * len(listed)
        errors: dict[int, BaseException] = {}
        numbers = iter(range(len(listed)))

        def work() -> None:
            """Take one task after the other, so that the caller wakes up once and not for each of them."""
            while not errors and (number := next(numbers, None)) is not None:  # what was taken is also done
                try:
                    results[number] = function(listed[number])
                except BaseException as error:
                    errors[number] = error

        try:
            wait([self._pool.submit(work) for _ in range(min(self.threads, len(listed)))])
        except BaseException as error:  # Ctrl-C: no further task is begun
            errors[len(listed)] = error
            raise
        if errors:
            raise errors[min(errors)]
        return cast(list[Result], results)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()
        torch.set_num_threads(self._before)
