"""Ctrl-C ends a training after its round, with all that was trained; a command treats SIGTERM alike."""

import signal
import threading

import numpy as np
import pytest
from torch import nn

import fewjoules as fj
from fewjoules.runs.interrupt import CTRL_C_OR_KILL, stop_on_signal


def trained(on_round):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 4), dtype=np.float32), rng.integers(0, 3, 20)
    settings = {"local_steps": 1, "sparsity": 2.0, "rounds": 50, "learning_rate": 0.1, "device": "cpu"}
    return fj.train(nn.Linear(4, 3), clients=[data, data], test=data, on_round=on_round, **settings)


def press_ctrl_c_after(number):
    def tell(report):
        if report.round == number:
            signal.raise_signal(signal.SIGINT)

    return tell


def test_a_training_that_is_asked_to_stop_returns_what_was_trained():
    with pytest.warns(fj.FewJoulesWarning, match="stopping after this round"):
        run = trained(press_ctrl_c_after(7))
    assert run.stop_reason == "interrupted"
    rounds = run.metrics["round"].tolist()
    assert rounds == list(range(1, len(rounds) + 1))
    assert 7 <= len(rounds) < 50
    assert run.ledger["round"][-1] == len(rounds)


def test_a_library_call_leaves_sigterm_to_its_program_and_puts_ctrl_c_back():
    before = [signal.getsignal(number) for number in CTRL_C_OR_KILL]
    during = []
    trained(lambda report: during.append(signal.getsignal(signal.SIGTERM)))
    assert set(during) == {before[1]}
    assert [signal.getsignal(number) for number in CTRL_C_OR_KILL] == before


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["ctrl-c", "kill"]
)
def test_the_first_signal_asks_and_the_second_does_not_wait(number, error):
    told = []
    with stop_on_signal(lambda: told.append(1), CTRL_C_OR_KILL) as asked:
        assert not asked()
        signal.raise_signal(number)
        assert asked()
        with pytest.raises(error):
            signal.raise_signal(number)
    assert told == [1]


def test_outside_the_main_thread_nothing_asks():
    found = []

    def work():
        with stop_on_signal(lambda: None, CTRL_C_OR_KILL) as asked:
            found.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
