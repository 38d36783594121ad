"""Losses of samples and tokens: their means against sums written out, and functions told apart by their parameters."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fewjoules.engine.models.loss import (
    cross_entropy,
    mean_of,
    mean_over_tokens,
    mean_right,
    normal,
    right_answers,
    shape_problem,
    sum_and_weight,
)
from fewjoules.engine.models.objective import Measure, Objective
from fewjoules.errors import InvalidInputError

IGNORED = -100


def scores_and_labels(seed, samples, tokens, classes, ignored):
    draws = torch.Generator().manual_seed(seed)
    scores = torch.randn(samples, tokens, classes, generator=draws)
    labels = torch.randint(classes, (samples, tokens), generator=draws)
    labels[torch.rand(samples, tokens, generator=draws) < ignored] = IGNORED
    return scores, labels


def literal(scores, labels, rows):
    """Loss and right answers of each token of some samples that counts."""
    found = []
    for row in rows:
        for place, label in enumerate(labels[row].tolist()):
            if label != IGNORED:
                likelihoods = torch.softmax(scores[row, place].double(), 0)
                found.append((-math.log(likelihoods[label]), int(likelihoods.argmax()) == label))
    return np.array(found).reshape(-1, 2)


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 5), st.floats(0.0, 1.0), st.integers(0, 3))
def test_the_mean_over_tokens_counts_each_token_once_whatever_the_padding(seed, samples, tokens, ignored, padding):
    scores, labels = scores_and_labels(seed, samples + padding, tokens, 4, ignored)
    weights = torch.cat([torch.full((samples,), 1.0 / samples), torch.zeros(padding)])
    expected = literal(scores, labels, range(samples))
    losses, right = normal(cross_entropy(scores, labels), labels), right_answers(scores, labels)
    for value, column in ((losses, 0), (right, 1)):
        wanted = expected[:, column].mean() if len(expected) else 0.0
        assert float(mean_of(value, weights)) == pytest.approx(wanted, abs=1e-5)
        alone = tuple(part[:samples] for part in value)
        assert float(mean_of(alone, None)) == pytest.approx(wanted, abs=1e-5)
    short = [function(scores[:samples], labels[:samples]) for function in (mean_over_tokens, mean_right)]
    assert [float(one) for one in short] == pytest.approx(expected.mean(0) if len(expected) else [0.0, 0.0], abs=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 5), st.floats(0.0, 0.9))
def test_the_short_way_to_the_mean_over_tokens_has_the_bits_of_sum_over_count(seed, samples, tokens, ignored):
    scores, labels = scores_and_labels(seed, samples, tokens, 4, ignored)
    scores = scores.detach().requires_grad_()
    total = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
    both = mean_over_tokens(scores, labels), total / (labels != IGNORED).sum().clamp(min=1)
    slopes = [torch.autograd.grad(one, scores)[0] for one in both]
    assert torch.equal(*both)
    assert torch.equal(*slopes)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_sums_of_unequal_batches_give_the_mean_of_all(seed, sizes):
    scores, labels = scores_and_labels(seed, sum(sizes), 3, 4, 0.4)
    parts = zip(torch.split(scores, sizes), torch.split(labels, sizes), sizes, strict=True)
    sums = [sum_and_weight(normal(cross_entropy(x, y), y), size) for x, y, size in parts]
    total, weight = (math.fsum(column) for column in zip(*sums, strict=True))
    expected = literal(scores, labels, range(sum(sizes)))[:, 0]
    assert weight == len(expected)
    assert total == pytest.approx(expected.sum(), abs=1e-4)


def test_classes_are_the_last_axis_or_the_second():
    scores, labels = scores_and_labels(0, 5, 3, 4, 0.2)
    second = scores.movedim(-1, 1)
    torch.testing.assert_close(cross_entropy(second, labels), cross_entropy(scores, labels))
    torch.testing.assert_close(right_answers(second, labels), right_answers(scores, labels))
    literal_loss = functional.cross_entropy(second, labels, reduction="none")
    torch.testing.assert_close(cross_entropy(second, labels), literal_loss)


def test_scores_that_do_not_fit_their_labels_are_refused():
    with pytest.raises(InvalidInputError, match=r"\(5, 4\) for labels of shape \(5, 1\)"):
        cross_entropy(torch.zeros(5, 4), torch.zeros(5, 1, dtype=torch.int64))
    with pytest.raises(InvalidInputError, match="a tensor or have logits, got tuple"):
        cross_entropy((torch.zeros(5, 4), None), torch.zeros(5, dtype=torch.int64))


def of_outputs(outputs, targets):
    return outputs


def of_model(model, batch):
    return model(batch)


def test_functions_are_told_apart_by_the_names_of_their_parameters():
    assert not Measure.of("loss", "loss", of_outputs).takes_model
    assert not Measure.of("loss", "loss", nn.CrossEntropyLoss()).takes_model
    assert not Measure.of("loss", "loss", functional.mse_loss).takes_model
    assert Measure.of("loss", "loss", of_model).takes_model
    for unclear in (lambda model, targets: 0, lambda outputs, batch: 0, lambda batch, model: 0):
        with pytest.raises(InvalidInputError, match="with these names, of"):
            Measure.of("loss", "loss", unclear)
    with pytest.raises(InvalidInputError, match="loss must be a function, got 3"):
        Measure.of("loss", "loss", 3)


def test_several_losses_are_added_with_their_weights():
    objective = Objective.of({"a": of_outputs, "b": (of_outputs, 0.25)})
    values = [torch.tensor([1.0, 3.0]), torch.tensor(8.0)]
    assert float(objective.total(values, None)) == 4.0
    assert float(objective.total(values, torch.tensor([0.25, 0.75]))) == 4.5
    with pytest.raises(InvalidInputError, match=r"weight of loss\['b'\] must be .* at least 0, got -1"):
        Objective.of({"b": (of_outputs, -1.0)})
    with pytest.raises(InvalidInputError, match="at least one function"):
        Objective.of({})


@pytest.mark.parametrize("value", [torch.zeros(3), torch.zeros(2, 2), (torch.zeros(2), torch.zeros(3)), "word", None])
def test_losses_of_other_shapes_are_refused(value):
    assert "one number, one per sample" in shape_problem(value, 2)


def test_a_pair_of_the_whole_batch_is_a_metric_and_no_loss():
    pair = normal((3, 4.0), None)
    assert shape_problem(pair, 2, whole=True) is None
    assert shape_problem(pair, 2) is not None
    assert sum_and_weight(pair, 2) == (3.0, 4.0)
