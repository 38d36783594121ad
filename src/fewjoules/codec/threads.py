"""Threads for kernels that release the interpreter lock, started once since starting takes as long as a small task."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def threads() -> ThreadPoolExecutor:
    """Return a pool with one thread per core; its tasks must not wait for one another."""
    return ThreadPoolExecutor(CORES, thread_name_prefix="fewjoules-codec")
