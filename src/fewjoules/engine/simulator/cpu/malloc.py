"""Freed memory that stays with the process: a step frees and asks for the same tens of megabytes again and again.

By default glibc gives them back to the system, which then hands them out again one page fault at a time.
"""

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 1 << 30, 32 << 20  # glibc refuses to keep single blocks above 32 MiB


@functools.cache
def keep_freed_memory() -> bool:
    """Ask glibc, where it is the allocator, to keep what is freed; tells whether it will."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
