"""Runs in folders with ``fewjoules.train`` and ``fewjoules.resume``: alone, or as one of several ranks."""

import contextlib
import os
import signal
import warnings
from unittest import mock

import fewjoules as fj
from fewjoules.engine.simulator.cpu.backend import CpuBackend
from tests.ranks.rounds import CLIENTS, SIZES, network

OPTIONS = {"local_steps": 2, "sparsity": 5.0, "rounds": 13, "learning_rate": 0.1, "batch_size": 6, "seed": 5}
OPTIONS |= {"inner": "momentum", "momentum_state": "kept", "participation": 0.8, "failure_probability": 0.2}
OPTIONS |= {"evaluate_every": 4, "clients_at_a_time": 2}
DATA = {"clients": CLIENTS, "test": CLIENTS[0]}
RESUMED = {"begun-by-one": {}, "begun-by-one-spilled": {"memory_gib": 0}}  # by two ranks
assert len(SIZES) * OPTIONS["participation"] > 2 * OPTIONS["clients_at_a_time"]


def interrupted_at(number, sign):
    """A function for ``on_round`` that sends this process a signal in a round, if there is one to send."""

    def on_round(report):
        if sign is not None and report.round == number:
            os.kill(os.getpid(), sign)

    return on_round


def begun(folder, number, sign=signal.SIGINT, **how):
    """Train into a folder until Ctrl-C or another signal in a round; return why it stopped, and its ledger rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fj.train(network("buffers"), **DATA, **OPTIONS, out=folder, on_round=interrupted_at(number, sign), **how)
    return [run.stop_reason, len(run.ledger)]


class Remembers(fj.Callback):
    """Keeps the rounds that the history of a run has when training starts."""

    def on_train_start(self, run):
        self.rounds = run.history()["round"].tolist()


def resumed(folder, **how):
    """Finish the run in a folder; return it, and the rounds that a callback could see when it went on."""
    seen = Remembers()
    return fj.resume(folder, model=network("buffers"), **DATA, callbacks=[seen], **how), seen.rounds


class BreaksIn(fj.Callback):
    """Raises an error in a round, if this is the process to do it."""

    def __init__(self, number, breaks):
        self.number, self.breaks = number, breaks

    def on_round_end(self, run):
        if self.breaks and run.round == self.number:
            raise KeyError("no such thing")


def failed(folder, number, breaks):
    """Train into a folder until this rank, if it is the one to do so, fails in a round of which it has done a part."""
    train = CpuBackend._train

    def broken_train(backend, state, plan, *rest):
        found = train(backend, state, plan, *rest)
        if breaks and plan.number == number:
            raise OSError("the disk is gone")
        return found

    with mock.patch.object(CpuBackend, "_train", broken_train):
        return _ended(folder)


def failed_moving(folder, name, breaks):
    """Train into a folder until this rank, if it is the one to do so, fails to move what a client keeps."""
    full = mock.patch.object(CpuBackend, name, side_effect=OSError("the disk is full"))
    with full if breaks else contextlib.nullcontext():
        return _ended(folder)


def _ended(folder, **how):
    """Train into a folder; return the error that ends it."""
    try:
        fj.train(network("buffers"), **DATA, **OPTIONS, out=folder, **how)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def broken(folder, number, breaks):
    """Train into a folder until a callback breaks in a round; return the error."""
    return _ended(folder, callbacks=[BreaksIn(number, breaks)])
