"""Step sizes by a function of the round, asked once for every round: what a run trains with never changes after."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.errors import InvalidInputError, shown
from fewjoules.own_code import first_line

RateFunction = Callable[[int], ArrayLike]
_BLOCK = 4096  # rounds at a time


class StepSizes:
    """The step sizes of all rounds, (rounds, 1) or (rounds, H).

    ``function`` maps the number of a round, from 1, to the step size of its local steps, or to one for each of them.
    """

    function: RateFunction
    rounds: int
    local_steps: int
    values: FloatArray

    def __init__(self, function: RateFunction, rounds: int, local_steps: int, largest: float) -> None:
        """Ask for every round; refuse what is not a number from 0 to ``largest``, or H of them."""
        self.function, self.rounds, self.local_steps = function, rounds, local_steps
        told = [_asked(function, number, local_steps) for number in range(1, rounds + 1)]
        self.values = _table(told, local_steps)
        bad = np.argwhere(~((self.values >= 0.0) & (self.values <= largest)))  # NaN is neither
        if bad.size:
            number = int(bad[0][0]) + 1
            raise InvalidInputError(
                f"learning_rate({number}) must be from 0 to {largest:g}, got {shown(told[number - 1])}"
            )

    def of_round(self, number: int) -> FloatArray:
        """Return the step sizes of the H local steps of a round."""
        return np.broadcast_to(self.values[number - 1], (self.local_steps,)).copy()

    def __float__(self) -> float:
        """Return the first step size of all."""
        return float(self.values[0, 0])

    def describe(self) -> dict[str, Any]:
        """Return plain values by which the same step sizes are known again."""
        whole = np.broadcast_to(self.values, (self.rounds, self.local_steps))
        digest = hashlib.sha256()
        for first in range(0, self.rounds, _BLOCK):
            digest.update(np.ascontiguousarray(whole[first : first + _BLOCK]).data)
        return {"first": float(whole[0, 0]), "last": float(whole[-1, -1]), "sha256": digest.hexdigest()}


def _asked(function: RateFunction, number: int, local_steps: int) -> ArrayLike:
    try:
        return function(number)
    except Exception as error:
        raise InvalidInputError(
            f"learning_rate({number}) must be a number, or one for each of {local_steps} local steps, "
            f"but the function failed: {first_line(error)}"
        ) from error


def _table(told: list[ArrayLike], local_steps: int) -> FloatArray:
    """Return what a function told as a table; refuse what is neither one number nor one for each local step."""
    try:
        table = np.asarray(told, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.array([_row(number, one, local_steps) for number, one in enumerate(told, start=1)])
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] not in (1, local_steps):
        raise _refused(1, told[0], local_steps)
    return table


def _row(number: int, told: ArrayLike, local_steps: int) -> FloatArray:
    try:
        return np.broadcast_to(np.asarray(told, dtype=np.float64), (local_steps,))
    except (TypeError, ValueError) as error:
        raise _refused(number, told, local_steps) from error


def _refused(number: int, told: ArrayLike, local_steps: int) -> InvalidInputError:
    return InvalidInputError(
        f"learning_rate({number}) must be a number, or one for each of {local_steps} local steps, got {shown(told)}"
    )
