"""How partial participation lengthens training.

With n of N devices in each round, training takes

    K(n) = K(N) (1 + v (N/n - 1))

rounds. N/n - 1 is N times the variance 1/n - 1/N that a uniform draw without replacement adds to the mean of N updates.
Measured v: results/participation.txt, docs/model.md.
"""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from fewjoules.arrays import FloatArray
from fewjoules.convergence.rounds import RoundsModel
from fewjoules.errors import require_number

USUAL_PARTICIPATION_WEIGHT = 0.1


def rounds_growth(participation: float, weight: float = USUAL_PARTICIPATION_WEIGHT) -> float:
    """Return K(n) / K(N) for a fraction n / N of the devices and v = ``weight``."""
    return 1.0 + weight * (1.0 / participation - 1.0)


@dataclass(frozen=True, slots=True)
class PartialRounds:
    """Another rounds model with ``growth`` times its rounds."""

    model: RoundsModel
    growth: float

    def __post_init__(self) -> None:
        """Refuse a training without rounds."""
        require_number("growth", self.growth, low=0.0, above=True)

    @property
    def exponent(self) -> float:
        """That of the model."""
        return self.model.exponent

    def rounds(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return K(s, H), which is increasing and concave in s like that of the model."""
        return self.growth * self.model.rounds(mean_power, local_steps, devices)

    def slope(self, mean_power: ArrayLike, local_steps: ArrayLike, devices: int) -> FloatArray:
        """Return dK/ds."""
        return self.growth * self.model.slope(mean_power, local_steps, devices)
