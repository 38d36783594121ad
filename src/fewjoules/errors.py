"""Every error that FewJoules raises on purpose, and the checks that raise most of them.

FewJoulesError
├── InvalidInputError      an argument or a file that is refused (also a ValueError)
├── InfeasiblePlanError    no plan meets the constraints; the message names the tightest one
├── CorruptPayloadError    bytes that no encoder of ours can have written (also a ValueError)
├── DivergedError          training met a loss that is not finite; the message names the round and the client
├── TargetOutOfReachError  pilot runs do not come near the target; the message says how near they came
├── RankError              another process of a training failed, or cannot be reached any more
├── DeploymentError        a process of a deployment failed or was too slow; the message shows the end of its log
├── MeterError             a meter of energy stopped giving readings; the message names it
└── MissingLibraryError    a library that an extra brings is not installed (also an ImportError)
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray

MAX_NAME = 200  # characters


class FewJoulesError(Exception):
    """Root of every error raised on purpose by this package.

    Attributes:
        run: The ``Run`` of the complete rounds of a training without a folder that this error ended; otherwise None.
    """

    run: Any = None


class InvalidInputError(FewJoulesError, ValueError):
    """An argument or a file that is refused; the message names it, its allowed range and the value."""


class InfeasiblePlanError(FewJoulesError):
    """No plan meets the constraints; the message names the tightest one and its device."""


class CorruptPayloadError(FewJoulesError, ValueError):
    """Bytes that no encoder of ours can have written, or that claim more than the caller allows."""


class DivergedError(FewJoulesError):
    """Training met a loss or an update that is not finite; the message names the first round and client."""


class TargetOutOfReachError(FewJoulesError):
    """Pilot runs do not come near the target of a training; the message says how near they came."""


class RankError(FewJoulesError):
    """Another of the processes that train together failed or cannot be reached; the message says which, if known."""


class DeploymentError(FewJoulesError):
    """A process of a deployment failed or did not answer in time; the message shows the end of its log."""


class MeterError(FewJoulesError):
    """A meter of energy stopped giving readings that can be trusted; the message names it."""


class MissingLibraryError(FewJoulesError, ImportError):
    """A library that an extra of FewJoules brings is not installed; the message says what to install."""


class FewJoulesWarning(UserWarning):
    """Something was adjusted or is slower; the message says what."""


def require_number(name: str, value: Any, *, low: float, high: float = math.inf, above: bool = False) -> float:
    """Return a finite number in [low, high], or in (low, high] with ``above``, as a float; refuse anything else."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    inside = is_number and _is_finite(value) and (value > low if above else value >= low) and value <= high
    if not inside:
        raise InvalidInputError(f"{name} must be {_range_text(low, high, above)}, got {shown(value)}")
    return float(value)


def require_integer(name: str, value: Any, *, low: int, high: int) -> int:
    """Return a whole number in [low, high]; refuse anything else."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:
        raise InvalidInputError(f"{name} must be a whole number from {low} to {high}, got {shown(value)}")
    return int(value)


def require_array(
    name: str, values: ArrayLike, *, low: float = 0.0, high: float = math.inf, infinite: bool = False
) -> FloatArray:
    """Return a number or a vector of numbers in [low, high], finite unless ``infinite``.

    An error names the first bad entry.
    """
    try:
        given = np.asarray(values)
        if given.dtype.kind in "bUSc":  # which NumPy would turn into real numbers
            raise TypeError(given.dtype)
        array = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must hold numbers only, got {shown(values)}") from error
    if array.ndim > 1:
        raise InvalidInputError(f"{name} must be a number or one-dimensional, got shape {array.shape}")
    good = (array >= low) & (array <= high) & (infinite | np.isfinite(array))
    if not np.all(good):
        entry = int(np.argmin(good))
        value = float(array.flat[entry])
        where = f"{name}[{entry}]" if array.ndim else name
        kind = "a number" if infinite else "a finite number"
        most = f" and at most {high:g}" if math.isfinite(high) else ""
        raise InvalidInputError(f"{where} must be {kind} of at least {low:g}{most}, got {value!r}")
    return array


def require_name(what: str, value: Any) -> None:
    """Refuse anything but a short text of printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME or not value.isprintable():
        raise InvalidInputError(f"{what} must be a name of 1 to {MAX_NAME} printable characters, got {shown(value)}")


def shown(value: Any, most: int = 60) -> str:
    """Return a value as error sentences show it, on one line and shortened where it is long."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of too many digits"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def _range_text(low: float, high: float, above: bool) -> str:
    bound = "" if low == -math.inf else f" above {low:g}" if above else f" at least {low:g}"
    return f"a finite number{bound}" + (f" and at most {high:g}" if math.isfinite(high) else "")
