"""Save a run at intervals in its folder, take it up again, and check that its tables are complete."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.engine.algorithm.round import participants_per_round
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.loop import TrainingLoop
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import RowLog, require_parts
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint
from fewjoules.runs.files import CHECKPOINT
from fewjoules.runs.interval import CheckpointInterval


class Checkpoints:
    """Saves the loop at intervals; logs are flushed first, so that they are never behind the checkpoint."""

    def __init__(
        self, folder: Path, simulator: Coordinator, identity: Mapping[str, Any], interval: CheckpointInterval
    ) -> None:
        """Save below ``folder``; a checkpoint is taken up only by a run of the same ``identity``."""
        self.folder, self.simulator, self.identity, self._interval = folder, simulator, identity, interval
        self.path = folder / CHECKPOINT

    def is_due(self) -> bool:
        """Whether it is time to save."""
        return self._interval.is_due()

    def save(self, loop: TrainingLoop) -> None:
        """Save the run, its logs first."""
        number = loop.simulator.state.round
        with self._interval.saving():
            loop.ledger.flush(number)
            loop.metrics.flush(number)
            save_checkpoint(self.path, loop, self.identity)

    def new_loop(self, *, fresh: bool) -> TrainingLoop:
        """Return a loop at round 0; a run that was killed before its first checkpoint starts again."""
        logs = {table.name: self.folder / table.name for table in (LEDGER, METRICS)}
        if fresh:
            return TrainingLoop(self.simulator, RowLog(logs["ledger"], LEDGER), RowLog(logs["metrics"], METRICS))
        return TrainingLoop(
            self.simulator, RowLog.resume(logs["ledger"], LEDGER, 0, {}), RowLog.resume(logs["metrics"], METRICS, 0, {})
        )

    def load(self) -> dict[str, Any]:
        """Put the simulator into the saved state, and refuse parts of the logs that are missing or damaged."""
        saved = load_checkpoint(self.path, self.identity, self.simulator)
        for table in (LEDGER, METRICS):
            try:
                require_parts(self.folder / table.name, self.simulator.state.round, saved["parts"][table.name])
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{error}; the run cannot go on, but fewjoules export {self.folder} writes the model of round "
                    f"{self.simulator.state.round}"
                ) from error
        return saved

    def resumed_loop(self, saved: dict[str, Any]) -> TrainingLoop:
        """Return a loop that goes on from what ``load`` returned."""
        parts = saved.pop("parts")
        number = self.simulator.state.round
        ledger, metrics = (
            RowLog.resume(self.folder / table.name, table, number, parts[table.name]) for table in (LEDGER, METRICS)
        )
        return TrainingLoop(self.simulator, ledger, metrics, **saved)


def require_every_round(folder: Path, loop: TrainingLoop) -> None:
    """Refuse to finish a run whose tables do not hold each round once: something else has written to its folder."""
    rounds = np.arange(1, loop.simulator.state.round + 1)
    participants = participants_per_round(loop.simulator.options)
    for log, rows_per_round in ((loop.metrics, 1), (loop.ledger, participants)):
        found = np.concatenate([np.zeros(0, dtype=np.int64), *(block["round"] for block in log.blocks())])
        if not np.array_equal(found, np.repeat(rounds, rows_per_round)):
            raise InvalidInputError(
                f"{folder}: the {log.table.name} must have {rows_per_round} rows for each of {rounds.size} rounds, "
                f"got {found.size} rows; another process may have written to this folder"
            )
