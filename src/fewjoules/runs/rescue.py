"""Keep what was trained when a run ends by an error: its rounds up to the last complete one."""

import contextlib
from collections.abc import Callable, Iterator

from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.ranks import Ranks, is_known_to_ranks
from fewjoules.runs.listening import CallbackFailedError

Rescue = Callable[[Exception], None]  # takes the error, when the run is as it was after its last complete round


@contextlib.contextmanager
def rescued(loop: TrainingLoop, ranks: Ranks, rescue: Rescue | None = None) -> Iterator[None]:
    """After an error in this block, return to the last complete round, save the run there if it has a folder.

    ``rescue`` is then told of the error. If any of this fails, as on a disk that is full, the first error is raised all
    the same, and the last checkpoint is what is kept. Of several ranks all do this, or none.
    """
    try:
        yield
    except Exception as raised:
        error = raised.error if isinstance(raised, CallbackFailedError) else raised
        with contextlib.suppress(Exception):
            if (ranks.size == 1 or is_known_to_ranks(error)) and _settled(loop, ranks):
                _save(loop)
                if rescue is not None:
                    rescue(error)
        raise


def _settled(loop: TrainingLoop, ranks: Ranks) -> bool:
    settled = False
    with contextlib.suppress(Exception):
        settled = loop.settle()
    return not ranks.any(not settled) and loop.simulator.state.round > 0


def _save(loop: TrainingLoop) -> None:
    if loop.saver is not None and loop.saver.saved_round != loop.simulator.state.round:
        loop.saver.save(loop)
