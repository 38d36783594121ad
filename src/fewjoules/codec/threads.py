"""Threads for kernels that release the interpreter lock, started once: starting them takes as long as a small task."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def threads() -> ThreadPoolExecutor:
    """As many threads as cores; tasks given to them must not wait for one another."""
    return ThreadPoolExecutor(CORES, thread_name_prefix="fewjoules-codec")
