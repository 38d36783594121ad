"""The target of a run: a test accuracy, loss, perplexity or other metric at which it stops; runs are compared by it."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewjoules.errors import InvalidInputError, require_number, shown
from fewjoules.ledger.schema import METRICS, RowArray

NAMES = ("accuracy", "loss", "perplexity")
OWN = "target_metric"  # a metric of the user's own, with its direction: "f1 >= 0.8"
USUAL = tuple(f"target_{name}" for name in NAMES)  # of what is known of every run
OPTIONS = (*USUAL, OWN)  # of which a run has at most one
REASONS = ("target accuracy", "target loss", "target metric")  # why a run stopped
AT_LEAST, AT_MOST = ">=", "<="
_NBSP = "\u00a0"
_METRIC = r"[A-Za-z_][\w.@-]{0,63}"
_OWN = re.compile(rf"({_METRIC})\s*(>=|<=)\s*(\S+)")


@dataclass(frozen=True, slots=True)
class Target:
    """A test accuracy of at least ``value``, or a test loss or perplexity, exp(loss), of at most ``value``.

    ``direction`` is that of a metric of the user's own; the others have one by nature.
    """

    name: str
    value: float
    direction: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Target | None":
        """Return the target among options by their names; None if there is none."""
        found = [cls(name, float(given[f"target_{name}"])) for name in NAMES if given.get(f"target_{name}") is not None]
        found += [cls.parse(given[OWN])] if given.get(OWN) is not None else []
        return found[0] if found else None

    @classmethod
    def parse(cls, text: Any) -> "Target":
        """Return the target of a metric of the user's own, such as "f1 >= 0.8"."""
        match = _OWN.fullmatch(text) if isinstance(text, str) else None
        try:
            value = float(match[3]) if match is not None else math.nan
        except ValueError:
            value = math.nan
        if match is None or not math.isfinite(value):
            raise InvalidInputError(
                f"{OWN} must be a metric, >= or <=, and a number, such as 'f1 >= 0.8', got {shown(text)}"
            )
        return cls(match[1], value, match[2])

    @property
    def option(self) -> dict[str, Any]:
        """The option of a training that has this target."""
        if self.direction is None:
            return {f"target_{self.name}": self.value}
        return {OWN: f"{self.name} {self.direction} {self.value!r}"}

    @property
    def rises(self) -> bool:
        """Whether more is better."""
        return self.name == "accuracy" if self.direction is None else self.direction == AT_LEAST

    @property
    def reason(self) -> str:
        """The reason to stop at this target."""
        return REASONS[2] if self.direction is not None else REASONS[0 if self.rises else 1]

    @property
    def column(self) -> str:
        """The column of the metrics that tells whether it is met."""
        if self.direction is not None:
            return f"test_{self.name}"
        return "test_accuracy" if self.rises else "test_loss"

    @property
    def limit(self) -> float:
        """The value of that column at which the target is met."""
        return math.log(self.value) if self.name == "perplexity" and self.direction is None else self.value

    def is_met(self, test_loss: float, test_accuracy: float, own: Mapping[str, float] | None = None) -> bool:
        """Whether an evaluation, with ``own`` metrics by name, meets the target; one that is unknown does not."""
        if self.direction is not None:
            measured = (own or {}).get(self.name, math.nan)
        else:
            measured = test_accuracy if self.rises else test_loss
        return measured >= self.limit if self.rises else measured <= self.limit

    def first_row(self, metrics: RowArray) -> int | None:
        """Index of the first row that met the target, or None."""
        if self.column not in (metrics.dtype.names or ()):
            return None
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
        if self.direction is not None:
            return f"{self.name} {measured:.4g}"
        if self.rises:
            return percent(measured)
        if self.name == "perplexity":
            return f"perplexity {math.exp(measured):.4g}" if measured < 700.0 else "an endless perplexity"
        return f"loss {measured:.4g}"


def target_options(target: Any, metrics: Iterable[str]) -> dict[str, Any]:
    """Return the option for a target as users write it: a number, an accuracy, or a metric by name.

    A metric is one of accuracy, loss and perplexity, which know their direction, or one of ``metrics``: {"f1": 0.8} is
    reached from below, {"error": "<= 0.1"} from above.
    """
    if target is None:
        return {}
    own = tuple(metrics)
    given = target if isinstance(target, Mapping) else {"accuracy": target}
    if len(given) != 1 or not set(given) <= {*NAMES, *own}:
        raise InvalidInputError(
            f"target must be an accuracy, or a mapping of one of {', '.join((*NAMES, *own))} to a number, "
            f"got {shown(target)}"
        )
    ((name, value),) = given.items()
    if name in NAMES:
        low, high = {"accuracy": (0.0, 1.0), "perplexity": (1.0, math.inf)}.get(name, (0.0, math.inf))
        return {f"target_{name}": require_number(f"target {name}", value, low=low, high=high, above=True)}
    if isinstance(value, str):
        return Target.parse(f"{name} {value}").option
    return Target(name, require_number(f"target {name}", value, low=-math.inf), AT_LEAST).option


def require_metric_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Return names of metrics of the user's own, which become columns test_<name>; refuse unclear ones."""
    found = tuple(names)
    taken = {column.name.removeprefix("test_") for column in METRICS.columns} | {*NAMES}
    for name in found:
        if not isinstance(name, str) or not re.fullmatch(_METRIC, name) or name in taken:
            raise InvalidInputError(
                f"the name of a metric must be letters, digits or any of _ . @ -, begin with a letter, and be none of "
                f"{', '.join(NAMES)}, got {shown(name)}"
            )
    return found


def common_target(targets: Iterable[Target | None]) -> Target | None:
    """Return the target that all share, if they do."""
    found = set(targets)
    return found.pop() if len(found) == 1 else None


def percent(share: float) -> str:
    """Format a share in percent."""
    return f"{100.0 * share:.4g}{_NBSP}%"
