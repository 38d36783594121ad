"""What the paper says of FT-LSGD-DB, seen on real data: the embedded digits. results/dense-accuracy.txt has MNIST."""

import functools

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.datasets.load import load
from fewjoules.datasets.partition import iid
from fewjoules.engine.models.networks import build


@functools.cache
def accuracy(sparsity, error_feedback):
    """Mean test accuracy of the last rounds, of runs that differ in nothing else.

    200 rounds, since the claim is about where training ends: after 80 the sparse run is still 1.9 points behind.
    """
    data = load("digits")
    images, parts = data.normalised(data.train_images), iid(data.train_labels, 4, np.random.default_rng(0))
    run = fj.train(
        build("cnn", channels=1, height=8, width=8, classes=10, seed=0),
        clients=[(images[part], data.train_labels[part]) for part in parts],
        test=(data.normalised(data.test_images), data.test_labels),
        local_steps=5,
        sparsity=sparsity,
        rounds=200,
        learning_rate=0.1,
        batch_size=16,
        error_feedback=error_feedback,
        evaluate_every=10,
    )
    evaluated = run.metrics["test_accuracy"][~np.isnan(run.metrics["test_accuracy"])]
    return float(evaluated[-3:].mean())


def test_top_k_with_memory_reaches_the_dense_accuracy_at_sparsity_100():
    assert accuracy(1.0, True) > 0.95
    assert accuracy(100.0, True) == pytest.approx(accuracy(1.0, True), abs=0.015)


def test_without_memory_it_does_not():
    assert accuracy(100.0, False) < accuracy(100.0, True) - 0.03
