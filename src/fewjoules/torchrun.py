"""The processes that train together: what ``torchrun`` tells them by the environment, or their process group does.

PyTorch is not imported here: a process group of the caller's own exists only where that has been done.
"""

import os
import sys
from typing import Any

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _number(name: str, usual: int) -> int:
    told = os.environ.get(name, "")
    return int(told) if told.isascii() and told.isdigit() else usual


def is_of_torchrun() -> bool:
    """Whether ``torchrun``, or what sets the same variables, started this process."""
    return all(name in os.environ for name in _NEEDED)


def ranks_started() -> int:
    """How many processes were started to work together; 1 without ``torchrun``."""
    return max(1, _number("WORLD_SIZE", 1)) if is_of_torchrun() else 1


def ranks_on_this_machine() -> int:
    """How many of them run on this machine."""
    return max(1, _number("LOCAL_WORLD_SIZE", 1)) if ranks_started() > 1 else 1


def rank_on_this_machine() -> int:
    """Number of this process among them, from 0."""
    return _number("LOCAL_RANK", 0)


def follows_another_rank() -> bool:
    """Whether this process is another than the first, which writes files and speaks for all."""
    return ranks_started() > 1 and _number("RANK", 0) > 0


def ranks_expected() -> int:
    """How many ranks share a training here; 1 unless ``torchrun`` or the caller's own process group says more."""
    group = _own_group()
    return ranks_started() if group is None else int(group.get_world_size())


def is_first_rank() -> bool:
    """Whether this process writes files: the only one, or the first of its ranks."""
    group = _own_group()
    return not follows_another_rank() if group is None else bool(group.get_rank() == 0)


def _own_group() -> Any:
    """Return the module ``torch.distributed`` if a process group is open in this process."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None
