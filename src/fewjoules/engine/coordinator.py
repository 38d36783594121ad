"""The server's side of a training, whatever runs its clients: plans, rounds, accounts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.backend import Backend
from fewjoules.engine.algorithm.client import dense_bytes
from fewjoules.engine.algorithm.downlink import Downlink
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import Cohort
from fewjoules.engine.algorithm.round import Received, RoundPlan, Uploads, kept_entries, plan_round
from fewjoules.engine.algorithm.server import called_off, server_step
from fewjoules.engine.algorithm.state import NEVER, ServerState
from fewjoules.engine.models.layout import Layout, ModelParts
from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.sampler import Sampler
from fewjoules.engine.store.client_store import ClientTable
from fewjoules.errors import DivergedError
from fewjoules.ledger.schema import METRICS, RowArray

_FLOAT = 4  # bytes of a buffer's entry


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished round: its ledger rows, mean loss and accuracy of its batches, and its largest batch.

    ``start_loss`` is the mean loss of the first local steps, which is that of the model before the round. ``waited`` is
    how long the round had to wait for participants.
    """

    rows: RowArray
    start_loss: float
    train_loss: float
    train_accuracy: float
    batch_size: int
    learning_rate: float
    waited: float = 0.0


class CalledOffError(DivergedError):
    """A round that met a number which is not finite, and so changes nothing.

    ``outcome()`` is what was spent on it, ``state`` the state after it.
    """

    outcome: Callable[[], Outcome]
    state: ServerState

    def __init__(self, error: DivergedError, outcome: Callable[[], Outcome], state: ServerState) -> None:
        """Say what the error says."""
        super().__init__(str(error))
        self.outcome, self.state = outcome, state


class Coordinator:
    """Runs rounds one after the other; ``state`` and the clients' states in ``backend`` carry over between them.

    ``ranks`` are the processes that do so together.
    """

    ranks: Ranks = ALONE
    options: TrainingOptions
    sizes: IntArray
    accounts: Accounts
    total_samples: int
    backend: Backend
    state: ServerState
    parts: ModelParts
    parameters: Layout
    buffers: Layout
    sampler: Sampler

    def __init__(
        self,
        options: TrainingOptions,
        sizes: IntArray,
        accounts: Accounts,
        backend: Backend,
        state: ServerState,
        parts: ModelParts,
    ) -> None:
        """Start from ``state``; ``sizes`` holds the number of samples of each client, ``parts`` names the weights."""
        self.options, self.sizes, self.accounts = options, sizes, accounts
        self.total_samples = sizes.sum()
        self.backend, self.state, self.parts = backend, state, parts
        self.parameters, self.buffers = parts.parameters, parts.buffers
        self.metrics_table = METRICS
        self._kept = kept_entries(options, state.weights.numel())
        self._ahead: RoundPlan | None = None
        self.sampler = Sampler(options, sizes, accounts, _FLOAT * state.buffers.numel())
        self._next: tuple[int, Cohort | None] = (NEVER, None)
        self.holds_clients = False  # whether a round that was begun can be taken back, with what clients keep
        self._before: ServerState | None = None

    def start_round(self, meanwhile: Callable[[], None] = lambda: None) -> Callable[[], Outcome]:
        """Run the next round; the returned function waits for its payload sizes and gives the outcome.

        ``meanwhile`` is called while the local steps run, if they run elsewhere than on this processor. A number that
        is not finite raises ``CalledOffError``, here or in the returned function; ``meanwhile`` must not raise it.
        """
        plan = self._plan(self.state.round + 1)
        before = self._before = self.state
        if self.holds_clients:
            self.backend.hold()

        def beside() -> None:
            if plan.number < self.options.rounds and self.sampler.books is None:
                self._ahead = self._plan(plan.number + 1)
                self.backend.prepare(self._ahead)
            meanwhile()

        try:
            result = self.backend.run(before, plan, beside)
        except DivergedError as error:
            raise self._called_off(error, before, plan) from error
        received = self._received(before, plan) if result.received is None else result.received

        def outcome() -> Outcome:
            try:
                sent = result.uploads()
            except DivergedError as error:
                raise self._called_off(error, before, plan) from error
            return self._outcome(plan, result.delivered, sent, received)

        try:
            self.state = server_step(before, plan, result)
        except DivergedError as error:
            raise CalledOffError(error, outcome, called_off(before, plan)) from error
        return outcome

    def has_participants(self) -> bool:
        """Whether somebody can take part in the next round; the round before must have been booked."""
        return self._cohort(self.state.round + 1) is not None

    def go_on_from(self, state: ServerState) -> None:
        """Continue from another state; a plan made ahead for the present one is forgotten."""
        self.state, self._ahead, self._before = state, None, None

    @property
    def begun_round(self) -> int:
        """The round that was begun last and can be taken back, NEVER if there is none."""
        return NEVER if self._before is None else self._before.round + 1

    def take_back(self) -> bool:
        """Return to the state before the round that was begun last; False if that is not possible.

        Without ``holds_clients`` what clients keep is not taken back, so the run can be looked at, but not go on.
        """
        if self._before is None or (self.holds_clients and not self.backend.take_back()):
            return False
        self.go_on_from(self._before)
        return True

    def gathered(self, tables: Sequence[ClientTable]) -> Sequence[ClientTable]:
        """Return tables of what clients keep, for a checkpoint: those of this process are all."""
        return tables

    def own_rows(self, table: ClientTable) -> ClientTable:
        """Return what this process needs of a table in a checkpoint: all."""
        return table

    def close(self) -> None:
        """Release what the backend holds."""
        self.backend.close()

    def _plan(self, number: int) -> RoundPlan:
        """Return the plan of a round, made ahead or now, with the rounds that the server accepted so far."""
        ahead = self._ahead
        if ahead is not None and ahead.number == number:
            return replace(ahead, accepted=self.state.accepted[ahead.participants])
        scale, cohort = 0.5 ** len(self.state.returns), self._cohort(number)
        assert cohort is not None
        return plan_round(
            self.options, self._kept, self.sizes, self.state.accepted, number, step_scale=scale, cohort=cohort
        )

    def _cohort(self, number: int) -> Cohort | None:
        """Return who takes part in a round; None if nobody can."""
        if self._next[0] != number:
            self._next = (number, self.sampler.cohort(number))
        return self._next[1]

    def _outcome(self, plan: RoundPlan, delivered: Flags, sent: Uploads, received: Received) -> Outcome:
        entries = received.entries if self.accounts.charges_downlink else None
        return Outcome(
            rows=self.accounts.rows(plan, delivered, sent, received.payload_bytes, entries),
            start_loss=_mean(sent.losses[:1]),
            train_loss=_mean(sent.losses),
            train_accuracy=_mean(sent.correct),
            batch_size=int(plan.batch_sizes.max()),
            learning_rate=float(plan.rates[-1]),
            waited=plan.waited,
        )

    def _called_off(self, error: DivergedError, before: ServerState, plan: RoundPlan) -> CalledOffError:
        """Return the error of a round whose devices were sent the model, trained, and told a loss but no update."""

        def outcome() -> Outcome:
            nothing = Uploads.nothing(plan.batch_sizes.shape)
            return self._outcome(plan, nothing.written, nothing, self._received(before, plan))

        return CalledOffError(error, outcome, called_off(before, plan))

    def _received(self, state: ServerState, plan: RoundPlan) -> Received:
        """Return what each participant is sent, which is what it lacks of the weights, and the buffers."""
        if not self.accounts.charges_downlink:
            return Received.nothing(plan.participants.size)
        downlink, buffers = Downlink(state, self.options), dense_bytes(state.buffers.cpu().numpy())
        messages = [downlink.message(held) for held in state.held_rounds(plan.participants).tolist()]
        return Received(
            payload_bytes=np.array([message.size_bytes + buffers for message in messages], dtype=np.int64),
            entries=np.array([message.update.count for message in messages], dtype=np.int64),
        )


def _mean(values: FloatArray) -> float:
    """Return the mean over the steps of all clients that told theirs; NaN where nobody did."""
    told = ~np.isnan(values).all(axis=0)
    return float(values[:, told].mean(dtype=np.float64)) if told.any() else float("nan")
