"""The guard of a run: where training blows up, it returns to its last good state and goes on with half the step size.

A round blows up with a number that is not finite, or if its mean training loss is above ``BLOW_UP`` times the loss of
the first model, or as far above it where that is below 0. Where rounds have fewer than ``SAMPLES`` samples, means over
about so many are compared: a lucky first batch then means little. Every ten rounds, or every tenth of all rounds so far
if that is more, the guard keeps a snapshot, unless the loss is above that of the first model. It returns to the one
before the latest, since what led to the blow-up may have begun before the latest. Rounds that are undone stay in the
ledger and keep their numbers.
"""

import math
import warnings
from dataclasses import dataclass, replace

from fewjoules.engine.algorithm.server import returned
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import Coordinator, Outcome
from fewjoules.engine.store.client_store import ClientTable
from fewjoules.errors import DivergedError, FewJoulesWarning

BLOW_UP = 3.0
SAMPLES = 100
MOST_RETURNS = 3
SNAPSHOT_ROUNDS = 10  # fewest rounds between two snapshots
_LATER_SHARE = 0.1  # of all rounds so far; as many lie between two snapshots of a long run


@dataclass(frozen=True, slots=True)
class Level:
    """Mean training losses by which blow-ups are judged, of the ``first`` model and ``now``, after so many samples."""

    first: float = math.nan
    now: float = math.nan
    samples: int = 0

    def after(self, start_loss: float, loss: float, samples: int) -> "Level":
        """Return the level after a round of so many samples, with these mean losses at its first and at all steps."""
        total = self.samples + samples
        if self.samples == 0:
            return Level(start_loss, loss, total)
        begun = self.samples < SAMPLES
        share = samples / total if begun else min(1.0, samples / SAMPLES)
        first = self.first + (start_loss - self.first) * share if begun else self.first
        return Level(first, self.now + (loss - self.now) * share, total)

    @property
    def blown_up(self) -> bool:
        """Whether training blew up."""
        return not math.isfinite(self.now) or (self.samples >= SAMPLES and self.now > self.most)

    @property
    def most(self) -> float:
        """The loss above which training has blown up."""
        return self.first + (BLOW_UP - 1.0) * abs(self.first)

    @property
    def healthy(self) -> bool:
        """Whether the state is worth keeping."""
        return self.now <= self.first


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state to which a run can return: the server's, what clients keep, and the loss by then."""

    state: ServerState
    clients: ClientTable
    level: Level

    @classmethod
    def of(cls, simulator: Coordinator, level: Level) -> "Snapshot":
        """Keep the state without copying it: nothing of it is changed in place."""
        state = simulator.state
        return cls(
            state=replace(state, broadcast=state.broadcast[:0], changed=state.changed[:0]),
            clients=simulator.backend.save(),
            level=level,
        )


@dataclass(slots=True)
class Guard:
    """Watches the losses of a run; ``good`` is the state to return to, ``latest`` the last one that was kept."""

    good: Snapshot
    latest: Snapshot
    level: Level = Level()
    kept_round: int = 0  # in which the latest was kept, or returned to

    @classmethod
    def at_start(cls, simulator: Coordinator) -> "Guard | None":
        """Return a guard that can return to the present state; None where clients cannot."""
        if not simulator.backend.keeps_clients:
            return None
        first = Snapshot.of(simulator, Level())
        return cls(first, first, kept_round=simulator.state.round)

    def is_due(self, number: int) -> bool:
        """Whether it is time to keep the state after a round, which must be recorded before the next one starts.

        Losses are not asked: whether they are known already may depend on a clock.
        """
        return number - self.kept_round >= max(SNAPSHOT_ROUNDS, _LATER_SHARE * number)

    def keep(self, simulator: Coordinator) -> None:
        """Keep the present state, whose round is recorded, if it is due and worth keeping."""
        if self.is_due(simulator.state.round) and self.level.healthy:
            self.good, self.latest = self.latest, Snapshot.of(simulator, self.level)
            self.kept_round = simulator.state.round

    def sees_blow_up(self, outcome: Outcome) -> bool:
        """Take note of the losses of a round; tell whether training blew up."""
        samples = int(outcome.rows["samples"].sum())
        self.level = self.level.after(outcome.start_loss, outcome.train_loss, samples)
        return self.level.blown_up

    def send_back(self, simulator: Coordinator, state: ServerState, error: DivergedError) -> None:
        """Return from ``state`` to the good one, or raise the error after too many returns."""
        before = state.returns
        if len(before) >= MOST_RETURNS:
            rounds = ", ".join(map(str, before))
            raise DivergedError(
                f"{error}; the guard had returned {len(before)} times, after rounds {rounds}"
            ) from error
        simulator.go_on_from(returned(state, self.good.state))
        simulator.backend.restore(self.good.clients)
        self.latest, self.level, self.kept_round = self.good, self.good.level, state.round
        warnings.warn(
            f"{error}; the guard returns to the model after round {self.good.state.round} and halves the step size "
            f"(return {len(before) + 1} of at most {MOST_RETURNS})",
            FewJoulesWarning,
            stacklevel=2,
        )
