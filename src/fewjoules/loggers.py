"""Loggers for ``fewjoules.train(callbacks=[...])``; each needs an extra, imported when it is used."""

from fewjoules.runs.loggers.tensorboard import TensorBoard
from fewjoules.runs.loggers.wandb import WandB

__all__ = ["TensorBoard", "WandB"]
