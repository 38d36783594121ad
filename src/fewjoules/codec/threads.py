"""Threads for kernels that release the interpreter lock, started once since starting takes as long as a small task."""

import functools
from concurrent.futures import ThreadPoolExecutor

from fewjoules.cores import CORES


@functools.cache
def threads() -> ThreadPoolExecutor:
    """Return a pool with one thread per core; its tasks must not wait for one another."""
    return ThreadPoolExecutor(CORES, thread_name_prefix="fewjoules-codec")
