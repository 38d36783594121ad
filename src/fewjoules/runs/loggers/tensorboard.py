"""Write the progress of a run as TensorBoard scalars."""

from pathlib import Path
from typing import TYPE_CHECKING

from fewjoules.extras import require_extra
from fewjoules.runs.callbacks import Callback, OngoingRun
from fewjoules.runs.loggers.scalars import scalars_of

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Callback):
    """Write an event file for TensorBoard; needs the extra ``tensorboard``.

    A resumed run replaces the rounds that were lost.

    Args:
        folder: Where the file goes; the first round makes it.
    """

    holds_rounds: bool = False
    on_every_rank: bool = False
    folder: Path

    def __init__(self, folder: str | Path) -> None:
        """Refuse to start without the package tensorboard."""
        require_extra("tensorboard", "logging for TensorBoard")
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None
        self._evaluated = False

    def on_evaluation_end(self, run: OngoingRun) -> None:
        """Take note that this round has metrics of the test set."""
        self._evaluated = True

    def on_round_end(self, run: OngoingRun) -> None:
        """Write the finite numbers of this round."""
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(str(self.folder), purge_step=run.round if run.round > 1 else None)
        for name, value in scalars_of(run, evaluated=self._evaluated).items():
            self._writer.add_scalar(name, value, run.round)
        self._evaluated = False

    def on_train_end(self, run: OngoingRun) -> None:
        """Write the remaining events and close the file."""
        self._close()

    def on_exception(self, run: OngoingRun, error: BaseException) -> None:
        """Write the remaining events and close the file."""
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
