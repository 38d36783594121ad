"""Save a run at intervals in its folder, take it up again, and check that its tables are complete."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fewjoules.engine.algorithm.participation import participants_per_round
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.store.row_file import RowFile
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import RowLog, require_parts
from fewjoules.ledger.schema import LEDGER, TableSchema
from fewjoules.runs.checkpoint import gathered_states, load_checkpoint, save_checkpoint, summarised
from fewjoules.runs.files import CHECKPOINT
from fewjoules.runs.interval import CheckpointInterval


class Checkpoints:
    """Saves the loop at intervals; logs are flushed first, so that they are never behind the checkpoint."""

    def __init__(
        self, folder: Path, simulator: Coordinator, identity: Mapping[str, Any], interval: CheckpointInterval
    ) -> None:
        """Save below ``folder``; a checkpoint is taken up only by a run of the same ``identity``."""
        self.folder, self.simulator, self._interval = folder, simulator, interval
        self.identity = summarised(identity)
        self.path = folder / CHECKPOINT
        self._rows: RowFile | None = None
        self.saved_round: int | None = None

    @property
    def _tables(self) -> tuple[TableSchema, TableSchema]:
        return LEDGER, self.simulator.metrics_table

    def is_due(self) -> bool:
        """Whether it is time to save."""
        ranks = self.simulator.ranks
        return ranks.of_first(ranks.is_first and self._interval.is_due())

    def save(self, loop: TrainingLoop) -> None:
        """Save the run, its logs first; of several ranks the first one does, and gets from the others what it needs."""
        number = loop.simulator.state.round
        if not self.simulator.ranks.is_first:
            gathered_states(loop)
            self.saved_round = number
            return
        with self._interval.saving():
            loop.ledger.flush(number)
            loop.metrics.flush(number)
            self._rows = save_checkpoint(self.path, loop, self.identity, self._rows)
        self.saved_round = number

    def new_loop(self, *, fresh: bool) -> TrainingLoop:
        """Return a loop at round 0; a run that was killed before its first checkpoint starts again."""
        ledger, metrics = (
            RowLog(self.folder / table.name, table) if fresh else RowLog.resume(self.folder / table.name, table, 0, {})
            for table in self._tables
        )
        return TrainingLoop(self.simulator, ledger, metrics)

    def load(self) -> dict[str, Any]:
        """Put the simulator into the saved state, and refuse parts of the logs that are missing or damaged."""
        saved = load_checkpoint(self.path, self.identity, self.simulator)
        self._rows = saved.pop("rows")
        self.saved_round = self.simulator.state.round
        for table in self._tables:
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
            RowLog.resume(self.folder / table.name, table, number, parts[table.name]) for table in self._tables
        )
        return TrainingLoop(self.simulator, ledger, metrics, **saved)

    def loop_of_other_rank(self, saved: dict[str, Any] | None) -> TrainingLoop:
        """Return the loop of a rank that writes nothing, new or from what ``load`` returned."""
        table = self.simulator.metrics_table
        ledger = RowLog(None, LEDGER, keeps_rows=False)
        metrics = RowLog.copied(self.folder / table.name, table, self.simulator.state.round)
        given = {name: value for name, value in (saved or {}).items() if name != "parts"}
        loop = TrainingLoop(self.simulator, ledger, metrics, **given)
        loop.saver = self
        return loop


def require_every_round(folder: Path, loop: TrainingLoop) -> None:
    """Refuse to finish a run whose tables do not hold each round once: something else has written to its folder."""
    rounds = np.arange(1, loop.simulator.state.round + 1)
    participants, fewer = participants_per_round(loop.simulator.options), loop.simulator.sampler.books is not None
    for log, rows_per_round, at_most in ((loop.metrics, 1, False), (loop.ledger, participants, fewer)):
        found = np.concatenate([np.zeros(0, dtype=np.int64), *(block["round"] for block in log.blocks())])
        numbers, counts = np.unique(found, return_counts=True)
        right = np.all(counts <= rows_per_round) if at_most else np.all(counts == rows_per_round)
        if not right or not np.array_equal(numbers, rounds) or np.any(np.diff(found) < 0):
            raise InvalidInputError(
                f"{folder}: the {log.table.name} must have {'at most ' if at_most else ''}{rows_per_round} rows for "
                f"each of {rounds.size} rounds, got {found.size} rows; another process may have written to this folder"
            )
