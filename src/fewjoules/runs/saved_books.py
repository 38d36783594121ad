"""What a checkpoint holds of the books by which participants are drawn: the time, and what each device has spent."""

from typing import Any

import torch

from fewjoules.engine.algorithm.saved import SavedTensor
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.sampler import Books
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.runs.saved_state import Expected, Tensors

_SPENT = "spent_joules"


def books_tensors(simulator: Coordinator) -> dict[str, SavedTensor]:
    """Return the joules that each device has spent by name; nothing where no draw depends on them."""
    books = simulator.sampler.books
    return {} if books is None else {_SPENT: SavedTensor.of(torch.from_numpy(books.spent_joules))}


def expected_books(simulator: Coordinator) -> Expected:
    """Return the type and shape of the tensors that the run must have."""
    if simulator.sampler.books is None:
        return {}
    return {_SPENT: (torch.float64, [(simulator.options.clients,)])}


def books_from(clock: Any, tensors: Tensors, simulator: Coordinator) -> Books | None:
    """Return the books of which a checkpoint holds this clock and these tensors."""
    if simulator.sampler.books is None:
        if clock is not None:
            raise InvalidInputError("clock must be null where participants do not depend on it")
        return None
    time = require_number("clock", float.fromhex(clock), low=0.0)
    return Books(time, tensors[_SPENT].numpy().copy())
