"""What runs a round: clients on the processor, on a GPU, or on devices elsewhere."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from fewjoules.engine.algorithm.round import RoundPlan, RoundResult
from fewjoules.engine.algorithm.state import ClientState, ServerState


class Backend(Protocol):
    """Runs the clients of a federation and keeps what they keep.

    A backend may compute a client's round in its own way, but what it delivers and what its clients keep are those of
    ``client_round``: tests/engine/test_contract.py holds every backend to it. The server's state is never changed.
    """

    def prepare(self, plan: RoundPlan) -> None:
        """Get ready what can be for a round to come; called while another one runs. ``accepted`` is not known yet."""

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Run one round from this state; ``meanwhile`` is work that need not wait for it."""

    def client_state(self, client: int) -> ClientState | None:
        """What a client keeps; None before it first took part."""

    def save(self) -> dict[str, torch.Tensor]:
        """What all clients keep, as named tensors; empty where they keep it themselves."""

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up what ``save`` gave."""

    def close(self) -> None:
        """Let go of threads and memory."""
