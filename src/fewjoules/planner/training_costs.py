"""What a choice of H and sparsity costs over the whole training."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.provenance import COMPUTE_KINDS, RADIO_KINDS, Codes, joules_by_mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs of a choice of H and sparsity over the whole training."""

    rounds: float
    radio_joules: float
    compute_joules: float
    seconds: float | None
    joules: Mapping[str, Mapping[str, float]]  # by kind, and by where they come from

    @classmethod
    def of(
        cls, rounds: float, joules: Mapping[str, FloatArray], seconds: float | None, marks: Mapping[str, Codes]
    ) -> "Costs":
        """Sum rounds that each cost every device these ``joules`` by kind, and take these ``seconds``."""
        return cls(
            rounds=rounds,
            radio_joules=rounds * sum(float(np.sum(joules[kind])) for kind in RADIO_KINDS),
            compute_joules=rounds * sum(float(np.sum(joules[kind])) for kind in COMPUTE_KINDS),
            seconds=None if seconds is None else rounds * seconds,
            joules={
                kind: {mark: rounds * part for mark, part in joules_by_mark(per_round, marks[kind]).items()}
                for kind, per_round in joules.items()
                if np.any(per_round)
            },
        )

    @property
    def energy_joules(self) -> float:
        """Joules of the whole training, objective (27) of [LI21]."""
        return self.radio_joules + self.compute_joules


def expected_slowest(seconds: FloatArray, participants: int) -> float:
    """Return the mean of the largest of ``participants`` entries that are drawn uniformly without replacement.

    The i-th smallest of N is the largest of n with probability C(i-1, n-1) / C(N, n), which is n/N for i = N and
    shrinks by (i - n) / (i - 1) from i to i - 1.
    """
    rising = np.sort(seconds)
    places = np.arange(rising.size, participants, -1)
    shrinking = np.concatenate([[1.0], np.cumprod((places - participants) / (places - 1.0))])
    chances = participants / rising.size * shrinking
    return float(chances @ rising[participants - 1 :][::-1])
