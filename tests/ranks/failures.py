"""What ranks do that disagree, fail or die, each on the last of two ranks."""

import dataclasses
import os

import torch

from fewjoules.engine.models.loss import cross_entropy
from fewjoules.runs import ranks as rank_module
from fewjoules.runs.training import Task, train_task
from tests.engine.simulators import federation_of, simulator_of
from tests.ranks.rounds import BASE, CLIENTS, network


def refusal(ranks, *, seed=0, clients=CLIENTS, loss=cross_entropy, version=None):
    """Train with something else on the last rank; return the error and its sentence."""
    options = dataclasses.replace(simulator_of(network(""), CLIENTS, BASE).options, seed=seed)
    task = Task(model=network(""), federation=federation_of(clients), test=None, loss=loss, fleet=None)
    before, rank_module.__version__ = rank_module.__version__, version or rank_module.__version__
    try:
        train_task(task, options, ranks=ranks)
    except Exception as error:
        return [type(error).__name__, str(error)]
    finally:
        rank_module.__version__ = before
    return ["nothing", ""]


class Breaks:
    """A loss that fails at its ``number``-th use."""

    def __init__(self, number, how):
        self.left, self.how = number, how

    def __call__(self, outputs, targets):
        self.left -= 1
        if self.left == 0:
            self.how()
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def breaks():
    raise OSError("the disk of this machine is on fire")


def refusals(ranks):
    """Every way in which the last rank may go wrong and live."""
    last = not ranks.is_first
    others = [*CLIENTS[:-1], (CLIENTS[-1][0] + 1.0, CLIENTS[-1][1])]
    return {
        "version": refusal(ranks, version="0.0.1" if last else None),
        "seed": refusal(ranks, seed=int(last)),
        "data": refusal(ranks, clients=others if last else CLIENTS),
        "error": refusal(ranks, loss=Breaks(12 if last else -1, breaks)),
    }


def death(ranks):
    """The last rank is gone in the middle of a round; what does the first one say?"""
    return refusal(ranks, loss=Breaks(12 if not ranks.is_first else -1, lambda: os._exit(7)))
