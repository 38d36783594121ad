"""How many cores this process may use."""

import os

from fewjoules.torchrun import ranks_on_this_machine

_ALL = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
CORES = max(1, _ALL // ranks_on_this_machine())
