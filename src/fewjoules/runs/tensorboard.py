"""Write the progress of a run as TensorBoard scalars."""

import math
from pathlib import Path
from types import TracebackType

from fewjoules.engine.loop import Report
from fewjoules.errors import InvalidInputError


class TensorBoardLog:
    """Writes one event file into a folder; call it after each round. The first call makes the file."""

    def __init__(self, folder: Path) -> None:
        """Refuse to start without the package tensorboard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InvalidInputError(
                "TensorBoard logging needs the package tensorboard; pip install 'fewjoules[tensorboard]'"
            ) from error
        self._open = lambda: SummaryWriter(str(folder))
        self._writer: SummaryWriter | None = None

    def __call__(self, report: Report) -> None:
        """Log the finite numbers of this round."""
        self._writer = self._writer or self._open()
        totals = report.totals
        scalars = {
            "train/loss": report.train_loss,
            "test/loss": report.test_loss,
            "test/accuracy": report.test_accuracy,
            "energy/total_joules": totals.joules,
            "energy/radio_joules": totals.radio_joules,
            "energy/compute_joules": totals.compute_joules,
            "time/total_seconds": totals.seconds,
            "uplink/total_bits": 8.0 * totals.payload_bytes,
        }
        for name, value in scalars.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, report.round)

    def __enter__(self) -> "TensorBoardLog":
        """Return the log itself."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        """Write the remaining events and close the file."""
        if self._writer is not None:
            self._writer.close()
