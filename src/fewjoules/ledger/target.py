"""The target of a run: a test accuracy, loss or perplexity at which it stops, and to which runs are compared."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewjoules.ledger.schema import RowArray

NAMES = ("accuracy", "loss", "perplexity")
OPTIONS = tuple(f"target_{name}" for name in NAMES)  # of which a run has at most one
REASONS = ("target accuracy", "target loss")  # why a run stopped
_NBSP = "\u00a0"


@dataclass(frozen=True, slots=True)
class Target:
    """A test accuracy of at least ``value``, or a test loss or perplexity, exp(loss), of at most ``value``."""

    name: str
    value: float

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Target | None":
        """Return the target among options by their names; None if there is none."""
        found = [cls(name, float(given[f"target_{name}"])) for name in NAMES if given.get(f"target_{name}") is not None]
        return found[0] if found else None

    @property
    def rises(self) -> bool:
        """Whether more is better."""
        return self.name == "accuracy"

    @property
    def reason(self) -> str:
        """The reason to stop at this target."""
        return REASONS[0 if self.rises else 1]

    @property
    def column(self) -> str:
        """The column of the metrics that tells whether it is met."""
        return "test_accuracy" if self.rises else "test_loss"

    @property
    def limit(self) -> float:
        """The value of that column at which the target is met."""
        return math.log(self.value) if self.name == "perplexity" else self.value

    def is_met(self, test_loss: float, test_accuracy: float) -> bool:
        """Whether an evaluation meets the target; one that is unknown does not."""
        return test_accuracy >= self.limit if self.rises else test_loss <= self.limit

    def first_row(self, metrics: RowArray) -> int | None:
        """Index of the first row that met the target, or None."""
        values = metrics[self.column]
        met = np.flatnonzero(values >= self.limit if self.rises else values <= self.limit)
        return int(met[0]) if met.size else None

    def distance(self, measured: float | None) -> float:
        """How far a value of the column is from the target; infinite if it is unknown."""
        if measured is None or math.isnan(measured):
            return math.inf
        return self.limit - measured if self.rises else measured - self.limit

    def __str__(self) -> str:
        """Name the target in a sentence: "95 %", "loss 0.3" or "perplexity 12"."""
        return self.said(self.limit)

    def said(self, measured: float | None) -> str:
        """Return a value of the column in the words of the target."""
        if measured is None or math.isnan(measured):
            return f"an unknown {self.name}"
        if self.rises:
            return percent(measured)
        if self.name == "perplexity":
            return f"perplexity {math.exp(measured):.4g}" if measured < 700.0 else "an endless perplexity"
        return f"loss {measured:.4g}"


def common_target(targets: Iterable[Target | None]) -> Target | None:
    """Return the target that all share, if they do."""
    found = set(targets)
    return found.pop() if len(found) == 1 else None


def percent(share: float) -> str:
    """Format a share in percent."""
    return f"{100.0 * share:.4g}{_NBSP}%"
