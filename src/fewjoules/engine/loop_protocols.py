"""Who takes part in the loop of a run: the one who saves it, and the one who hears of it."""

from typing import TYPE_CHECKING, Protocol

from fewjoules.engine.report import Report

if TYPE_CHECKING:
    from fewjoules.engine.loop import TrainingLoop


class Saver(Protocol):
    """Saves the state of a run so that it can be resumed after a kill."""

    saved_round: int | None  # the last round that was saved

    def is_due(self) -> bool:
        """Whether it is time to save."""

    def save(self, loop: "TrainingLoop") -> None:
        """Save the run; a later kill loses none of the rounds so far."""


class Listener(Protocol):
    """Hears of a run as it goes on, and may ask it to end.

    If ``holds_rounds``, every round is recorded and heard of before the next one starts: the state of the run is then
    that after the round.
    """

    holds_rounds: bool

    def round_ended(self, report: Report) -> None:
        """Hear that a round was recorded."""

    def evaluated(self, report: Report) -> None:
        """Hear that the last round was evaluated after it was heard of, since the run ends."""

    def saved(self) -> None:
        """Hear that the run was saved."""

    def asks_to_end(self) -> bool:
        """Whether the run shall end after this round."""
