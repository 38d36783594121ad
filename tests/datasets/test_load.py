"""Data sets are found by name in every place where their files may lie."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fewjoules.datasets import fetch
from fewjoules.datasets.load import DATASETS, load
from fewjoules.datasets.sources import SOURCES
from fewjoules.errors import InvalidInputError
from tests.datasets.files import cifar10_files, write_archive, write_folder, write_mnist, write_writers


def test_every_data_set_but_the_embedded_one_has_sources():
    assert set(DATASETS) - set(SOURCES) == {"digits"}
    files = [file for files in SOURCES.values() for file in files]
    assert all(file.url.startswith("https://") for file in files)
    assert all(len(file.digest) == len("sha256:") + 64 for file in files)


def test_the_digits_are_the_pinned_ones():
    data = load("digits")
    assert data.sha256 == "e5ff3a0f6ceec1c4741eb95a4e54d15acbbf69ab48f28c9c2d1f11b6063756ed"
    assert (len(data.train_images), len(data.test_images), data.shape) == (1437, 360, (1, 8, 8))
    assert data.train_images.max() == 16
    assert np.bincount(data.train_labels).min() >= 130


def test_the_digits_look_like_digits():
    data = load("digits")
    train, test = (data.normalised(images).reshape(len(images), -1) for images in (data.train_images, data.test_images))
    nearest = np.argmin((train**2).sum(axis=1) - 2.0 * test @ train.T, axis=1)
    assert np.mean(data.train_labels[nearest] == data.test_labels) > 0.97


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("inside", [True, False])
def test_idx_sets_are_read_from_the_folder_or_its_subfolder(tmp_path, name, suffix, inside):
    labels = write_mnist(tmp_path / name if inside else tmp_path, suffix=suffix)
    data = load(name, tmp_path)
    assert (data.name, data.classes, data.shape, data.writers) == (name, 10, (1, 28, 28), None)
    np.testing.assert_array_equal(data.train_labels, labels)
    assert len(data.test_images) == 5


def test_the_subfolder_wins(tmp_path):
    write_mnist(tmp_path, seed=1)
    labels = write_mnist(tmp_path / "mnist", seed=2)
    np.testing.assert_array_equal(load("mnist", tmp_path).train_labels, labels)


def test_the_official_file_of_another_set_is_not_taken(tmp_path):
    write_mnist(tmp_path)
    file = tmp_path / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes().ljust(4542, b"\0"))  # as long as MNIST's, not as Fashion-MNIST's
    with pytest.raises(InvalidInputError, match=r"t10k-labels-idx1-ubyte.gz of fashion-mnist is missing"):
        load("fashion-mnist", tmp_path)
    assert load("mnist", tmp_path).name == "mnist"


@pytest.mark.parametrize("place", ["mnist", "qmnist", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_qmnist_adds_the_writers_to_mnist(tmp_path, place, suffix):
    labels = write_mnist(tmp_path / "mnist")
    writers = np.arange(12) % 5 + 100
    write_writers(tmp_path / place / f"qmnist-train-labels-idx2-int{suffix}", labels, writers)
    data = load("qmnist", tmp_path)
    np.testing.assert_array_equal(data.writers, writers)
    np.testing.assert_array_equal(data.train_images, load("mnist", tmp_path).train_images)


def test_writers_of_other_digits_are_refused(tmp_path):
    labels = write_mnist(tmp_path)
    labels[3] = (labels[3] + 1) % 10
    write_writers(tmp_path / "qmnist-train-labels-idx2-int.gz", labels, np.zeros(12))
    with pytest.raises(InvalidInputError, match=r"qmnist: .*: row 3 must be the digit"):
        load("qmnist", tmp_path)


def test_too_few_writers_are_refused(tmp_path):
    labels = write_mnist(tmp_path)
    write_writers(tmp_path / "qmnist-train-labels-idx2-int.gz", labels[:8], np.zeros(8))
    with pytest.raises(InvalidInputError, match=r"at least 12 rows, got shape \(11, 8\)"):
        load("qmnist", tmp_path)


def test_a_bad_label_names_set_and_sample(tmp_path):
    write_mnist(tmp_path, suffix="")
    file = tmp_path / "train-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"\x0a")
    with pytest.raises(InvalidInputError, match=r"mnist: train_labels\[11\] must be from 0 to 9, got 10"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."])
def test_cifar10_is_read_from_its_folder(tmp_path, place):
    files = cifar10_files()
    write_folder(tmp_path / place, files)
    data = load("cifar10", tmp_path)
    assert (len(data.train_images), len(data.test_images), data.shape) == (10, 2, (3, 32, 32))
    record = np.frombuffer(files["data_batch_2.bin"], dtype=np.uint8)[:3073]
    assert data.train_labels[2] == record[0]
    np.testing.assert_array_equal(data.train_images[2, 1, 5], record[1 + 1024 + 5 * 32 :][:32])


@pytest.mark.parametrize("place", ["cifar10", "."])
def test_cifar10_is_read_from_its_archive(tmp_path, place):
    write_archive(tmp_path / "packed" / place / "cifar-10-binary.tar.gz", cifar10_files())
    write_folder(tmp_path / "unpacked", cifar10_files())
    assert load("cifar10", tmp_path / "packed").sha256 == load("cifar10", tmp_path / "unpacked").sha256
    assert everything_but_folders(tmp_path / "packed") == ["cifar-10-binary.tar.gz"]


def everything_but_folders(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("pickled", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py"])
def test_the_pickled_cifar10_is_refused(tmp_path, pickled):
    write_folder(tmp_path / pickled, {"data_batch_1": b"\x80"})
    with pytest.raises(InvalidInputError, match=r"is pickled and is not read; .* cifar-10-binary.tar.gz"):
        load("cifar10", tmp_path)


def test_the_pickled_cifar10_may_lie_beside_the_binary_one(tmp_path):
    write_folder(tmp_path / "cifar-10-batches-py", {"data_batch_1": b"\x80"})
    write_folder(tmp_path / "cifar-10-batches-bin", cifar10_files())
    assert load("cifar10", tmp_path).name == "cifar10"


def without(name):
    return {key: data for key, data in cifar10_files().items() if key != name}


FILES = cifar10_files()
BAD_FILES = {
    "cut": (
        {**FILES, "test_batch.bin": FILES["test_batch.bin"][:-1]},
        "must hold 1 to 10000 records .* got 6145 bytes",
    ),
    "empty": ({**FILES, "data_batch_5.bin": b""}, "data_batch_5.bin: must hold 1 to 10000 records .* got 0 bytes"),
    "too many": ({**FILES, "data_batch_1.bin": bytes(3073 * 10_001)}, "must hold 1 to 10000 records .* got more"),
    "missing": (without("data_batch_3.bin"), "data_batch_3.bin: cannot be read|has no data_batch_3.bin"),
    "bad label": ({**FILES, "test_batch.bin": b"\x0b" + bytes(3072)}, r"test_labels\[0\] must be from 0 to 9, got 11"),
}


@pytest.mark.parametrize("write", [write_folder, lambda at, files: write_archive(at / "cifar-10-binary.tar.gz", files)])
@pytest.mark.parametrize(("files", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_batches_are_refused(tmp_path, write, files, message):
    write(tmp_path, files)
    with pytest.raises(InvalidInputError, match=message):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"x" * 99, gzip.compress])
def test_a_spoilt_archive_is_refused(tmp_path, spoil):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    write_archive(archive, cifar10_files())
    archive.write_bytes(spoil(archive.read_bytes()))
    with pytest.raises(InvalidInputError, match=r"cifar-10-binary.tar.gz: must "):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["imagenet", "", None])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(InvalidInputError, match="one of digits, mnist, fashion-mnist, cifar10, qmnist, got"):
        load(name)


def test_the_store_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("FEWJOULES_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch.store() == tmp_path / ".cache" / "fewjoules"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert fetch.store() == Path("/caches/fewjoules")
    monkeypatch.setenv("FEWJOULES_DATA", "/data")
    assert fetch.store() == Path("/data")


def test_data_in_the_store_needs_no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("FEWJOULES_DATA", str(tmp_path))
    write_mnist(tmp_path / "mnist")
    assert load("mnist").name == "mnist"


def test_every_data_set_and_checksum_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    digests = {file.digest.removeprefix("sha256:") for files in SOURCES.values() for file in files}
    assert {word for word in (*DATASETS, *digests) if f"`{word}`" not in text} == set()
