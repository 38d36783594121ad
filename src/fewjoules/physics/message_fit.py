"""Fit the law of the bits of a message to messages that were sent.

One fit serves all kinds of values. Positions cost every kind the same, so their three constants are shared; a kind adds
its own bits of a value, a trend with log2 of the sparsity (fewer and larger values have other frequencies) and fixed
bits (tables and scales). For these there is a prior, what the codec's kinds take in messages of real training
(benchmarks/message_sizes.py), so that one or two observations of a kind are enough:

    bits = F + f + d / delta ((S + t) log2 delta + P + v),    F, S, P shared; f, t, v of the kind.

Residuals are relative. A law that plans could not use is replaced by the nearest that they can.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, require_integer, require_number, shown
from fewjoules.physics.message_size import MAX_ENTRY_BITS, MessageSize, least_entry_bits

_LEAST_SPARSITY = 2.0  # below it the codec writes the missing positions or none, and messages of coarse values shrink
_SMOOTH = ("float32", "bfloat16")  # whose values are so long that it hardly shows
_RELATIVE_ERROR = 0.01  # of the law beside a mean over many messages
_LEAST_SCALE = 1e-3
_LESSER = 0.1  # weight of the free law beside an observation, where plans need another law
ANY_PLAN = least_entry_bits()


class _Part(NamedTuple):
    """Fixed bits, bits for each log2 delta of an entry, and other bits of an entry."""

    fixed: float
    trend: float
    entry: float


_POSITIONS, _POSITIONS_SPREAD = _Part(200.0, 1.08, 0.85), _Part(100.0, 0.15, 0.5)
_VALUES: Mapping[str, _Part] = {
    "float32": _Part(50.0, -0.27, 26.0),
    "float16": _Part(100.0, -0.44, 12.8),
    "bfloat16": _Part(50.0, -0.28, 10.0),
    "int8": _Part(-90.0, 0.20, 6.75),
    "qsgd": _Part(40.0, 0.08, 1.3),  # with 15 levels
    "ternary": _Part(0.0, 0.0, 1.0),
    "two-bit": _Part(40.0, 0.03, 1.87),
}
VALUE_KINDS = tuple(_VALUES)


def least_observed_sparsity(values: str) -> float:
    """Return the least sparsity whose messages follow the law of a kind of values."""
    return 1.0 if values in _SMOOTH else _LEAST_SPARSITY


@dataclass(frozen=True, slots=True)
class MessageObservation:
    """The mean bits of messages of one kind of values and one sparsity, d / (entries sent); ``weight`` counts them."""

    values: str
    sparsity: float
    bits: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no codec can have written."""
        if self.values not in _VALUES:
            raise InvalidInputError(f"values must be one of {', '.join(VALUE_KINDS)}, got {shown(self.values)}")
        least = least_observed_sparsity(self.values)
        require_number(f"sparsity of {self.values} messages to fit", self.sparsity, low=least)
        require_number("bits of a message", self.bits, low=0.0, above=True)
        require_number("weight of an observation", self.weight, low=0.0, above=True)


@dataclass(frozen=True, slots=True)
class MessageFit:
    """The law of each kind of values that was observed; ``relative_residuals`` are model / measured - 1."""

    laws: Mapping[str, MessageSize]
    relative_residuals: FloatArray

    @property
    def rms_relative_residual(self) -> float:
        """Root mean square of ``relative_residuals``: 0.01 means that a law is typically 1 % off."""
        return float(np.sqrt(np.mean(self.relative_residuals**2)))


def usual_bits(parameters: int, values: str, sparsity: float) -> float:
    """Return the bits that a message of this kind usually takes, as far as that is known before any was sent."""
    own = [one + other for one, other in zip(_POSITIONS, _VALUES[values], strict=True)]
    return float(np.dot(_terms(float(parameters), sparsity), own))


def fit_message_size(
    parameters: int, observations: Sequence[MessageObservation], *, least: float = ANY_PLAN
) -> MessageFit:
    """Fit laws for a model of ``parameters``, each with at least ``least`` entry_bits, by default good for any plan.

    Coarse values take less than that: ``least_entry_bits`` gives the number for the limits and the rounds model of a
    plan, and laws with it are truer. Heavier observations count more; those near the plan deserve it.
    """
    require_integer("parameters", parameters, low=1, high=10**12)
    require_number("least", least, low=-MAX_ENTRY_BITS, high=MAX_ENTRY_BITS)
    if not observations:
        raise InvalidInputError("a fit needs at least 1 observation, got none")
    free = _free_laws(float(parameters), observations)
    laws = {kind: _convex(parameters, law, kind, observations, least) for kind, law in free.items()}
    predicted = [float(laws[one.values].bits(parameters, one.sparsity)) / one.bits for one in observations]
    return MessageFit(laws, np.array(predicted) - 1.0)


def _free_laws(parameters: float, observations: Sequence[MessageObservation]) -> dict[str, MessageSize]:
    """Return the laws of all kinds without regard to plans.

    The unknowns are the three numbers of the positions, and then the three of each kind with those of the positions in
    them: the first occur in the priors only, and the bounds are plain.
    """
    kinds = tuple(dict.fromkeys(one.values for one in observations))
    unknowns = np.eye(3 + 3 * len(kinds))
    rows, targets = [], []
    for one, weight in zip(observations, _weights(observations), strict=True):
        first = 3 + 3 * kinds.index(one.values)
        rows.append(_terms(parameters, one.sparsity) @ unknowns[first : first + 3] * (weight / one.bits))
        targets.append(weight)
    for place, (usual, spread) in enumerate(zip(_POSITIONS, _POSITIONS_SPREAD, strict=True)):
        rows.append(unknowns[place] / spread)
        targets.append(usual / spread)
    for number, kind in enumerate(kinds):
        for place, (usual, spread) in enumerate(zip(_VALUES[kind], _spread(kind), strict=True)):
            rows.append((unknowns[3 + 3 * number + place] - unknowns[place]) / spread)
            targets.append(usual / spread)
    found = _least_squares(rows, targets, [-np.inf] * 3 + [0.0, _LEAST_SCALE, 0.0] * len(kinds))
    return {kind: _law(*found[3 + 3 * number : 6 + 3 * number]) for number, kind in enumerate(kinds)}


def _convex(
    parameters: float, law: MessageSize, kind: str, observations: Sequence[MessageObservation], least: float
) -> MessageSize:
    """Return the law, or where it has fewer entry_bits than ``least`` the nearest that has not.

    Nearest to the observations of the kind and, in a lesser degree, to the law at sparsities up to 1000. The unknowns
    are the fixed bits, the scale, and the bits of an entry above ``least`` times the scale.
    """
    if law.entry_bits >= least:
        return law
    known = zip(observations, _weights(observations), strict=True)
    points = [(one.sparsity, one.bits, weight) for one, weight in known if one.values == kind]
    for sparsity in np.geomspace(_LEAST_SPARSITY, max(_LEAST_SPARSITY, min(1000.0, parameters)), 9).tolist():
        points.append((sparsity, float(law.bits(parameters, sparsity)), _LESSER / _RELATIVE_ERROR))
    rows = []
    for sparsity, bits, weight in points:
        constant, trend, entry = _terms(parameters, sparsity)
        rows.append(np.array([constant, trend + least * entry, entry]) * (weight / bits))
    targets = [weight for _, _, weight in points]
    fixed, scale, above = _least_squares(rows, targets, [0.0, _LEAST_SCALE, 0.0])
    return _law(fixed, scale, least * scale + above)


def _weights(observations: Sequence[MessageObservation]) -> FloatArray:
    """Return the weight of each relative residual; their mean square is that of the usual error."""
    weights = np.sqrt([one.weight for one in observations])
    return np.asarray(weights * (math.sqrt(weights.size) / np.linalg.norm(weights) / _RELATIVE_ERROR))


def _terms(parameters: float, sparsity: float) -> FloatArray:
    """Return what fixed bits, bits for each log2 delta and other bits of an entry are multiplied with."""
    entries = parameters / sparsity
    return np.array([1.0, entries * math.log2(sparsity), entries])


def _least_squares(rows: Sequence[FloatArray], targets: Sequence[float], lower: Sequence[float]) -> FloatArray:
    from scipy.optimize import lsq_linear

    matrix = np.array(rows)
    size = np.linalg.norm(matrix, axis=0)
    scaled = np.where(size > 0.0, size, 1.0)
    found = lsq_linear(matrix / scaled, np.array(targets), (np.array(lower) * scaled, np.inf), tol=1e-12)
    return np.maximum(found.x / scaled, lower)


def _law(fixed: float, scale: float, entry: float) -> MessageSize:
    return MessageSize(fixed_bits=float(fixed), scale=float(scale), entry_bits=float(entry / scale))


def _spread(kind: str) -> _Part:
    """How far a kind may be from its prior."""
    return _Part(30.0, 0.05, 0.1 + 0.05 * _VALUES[kind].entry)
