"""Who takes part in a round, and how much each participant counts."""

from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream


@dataclass(frozen=True, slots=True)
class Cohort:
    """The participants of a round in increasing order, and by how much the update of each is multiplied in the mean.

    ``waited`` is how long the round had to wait for them, in seconds, or in rounds where times are unknown.
    """

    clients: IntArray
    shares: FloatArray
    waited: float = 0.0


def uniform_cohort(options: TrainingOptions, importance: FloatArray, number: int) -> Cohort:
    """Return the clients of round ``number``, drawn uniformly, weighted in proportion to their ``importance``."""
    clients = participants(options, number)
    return Cohort(clients, shares(importance, clients))


def importance_of(options: TrainingOptions, sizes: IntArray) -> FloatArray:
    """Return p_m of every client up to a factor; ``sizes`` holds the number of samples of each."""
    return sizes.astype(np.float64) if options.weighting == "samples" else np.ones(options.clients)


def participants(options: TrainingOptions, number: int) -> IntArray:
    """Return the clients that take part in round ``number``, in order: a uniform draw without replacement."""
    if options.participation == 1.0:
        return np.arange(options.clients)
    rng = stream(options.seed, "participation", number)
    return np.sort(rng.choice(options.clients, size=participants_per_round(options), replace=False))


def participants_per_round(options: TrainingOptions) -> int:
    """How many clients take part in each round; fewer where not so many can."""
    return participants_of(options.participation, options.clients)


def participants_of(participation: float, clients: int) -> int:
    """Return a fraction of the clients as a number of them, at least one."""
    return max(1, round(participation * clients))


def shares(weights: FloatArray, participants: IntArray) -> FloatArray:
    """Return p_m of the participants of a round: their weights, scaled to sum to one."""
    chosen = weights[participants]
    return chosen / chosen.sum()
