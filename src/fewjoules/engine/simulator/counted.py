"""See that labels count: a loss that ignores all of them teaches nothing, and its mean over a test set is unknown."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewjoules.arrays import IntArray
from fewjoules.engine.models.labels import LabelRule
from fewjoules.engine.simulator.federation import ClientSlices, Federation, SampleSource
from fewjoules.errors import FewJoulesWarning, InvalidInputError

_Flags = NDArray[np.bool_]


def require_counted_test(test: SampleSource, rule: LabelRule) -> None:
    """Refuse a test set of which no label counts, where that is known without reading all samples."""
    counted = _counted(test, rule)
    if counted is not None and not counted.any():
        raise InvalidInputError(f"test must have a label that counts, got {rule.ignored} for every label")


def require_counted_clients(federation: Federation, rule: LabelRule) -> None:
    """Refuse clients of whose samples no label counts; warn of some, which cost joules and teach nothing."""
    counted = _counted(federation.samples, rule)
    if counted is None or counted.all():
        return
    idle = np.flatnonzero(~_clients_with(counted, federation.parts))
    if idle.size == len(federation.parts):
        raise InvalidInputError(f"clients must have a label that counts, got {rule.ignored} for every label")
    if idle.size:
        who = f"clients[{idle[0]}] {'has' if idle.size == 1 else f'and {idle.size - 1} more have'}"
        warnings.warn(
            f"{who} no label that counts, only {rule.ignored}: training on that costs joules and teaches nothing",
            FewJoulesWarning,
            stacklevel=4,
        )


def _counted(samples: SampleSource, rule: LabelRule) -> _Flags | None:
    """Return which samples have a label that counts; None where that is not known."""
    found = samples.counted(rule) if rule.judged else None
    return None if found is None else found.cpu().numpy()


def _clients_with(counted: _Flags, parts: Sequence[IntArray]) -> _Flags:
    """Return which clients have a sample that counts."""
    if isinstance(parts, ClientSlices):
        before = np.concatenate([[0], np.cumsum(counted)])
        return np.greater(before[parts.starts + parts.sizes], before[parts.starts])
    return np.array([counted[part].any() for part in parts])
