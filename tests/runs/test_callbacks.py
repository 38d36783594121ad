"""Callbacks of ``fewjoules.train``: what they see and when, how they end a run, and what their errors do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.errors import InvalidInputError
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([5, 3, 4], 4, 3, 1)


def train(**changes):
    options = {"local_steps": 2, "sparsity": 2.0, "rounds": 4, "learning_rate": 0.1, "batch_size": 2, "device": "cpu"}
    options |= {"test": CLIENTS[0], "evaluate_every": 2}
    return fj.train(reference.seeded_module(reference.SoftmaxRegression(4, 3), 1), clients=CLIENTS, **options | changes)


def weights(model):
    return torch.cat([tensor.reshape(-1) for tensor in model.state_dict().values()])


def steep(outputs, targets):
    """Finite, with gradients that one step turns into infinite weights."""
    return 1e10 * torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


class Diary(fj.Callback):
    """Notes every event with its round, and the model after each round."""

    def __init__(self, stop_after=None, fail_after=None):
        self.events, self.models, self.metrics = [], [], []
        self.stop_after, self.fail_after = stop_after, fail_after

    def on_train_start(self, run):
        self.events.append(("start", run.round))

    def on_evaluation_end(self, run):
        self.events.append(("evaluation", run.round))

    def on_round_end(self, run):
        self.events.append(("round", run.round))
        self.models.append(run.model())
        self.metrics.append(run.metrics)
        if run.round == self.stop_after:
            run.stop()
        if run.round == self.fail_after:
            raise LookupError("no such thing")

    def on_train_end(self, run):
        self.events.append(("end", run.round, run.stop_reason))

    def on_exception(self, run, error):
        self.events.append(("exception", run.round, error))


def test_events_come_in_order_with_the_evaluation_of_a_round_before_its_end():
    diary = Diary()
    train(rounds=3, callbacks=[diary])
    rounds = [("round", 1), ("evaluation", 2), ("round", 2), ("evaluation", 3), ("round", 3)]
    assert diary.events == [("start", 0), *rounds, ("end", 3, "rounds")]


def test_the_model_after_each_round_is_that_of_a_run_of_so_many_rounds():
    diary = Diary()
    run = train(callbacks=[diary])
    shorter = [train(rounds=rounds).model for rounds in (1, 2, 3, 4)]
    for seen, expected in zip(diary.models, shorter, strict=True):
        assert torch.equal(weights(seen), weights(expected))
    assert torch.equal(weights(run.model), weights(diary.models[-1]))


def test_metrics_are_those_of_the_table_and_of_the_last_evaluation():
    diary = Diary()
    run = train(callbacks=[diary])
    assert [seen["train_loss"] for seen in diary.metrics] == run.metrics["train_loss"].tolist()
    tested = run.metrics["test_loss"]
    assert math.isnan(diary.metrics[0]["test_loss"])
    assert [seen["test_loss"] for seen in diary.metrics[1:]] == [tested[1], tested[1], tested[3]]


@pytest.mark.parametrize("holds_rounds", [True, False])
def test_a_callback_that_only_looks_changes_nothing(holds_rounds):
    diary = Diary()
    diary.holds_rounds = holds_rounds
    watched, alone = train(callbacks=[diary]), train()
    assert len(diary.events) == 8
    for name in ("metrics", "ledger"):
        assert getattr(watched, name).tobytes() == getattr(alone, name).tobytes()
    assert torch.equal(weights(watched.model), weights(alone.model))


@pytest.mark.parametrize("last", [1, 2])
def test_a_callback_stops_a_run_after_the_round_that_it_sees(last):
    diary = Diary(stop_after=last)
    run, short = train(callbacks=[diary]), train(rounds=last)
    assert run.stop_reason == "callback"
    assert diary.events[-1] == ("end", last, "callback")
    assert run.ledger.tobytes() == short.ledger.tobytes()
    assert torch.equal(weights(run.model), weights(short.model))


def test_a_callback_that_holds_no_rounds_may_stop_the_run_one_round_later():
    diary = Diary(stop_after=1)
    diary.holds_rounds = False
    run = train(callbacks=[diary])
    assert run.stop_reason == "callback"
    assert run.metrics.size == 2


def test_the_target_is_the_reason_where_a_callback_stops_in_the_same_round():
    diary = Diary(stop_after=2)
    assert train(callbacks=[diary], target_accuracy=0.0).stop_reason == "target accuracy"


def test_an_error_of_a_callback_ends_the_run_and_is_passed_on_as_it_is():
    diary, second = Diary(fail_after=2), Diary()
    with pytest.raises(LookupError, match="no such thing") as caught:
        train(callbacks=[diary, second])
    assert diary.events[-1] == ("exception", 2, caught.value)
    assert second.events[-1] == ("exception", 2, caught.value)
    assert [event for event in second.events if event[0] == "round"] == [("round", 1)]
    assert caught.value.__cause__ is None


def test_a_run_that_diverges_is_told_as_an_exception():
    diary = Diary()
    with pytest.raises(fj.DivergedError) as caught:
        train(callbacks=[diary], loss=steep, learning_rate=1e35, guard=False)
    assert diary.events[-1][0] == "exception"
    assert diary.events[-1][2] is caught.value


@pytest.mark.parametrize(
    ("callbacks", "got"), [([print], "builtin_function_or_method"), ([Diary], "Diary; make an object"), (3, "int")]
)
def test_what_is_no_callback_is_refused(callbacks, got):
    with pytest.raises(InvalidInputError, match=f"callbacks must be a list of fewjoules.Callback objects, got {got}"):
        train(callbacks=callbacks)


# --- Early stopping


class FakeRun:
    """Replays evaluations."""

    has_test = True

    def __init__(self, values, metric):
        self.metrics, self.stopped_at, self._values, self._metric = {}, None, values, metric

    def history(self):
        return np.zeros(0, dtype=[("test_loss", "f8")])

    def stop(self):
        self.stopped_at = len(self.metrics)

    def replay(self, callback):
        callback.on_train_start(self)
        for number, value in enumerate(self._values):
            self.metrics = {self._metric: value}
            callback.on_evaluation_end(self)
            if self.stopped_at is not None:
                return number
        return None


@given(
    values=st.lists(st.floats(0.0, 4.0), max_size=12),
    patience=st.integers(1, 4),
    min_delta=st.sampled_from([0.0, 0.5]),
    metric=st.sampled_from(["train_loss", "test_loss", "test_accuracy", "test_f1"]),
)
def test_early_stopping_waits_for_an_improvement_over_all_earlier_evaluations(values, patience, min_delta, metric):
    sign = 1.0 if metric.endswith("loss") else -1.0
    best, last = math.inf, -1
    expected = None
    for number, value in enumerate(values):
        if sign * value < best - min_delta:
            best, last = sign * value, number
        elif number - last >= patience:
            expected = number
            break
    stopping = fj.EarlyStopping(metric, patience, min_delta=min_delta)
    assert FakeRun(values, metric).replay(stopping) == expected


def test_early_stopping_ends_a_run_that_no_longer_improves():
    run = train(rounds=60, learning_rate=3.0, evaluate_every=1, callbacks=[fj.EarlyStopping(patience=2)])
    losses = run.metrics["test_loss"]
    assert run.stop_reason == "callback"
    assert losses.size < 60
    assert min(losses[:-2]) <= min(losses[-2:])


def test_a_metric_of_ones_own_rises_as_for_targets_unless_told_otherwise():
    values = [0.24, 0.30, 0.36, 0.42]
    assert FakeRun(values, "test_f1").replay(fj.EarlyStopping("test_f1", patience=2)) is None
    assert FakeRun(values, "test_f1").replay(fj.EarlyStopping("test_f1", patience=2, rises=False)) == 2


def unknown(outputs, targets):
    return torch.tensor(math.nan)


@pytest.mark.filterwarnings("ignore:the metric unknown is NaN")
@pytest.mark.parametrize(("metric", "rises", "rounds"), [("test_unknown", None, 6), ("train_loss", True, 8)])
def test_early_stopping_of_a_resumed_run_counts_the_evaluations_of_one_that_was_not_interrupted(
    tmp_path, metric, rises, rounds
):
    options = {"rounds": 20, "metrics": {"unknown": unknown}}

    def stopping():
        return fj.EarlyStopping(metric, patience=3, rises=rises)

    whole = train(callbacks=[stopping()], **options)
    with pytest.raises(LookupError):
        train(callbacks=[stopping(), Diary(fail_after=5)], out=tmp_path / "run", **options)
    resumed = fj.resume(
        tmp_path / "run",
        model=reference.seeded_module(reference.SoftmaxRegression(4, 3), 1),
        clients=CLIENTS,
        test=CLIENTS[0],
        metrics={"unknown": unknown},
        callbacks=[stopping()],
    )
    assert (whole.stop_reason, len(whole.metrics)) == ("callback", rounds)
    assert (resumed.stop_reason, len(resumed.metrics)) == ("callback", rounds)


def test_a_metric_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidInputError, match="test_loss, test_accuracy, got 'bleu'"):
        train(callbacks=[fj.EarlyStopping("bleu")])


def test_early_stopping_without_a_test_set_is_refused():
    with pytest.raises(InvalidInputError, match="EarlyStopping waits for evaluations, which need a test set, got none"):
        train(test=None, callbacks=[fj.EarlyStopping("train_loss")])
