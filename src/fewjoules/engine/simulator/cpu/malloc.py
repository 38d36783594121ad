"""Keep freed memory in the process: every step frees and allocates the same tens of megabytes.

By default glibc returns them to the system, and every new allocation then pays page faults.
"""

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 1 << 30, 32 << 20  # glibc refuses to keep single blocks above 32 MiB


@functools.cache
def keep_freed_memory() -> bool:
    """Ask glibc, if it is the allocator, to keep freed memory; return whether it will."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
