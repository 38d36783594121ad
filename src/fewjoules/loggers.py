"""Loggers for ``fewjoules.train(callbacks=[...])``; each needs an extra, imported when it is used."""

from fewjoules.extras import require_extra

require_extra("train", "fewjoules.loggers")

from fewjoules.runs.loggers.tensorboard import TensorBoard  # noqa: E402
from fewjoules.runs.loggers.wandb import WandB  # noqa: E402

__all__ = ["TensorBoard", "WandB"]
