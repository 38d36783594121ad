"""Log the progress of a run to Weights & Biases."""

from typing import Any

from fewjoules.extras import require_extra
from fewjoules.runs.callbacks import Callback, OngoingRun
from fewjoules.runs.loggers.scalars import scalars_of

LONGEST_LIST = 100  # of an option in the configuration; the options of more clients are left out


class WandB(Callback):
    """Log each round to Weights & Biases, with the options of the training; needs the extra ``wandb``.

    Args:
        project: Name of the project there.
        **init: Other arguments of ``wandb.init``, such as ``name``, ``mode="offline"``, or ``id`` and
            ``resume="allow"`` to continue the same run there after a resume.
    """

    holds_rounds: bool = False
    on_every_rank: bool = False

    def __init__(self, project: str | None = None, **init: Any) -> None:
        """Refuse to start without the package wandb; nothing is logged yet."""
        require_extra("wandb", "logging to Weights & Biases")
        import wandb

        self._init, self._start = {"project": project, **init}, wandb.init
        self._run: Any = None
        self._evaluated = False

    def on_train_start(self, run: OngoingRun) -> None:
        """Start the run there."""
        options = run.options.to_dict()
        short = {name: value for name, value in options.items() if not _is_long(value)}
        config = {"clients": run.options.clients, **short, **self._init.get("config", {})}
        self._run = self._start(**self._init | {"config": config})

    def on_evaluation_end(self, run: OngoingRun) -> None:
        """Take note that this round has metrics of the test set."""
        self._evaluated = True

    def on_round_end(self, run: OngoingRun) -> None:
        """Log the finite numbers of this round."""
        self._run.log(scalars_of(run, evaluated=self._evaluated), step=run.round)
        self._evaluated = False

    def on_train_end(self, run: OngoingRun) -> None:
        """Finish the run there, with the reason why training stopped."""
        self._run.summary["stop_reason"] = run.stop_reason
        self._finish(0)

    def on_exception(self, run: OngoingRun, error: BaseException) -> None:
        """Finish the run there as a failed one."""
        self._finish(1)

    def _finish(self, exit_code: int) -> None:
        if self._run is not None:
            self._run.finish(exit_code=exit_code)
            self._run = None


def _is_long(value: Any) -> bool:
    return isinstance(value, list | dict) and len(value) > LONGEST_LIST
