"""A data set is checked once, hashed once and scaled by its training images."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.datasets.dataset import Dataset
from fewjoules.errors import InvalidInputError


def small(seed=0, channels=2, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "name": "small",
        "train_images": rng.integers(0, 256, (6, channels, 3, 4)).astype(np.uint8),
        "train_labels": rng.integers(0, 5, 6),
        "test_images": rng.integers(0, 256, (2, channels, 3, 4)).astype(np.uint8),
        "test_labels": rng.integers(0, 5, 2),
        "classes": 5,
    }
    return Dataset(**{**fields, **changes})


BAD = {
    "label too large": (
        {"train_labels": np.array([0, 1, 5, 7, 0, 0])},
        r"train_labels\[2\] must be from 0 to 4, got 5",
    ),
    "label negative": ({"test_labels": np.array([0, -1])}, r"test_labels\[1\] must be from 0 to 4, got -1"),
    "labels too few": ({"train_labels": np.zeros(5, dtype=np.int64)}, r"train_labels must be int64 of shape \(6,\)"),
    "labels int32": ({"train_labels": np.zeros(6, dtype=np.int32)}, "train_labels must be int64 .* got int32"),
    "labels a list": ({"test_labels": [0, 1]}, "test_labels must be int64 .* got list"),
    "images flat": ({"train_images": np.zeros((6, 24), dtype=np.uint8)}, r"train_images must be .* shape \(6, 24\)"),
    "images float": ({"test_images": np.zeros((2, 2, 3, 4))}, "test_images must be uint8 .* got float64"),
    "no images": ({"test_images": np.zeros((0, 2, 3, 4), dtype=np.uint8)}, "test_images must be .* none of them 0"),
    "other shape": ({"test_images": np.zeros((2, 1, 3, 4), dtype=np.uint8)}, r"test_images .* \(2, 3, 4\)"),
    "writers short": ({"writers": np.zeros(2, dtype=np.int64)}, r"writers must be int64 of shape \(6,\)"),
    "no classes": ({"classes": 0}, "classes must be a whole number from 1"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        small(**changes)


def test_equal_arrays_have_equal_digests():
    assert small(0).sha256 == small(0).sha256 != small(1).sha256


def test_the_digest_does_not_depend_on_memory_layout():
    data = small()
    assert dataclasses.replace(data, train_images=np.asfortranarray(data.train_images)).sha256 == data.sha256


@pytest.mark.parametrize("key", ["train_images", "train_labels", "test_images", "test_labels", "writers"])
def test_one_changed_entry_changes_the_digest(key):
    data = small(writers=np.zeros(6, dtype=np.int64))
    changed = getattr(data, key).copy()
    changed.flat[-1] = 1 if changed.flat[-1] != 1 else 2
    assert dataclasses.replace(data, **{key: changed}).sha256 != data.sha256


def test_writers_are_part_of_the_digest():
    assert small(writers=np.zeros(6, dtype=np.int64)).sha256 != small().sha256


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_training_images_are_scaled_to_mean_0_and_deviation_1(seed, channels):
    data = small(seed, channels)
    scaled = data.normalised(data.train_images)
    assert scaled.dtype == np.float32
    assert scaled.flags.c_contiguous
    np.testing.assert_allclose(scaled.mean(axis=(0, 2, 3), dtype=np.float64), 0.0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=(0, 2, 3), dtype=np.float64), 1.0, atol=1e-6)


def test_test_images_are_scaled_by_the_training_images():
    data = small()
    train = data.train_images.astype(np.float64)
    mean, deviation = (f(axis=(0, 2, 3))[:, None, None] for f in (train.mean, train.std))
    np.testing.assert_allclose(data.normalised(data.test_images), (data.test_images - mean) / deviation, rtol=1e-5)


def test_the_statistics_cross_blocks_of_images(monkeypatch):
    monkeypatch.setattr("fewjoules.datasets.dataset._BLOCK", 4)
    blocks = small().normalised(small().train_images)
    monkeypatch.setattr("fewjoules.datasets.dataset._BLOCK", 100)
    np.testing.assert_array_equal(blocks, small().normalised(small().train_images))


def test_a_constant_channel_becomes_zero():
    data = small(train_images=np.full((6, 2, 3, 4), 7, dtype=np.uint8))
    assert not data.normalised(data.train_images).any()


def test_images_with_other_channels_are_not_scaled():
    with pytest.raises(InvalidInputError, match=r"images must be \(n, 2, height, width\), got shape \(1, 3, 3, 4\)"):
        small().normalised(np.zeros((1, 3, 3, 4), dtype=np.uint8))
