"""What ranks do that disagree, fail or die, each on the last of two ranks."""

import dataclasses
import os
from pathlib import Path

import torch
from torch import nn

from fewjoules.engine.models.loss import cross_entropy
from fewjoules.runs import ranks as rank_module
from fewjoules.runs.training import Task, in_memory, train_task
from tests.engine.simulators import federation_of, simulator_of
from tests.ranks.rounds import BASE, CLIENTS, FEATURES, network


def refusal(ranks, *, seed=0, clients=CLIENTS, loss=cross_entropy, scale=1.0, number=0, **given):
    """Train with something else on the last rank; return the error and its sentence."""
    options = dataclasses.replace(simulator_of(network(""), CLIENTS, BASE).options, seed=seed)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES, bias=False).requires_grad_(False), network(""))
    nn.init.constant_(model[0].weight, scale)
    test = federation_of(CLIENTS).samples
    metrics = given.pop("metrics", {})
    task = Task(model=model, federation=federation_of(clients), test=test, loss=loss, fleet=None, metrics=metrics)

    def opened(simulator):
        simulator.state = dataclasses.replace(simulator.state, round=number)
        return in_memory(simulator)

    try:
        train_task(task, options, ranks=ranks, opened=opened, **given)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def refused_version(version):
    """Join ranks with another version of FewJoules on one of them; return the error and its sentence."""
    before, rank_module.__version__ = rank_module.__version__, version or rank_module.__version__
    try:
        with rank_module.joined_ranks():
            return ["nothing", ""]
    except Exception as error:
        return [type(error).__name__, str(error)]
    finally:
        rank_module.__version__ = before


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


def right(outputs, targets):
    return outputs.argmax(1) == targets


def refusals(ranks):
    """Every way in which the last rank may go wrong and live."""
    last = not ranks.is_first
    others = [*CLIENTS[:-1], (CLIENTS[-1][0] + 1.0, CLIENTS[-1][1])]
    return {
        "version": refused_version("0.0.1" if last else None),
        "metrics": refusal(ranks, metrics={"mine" if last else "yours": right}),
        "loss": refusal(ranks, loss={"loss": (cross_entropy, 0.5 if last else 0.25)}),
        "frozen weights": refusal(ranks, scale=0.5 if last else 0.25),
        "folder": refusal(ranks, folder=Path("theirs") if last else None),
        "round": refusal(ranks, number=3 if last else 0),
        "seed": refusal(ranks, seed=int(last)),
        "data": refusal(ranks, clients=others if last else CLIENTS),
        "error": refusal(ranks, loss=Breaks(12 if last else -1, breaks)),
    }


def death(ranks):
    """The last rank is gone in the middle of a round; what does the first one say?"""
    return refusal(ranks, loss=Breaks(12 if not ranks.is_first else -1, lambda: os._exit(7)))
