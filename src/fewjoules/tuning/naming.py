"""The names of the optimisers that pilots train."""

from collections.abc import Mapping

from fewjoules.tuning.arms import DENSE, PLAIN, optimisers
from fewjoules.tuning.pilot import OptionValue

_KNOWN = tuple({one.name: one for one in (PLAIN, *optimisers(1, 1.0), *optimisers(1, DENSE))}.values())


def optimiser_name(options: Mapping[str, OptionValue]) -> str:
    """Return the name under which an optimiser races; "other" for one that never does."""
    for one in _KNOWN:
        if all(options.get(key) == value for key, value in one.options.items()):
            return one.name
    return "other"
