"""Watch what a device keeps back in a real training, for the picture of error feedback in docs/concepts.md."""

import functools
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

import fewjoules as fj
from fewjoules.arrays import FloatArray, Floats
from fewjoules.datasets import digits
from fewjoules.engine.algorithm.compressors import COMPRESSORS

ROUNDS, CLIENTS, SPARSITY, LOCAL_STEPS = 60, 12, 50.0, 5
DEVICE, SENDS = 0, 6


def watch_one_weight(error_feedback: bool) -> tuple[FloatArray, FloatArray, float, float]:
    """Return the summed changes of a weight of device 0 after each round, learned and sent, and two numbers.

    These are the test accuracy at the end, and the share of the device's weights that it never sent.
    """
    learned, sent, accuracy = _watched_run(error_feedback)
    weight, start = _weight_to_show(), np.zeros(1)
    return (
        np.concatenate([start, np.cumsum(learned[:, weight])]),
        np.concatenate([start, np.cumsum(sent[:, weight])]),
        accuracy,
        float(np.mean(~np.any(sent, axis=0))),
    )


def _weight_to_show() -> int:
    """Of the weights that are sent in six rounds with error feedback, take the one that loses most without it."""
    often = np.count_nonzero(_watched_run(True)[1], axis=0) == SENDS
    learned, sent, _ = _watched_run(False)
    return int(np.argmax(np.where(often, np.abs((learned - sent).sum(axis=0)), -1.0)))


@functools.cache
def _watched_run(error_feedback: bool) -> tuple[FloatArray, FloatArray, float]:
    """Return the changes that device 0 learned and sent, each (rounds, weights), and the test accuracy at the end."""
    data, rng = digits.read(), np.random.default_rng(0)
    images = data.train_images.reshape(len(data.train_images), -1).astype(np.float32) / 16.0
    parts = np.array_split(rng.permutation(len(images)), CLIENTS)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    learned: list[Floats] = []
    sent: list[Floats] = []
    usual = COMPRESSORS["top-k"]

    def choose(update: Floats, residual: Floats, order: Any) -> Any:
        change = update.copy()
        chosen, left = usual.choose(update, residual, order)
        if order.client == DEVICE:
            learned.append(-change)  # an update is what the server subtracts
            sent.append(-chosen.to_dense())
        return chosen, left

    with patch.dict(COMPRESSORS, {"top-k": replace(usual, choose=choose)}):
        run = fj.train(
            model,
            clients=[(images[part], data.train_labels[part]) for part in parts],
            test=(data.test_images.reshape(len(data.test_images), -1).astype(np.float32) / 16.0, data.test_labels),
            local_steps=LOCAL_STEPS,
            sparsity=SPARSITY,
            rounds=ROUNDS,
            learning_rate=0.2,
            error_feedback=error_feedback,
            device="cpu",
        )
    return np.array(learned, float), np.array(sent, float), float(run.metrics[-1]["test_accuracy"])
