"""Ctrl-C and SIGTERM end a training after its round, with all that was trained."""

import os
import signal
import threading

import numpy as np
import pytest
from torch import nn

import fewjoules as fj
from fewjoules.runs.interrupt import SIGNALS, stop_on_signal


def trained(on_round):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 4), dtype=np.float32), rng.integers(0, 3, 20)
    settings = {"local_steps": 1, "sparsity": 2.0, "rounds": 50, "learning_rate": 0.1, "device": "cpu"}
    return fj.train(nn.Linear(4, 3), clients=[data, data], test=data, on_round=on_round, **settings)


def killing(number, after):
    def tell(report):
        if report.round == after:
            os.kill(os.getpid(), number)

    return tell


@pytest.mark.parametrize("number", SIGNALS)
def test_a_training_that_is_asked_to_stop_returns_what_was_trained(number):
    with pytest.warns(fj.FewJoulesWarning, match="stopping after this round"):
        run = trained(killing(number, 7))
    assert run.stop_reason == "interrupted"
    rounds = run.metrics["round"].tolist()
    assert rounds == list(range(1, len(rounds) + 1))
    assert 7 <= len(rounds) < 50
    assert run.ledger["round"][-1] == len(rounds)


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    trained(lambda report: None)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_second_signal_does_not_wait():
    with stop_on_signal(lambda: None) as asked:
        signal.raise_signal(signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_outside_the_main_thread_nothing_asks():
    found = []

    def work():
        with stop_on_signal(lambda: None) as asked:
            found.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
