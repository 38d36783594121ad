"""The server's side of a training, whatever runs its clients: plans, rounds, accounts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import FloatArray, IntArray
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.backend import Backend
from fewjoules.engine.algorithm.client import dense_bytes
from fewjoules.engine.algorithm.downlink import Downlink
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import RoundPlan, kept_entries, plan_round
from fewjoules.engine.algorithm.server import server_step
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.models.layout import ModelParts
from fewjoules.ledger.schema import RowArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished round: its ledger rows, mean loss and accuracy of its batches, and its largest batch."""

    rows: RowArray
    train_loss: float
    train_accuracy: float
    batch_size: int
    learning_rate: float


class Coordinator:
    """Runs rounds one after the other; ``state`` and the clients' states in ``backend`` carry over between them."""

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
        self.backend, self.state, self.parts = backend, state, parts
        self.parameters, self.buffers = parts.parameters, parts.buffers
        self._kept = kept_entries(options, state.weights.numel())
        self._ahead: RoundPlan | None = None

    def start_round(self, meanwhile: Callable[[], None] = lambda: None) -> Callable[[], Outcome]:
        """Run the next round; the returned function waits for its payload sizes and gives the outcome.

        ``meanwhile`` is called while the local steps run, if they run elsewhere than on this processor.
        """
        plan = self._plan(self.state.round + 1)
        before = self.state

        def beside() -> None:
            if plan.number < self.options.rounds:
                self._ahead = self._plan(plan.number + 1)
                self.backend.prepare(self._ahead)
            meanwhile()

        result = self.backend.run(before, plan, beside)
        downlink = self._downlink_bytes(before, plan) if result.downlink_bytes is None else result.downlink_bytes
        self.state = server_step(before, plan, result)

        def outcome() -> Outcome:
            sent = result.uploads()
            return Outcome(
                rows=self.accounts.rows(plan, result.delivered, sent, downlink),
                train_loss=_mean(sent.losses),
                train_accuracy=_mean(sent.correct),
                batch_size=int(plan.batch_sizes.max()),
                learning_rate=float(plan.rates[-1]),
            )

        return outcome

    def close(self) -> None:
        """Release what the backend holds."""
        self.backend.close()

    def _plan(self, number: int) -> RoundPlan:
        """Return the plan of a round, made ahead or now, with the rounds that the server accepted so far."""
        ahead = self._ahead
        if ahead is not None and ahead.number == number:
            return replace(ahead, accepted=self.state.accepted[ahead.participants])
        return plan_round(self.options, self._kept, self.sizes, self.state.accepted, number)

    def _downlink_bytes(self, state: ServerState, plan: RoundPlan) -> IntArray:
        """Bytes sent to each participant: what it lacks of the weights, and the buffers."""
        if not self.accounts.charges_downlink:
            return np.zeros(plan.participants.size, dtype=np.int64)
        downlink, buffers = Downlink(state, self.options), dense_bytes(state.buffers.cpu().numpy())
        held = state.held_rounds(plan.participants).tolist()
        return np.array([downlink.message(number).size_bytes + buffers for number in held], dtype=np.int64)


def _mean(values: FloatArray) -> float:
    """Return the mean over the steps of all clients that told theirs; NaN where nobody did."""
    told = ~np.isnan(values).all(axis=0)
    return float(values[:, told].mean(dtype=np.float64)) if told.any() else float("nan")
