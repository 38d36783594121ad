"""Operating points of devices: clock and voltage settings, each with its joules and seconds of a local step."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.errors import InvalidInputError, require_array

MAX_POINTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoints:
    """Joules and seconds of a local step at each operating point of each device, arrays of shape (points, devices).

    ``OperatingPoints.of`` checks the arrays. A device with fewer points than others has infinite joules at the rest.

    Args:
        joules_per_step: One local step, besides its samples.
        seconds_per_step: One local step, besides its samples.
        joules_per_sample: Each sample of a batch.
        seconds_per_sample: Each sample of a batch.
    """

    joules_per_step: FloatArray
    seconds_per_step: FloatArray
    joules_per_sample: FloatArray
    seconds_per_sample: FloatArray

    @classmethod
    def of(
        cls,
        joules_per_step: ArrayLike,
        seconds_per_step: ArrayLike,
        joules_per_sample: ArrayLike = 0.0,
        seconds_per_sample: ArrayLike = 0.0,
    ) -> "OperatingPoints":
        """Check the arrays: (points, devices), at least one point of every device."""
        given = [joules_per_step, seconds_per_step, joules_per_sample, seconds_per_sample]
        try:
            arrays = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in given))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"operating points must be arrays of shape (points, devices) ({error})") from error
        if arrays[0].ndim != 2 or not 1 <= arrays[0].shape[0] <= MAX_POINTS:
            raise InvalidInputError(
                f"operating points must have the shape (points, devices), with 1 to {MAX_POINTS} points, "
                f"got {arrays[0].shape}"
            )
        joules = arrays[0]
        there = np.isfinite(joules)
        if not there.any(axis=0).all():
            raise InvalidInputError(
                f"every device must have an operating point, got none of device {int(np.argmin(there.any(axis=0)))}"
            )
        for name, array in zip(cls.__dataclass_fields__, arrays, strict=True):
            require_array(f"operating points: {name}", array[there])
        return cls(joules, *(np.where(there, array, 0.0) for array in arrays[1:]))

    @property
    def count(self) -> int:
        """Largest number of points of a device."""
        return int(self.joules_per_step.shape[0])

    def with_batch(self, batch_size: int) -> "OperatingPoints":
        """Return the points with the samples of a batch in each step."""
        nothing = np.zeros_like(self.joules_per_step)
        return OperatingPoints(
            self.joules_per_step + batch_size * self.joules_per_sample,
            self.seconds_per_step + batch_size * self.seconds_per_sample,
            nothing,
            nothing,
        )

    def taking_part(self, fraction: float) -> "OperatingPoints":
        """Return the points with the mean joules of devices that take part in this fraction of all rounds."""
        joules = {name: getattr(self, name) * fraction for name in ("joules_per_step", "joules_per_sample")}
        return replace(self, **joules)

    def cheapest(self, batch_size: float = 0.0) -> IntArray:
        """Return the point of each device with the least joules of a step, the fastest of equals."""
        joules = self.joules_per_step + batch_size * self.joules_per_sample
        seconds = self.seconds_per_step + batch_size * self.seconds_per_sample
        least = joules.min(axis=0)
        return np.argmin(np.where(joules == least, seconds, np.inf), axis=0)

    def at(self, chosen: IntArray) -> dict[str, FloatArray]:
        """Return the four costs at the chosen point of each device, as keyword arguments of ``Fleet``."""
        columns = np.arange(self.joules_per_step.shape[1])
        return {name: getattr(self, name)[chosen, columns] for name in self.__dataclass_fields__}
