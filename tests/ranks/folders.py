"""Runs in folders with ``fewjoules.train`` and ``fewjoules.resume``: alone, or as one of several ranks."""

import os
import signal
import warnings

import fewjoules as fj
from tests.ranks.rounds import CLIENTS, SIZES, network

OPTIONS = {"local_steps": 2, "sparsity": 5.0, "rounds": 13, "learning_rate": 0.1, "batch_size": 6, "seed": 5}
OPTIONS |= {"inner": "momentum", "momentum_state": "kept", "participation": 0.8, "failure_probability": 0.2}
OPTIONS |= {"evaluate_every": 4, "clients_at_a_time": 2}
DATA = {"clients": CLIENTS, "test": CLIENTS[0]}
assert len(SIZES) * OPTIONS["participation"] > 2 * OPTIONS["clients_at_a_time"]


def interrupted_at(number, asks=True):
    """A function for ``on_round`` that presses Ctrl-C in a round, if this is the process to do it."""

    def on_round(report):
        if asks and report.round == number:
            os.kill(os.getpid(), signal.SIGINT)

    return on_round


def begun(folder, number, asks=True):
    """Train into a folder until Ctrl-C in a round; return why it stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fj.train(network("buffers"), **DATA, **OPTIONS, out=folder, on_round=interrupted_at(number, asks))
    return run.stop_reason


def resumed(folder):
    """Finish the run in a folder."""
    return fj.resume(folder, model=network("buffers"), **DATA)
