"""Interface of the code that runs a round: clients on the processor, on a GPU, or on remote devices."""

from collections.abc import Callable
from typing import Protocol

from fewjoules.engine.algorithm.round import RoundPlan, RoundResult
from fewjoules.engine.algorithm.state import ClientState, ServerState
from fewjoules.engine.store.client_store import ClientTable


class Backend(Protocol):
    """Runs the clients of a federation and stores their states between rounds.

    A backend may compute a client's round in its own way, but uploads and client states must equal those of
    ``client_round``; tests/engine/test_contract.py checks every backend. The server's state is never changed.
    ``sends_changes`` tells whether clients are sent the last change of the weights, which a checkpoint must then hold;
    ``keeps_clients`` whether the backend has the clients' states, so that they can go back to earlier ones.
    """

    sends_changes: bool
    keeps_clients: bool

    def prepare(self, plan: RoundPlan) -> None:
        """Prepare a later round while the current one runs. ``plan.accepted`` is not known yet."""

    def run(self, state: ServerState, plan: RoundPlan, meanwhile: Callable[[], None]) -> RoundResult:
        """Run one round from this state; ``meanwhile`` is independent work to overlap with it."""

    def client_state(self, client: int) -> ClientState | None:
        """State of a client; None before it first took part."""

    def save(self) -> ClientTable:
        """Return the states of all clients, which later rounds do not change; empty where clients store them."""

    def restore(self, table: ClientTable) -> None:
        """Restore the client states that ``save`` returned."""

    def hold(self) -> None:
        """Hold the states of now until the next call, so that ``take_back`` can return to them."""

    def take_back(self) -> bool:
        """Return to the states that ``hold`` has held; False if that is not possible."""

    def close(self) -> None:
        """Release threads and memory."""
