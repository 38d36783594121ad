"""Targets: when they are met, which row met one first, and how they are said."""

import math

import numpy as np
import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.ledger.schema import METRICS
from fewjoules.ledger.target import Target, common_target, target_options

ACCURACY, LOSS, PERPLEXITY = Target("accuracy", 0.9), Target("loss", 0.3), Target("perplexity", 2.0)


def rows(losses, accuracies):
    found = METRICS.new_rows(len(losses))
    found["test_loss"], found["test_accuracy"] = losses, accuracies
    return found


@pytest.mark.parametrize(
    ("target", "met", "missed"),
    [
        (ACCURACY, (9.0, 0.9), (0.0, 0.89)),
        (LOSS, (0.3, 0.0), (0.31, 1.0)),
        (PERPLEXITY, (math.log(2.0), 0.0), (0.694, 1.0)),
    ],
    ids=str,
)
def test_a_target_is_met_from_its_own_side_only(target, met, missed):
    assert target.is_met(*met)
    assert not target.is_met(*missed)
    assert not target.is_met(math.nan, math.nan)


@pytest.mark.parametrize("target", [ACCURACY, LOSS, PERPLEXITY], ids=str)
def test_the_first_row_that_met_a_target_is_the_first_of_which_it_says_so(target):
    rng = np.random.default_rng(0)
    for _ in range(20):
        losses, accuracies = rng.choice([math.nan, 0.2, 0.5, 2.0], 6), rng.choice([math.nan, 0.5, 0.95], 6)
        literal = [at for at in range(6) if target.is_met(losses[at], accuracies[at])]
        assert target.first_row(rows(losses, accuracies)) == (literal[0] if literal else None)


def test_targets_are_found_among_options():
    assert Target.of({"target_accuracy": None, "target_loss": 0.3}) == LOSS
    assert Target.of({"target_perplexity": 2}) == PERPLEXITY
    assert Target.of({"rounds": 3}) is None


def test_targets_and_values_are_said_in_the_same_words():
    assert [str(target) for target in (ACCURACY, LOSS, PERPLEXITY)] == ["90\u00a0%", "loss 0.3", "perplexity 2"]
    assert PERPLEXITY.said(math.log(13.25)) == "perplexity 13.25"
    assert PERPLEXITY.said(1e4) == "an endless perplexity"
    assert [target.said(math.nan) for target in (ACCURACY, LOSS)] == ["an unknown accuracy", "an unknown loss"]


def test_the_closest_is_closest_from_the_right_side():
    assert ACCURACY.distance(0.8) < ACCURACY.distance(0.7) < ACCURACY.distance(None) == math.inf
    assert LOSS.distance(0.4) < LOSS.distance(0.5) < LOSS.distance(math.nan) == math.inf


def test_a_common_target_is_the_same_in_kind_and_value():
    assert common_target([LOSS, Target("loss", 0.3)]) == LOSS
    assert common_target([LOSS, Target("perplexity", 0.3)]) is None
    assert common_target([LOSS, None]) is None
    assert common_target([None, None]) is None


def test_a_metric_of_the_users_own_has_the_direction_that_is_said():
    rising, falling = Target("f1", 0.8, ">="), Target("error", 0.1, "<=")
    assert rising.is_met(9.0, 0.0, {"f1": 0.8})
    assert falling.is_met(9.0, 0.0, {"error": 0.1})
    assert not rising.is_met(0.0, 1.0, {"f1": 0.79})
    assert not falling.is_met(0.0, 1.0, {"error": 0.11})
    assert not any(one.is_met(0.0, 1.0, {one.name: math.nan}) or one.is_met(0.0, 1.0) for one in (rising, falling))
    assert (rising.said(0.5), str(falling), rising.reason) == ("f1 0.5", "error 0.1", "target metric")
    metrics = METRICS.with_metrics(["error"]).new_rows(3)
    metrics["test_error"] = [math.nan, 0.2, 0.05]
    assert (falling.first_row(metrics), rising.first_row(metrics)) == (2, None)
    for target in (ACCURACY, LOSS, PERPLEXITY, rising, falling, Target("x.y", -1e-9, "<=")):
        assert Target.of(target.option) == target, "what is written in options is read again"


def test_targets_are_written_as_users_think_of_them():
    own = ("f1", "error")
    assert target_options(None, own) == {}
    assert target_options(0.95, own) == {"target_accuracy": 0.95}
    assert target_options({"perplexity": 6}, own) == {"target_perplexity": 6.0}
    assert Target.of(target_options({"f1": 0.8}, own)) == Target("f1", 0.8, ">=")
    assert Target.of(target_options({"error": "<= 0.1"}, own)) == Target("error", 0.1, "<=")


@pytest.mark.parametrize(
    "target", [{}, {"f1": 0.8, "loss": 0.1}, {"f2": 0.8}, 2.0, "0.9", {"f1": "0.8"}, {"f1": ">= nan"}, {"f1": None}]
)
def test_unclear_targets_are_refused(target):
    with pytest.raises(InvalidInputError, match="target"):
        target_options(target, ("f1",))
