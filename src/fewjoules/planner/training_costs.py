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
        cls, rounds: float, joules: Mapping[str, FloatArray], seconds: FloatArray | None, marks: Mapping[str, Codes]
    ) -> "Costs":
        """Sum rounds that each cost every device these ``joules`` by kind and these ``seconds``."""
        return cls(
            rounds=rounds,
            radio_joules=rounds * sum(float(np.sum(joules[kind])) for kind in RADIO_KINDS),
            compute_joules=rounds * sum(float(np.sum(joules[kind])) for kind in COMPUTE_KINDS),
            seconds=None if seconds is None else rounds * float(seconds.max()),
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
