"""What is told of a run after a round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fewjoules.engine.totals import Totals


@dataclass(frozen=True, slots=True)
class Report:
    """Progress after a round; test loss and accuracy are those of the last evaluation (NaN before the first)."""

    round: int
    train_loss: float
    test_loss: float
    test_accuracy: float
    totals: Totals
    evaluated: bool = False  # whether this round was
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the user's own, at the last evaluation
