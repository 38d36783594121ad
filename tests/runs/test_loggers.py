"""Loggers as callbacks: what other programs read is what the tables of the run hold."""

import sys
import time

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.errors import MissingLibraryError
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([5, 3, 4], 4, 3, 1)


def train(**changes):
    options = {"local_steps": 2, "sparsity": 2.0, "rounds": 4, "learning_rate": 0.1, "batch_size": 2, "device": "cpu"}
    options |= {"test": CLIENTS[0], "evaluate_every": 2}
    return fj.train(reference.seeded_module(reference.SoftmaxRegression(4, 3), 1), clients=CLIENTS, **options | changes)


def scalars(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {one.step: one.value for one in events.Scalars(name)}


def test_tensorboard_has_every_round_and_the_evaluations_where_they_were(tmp_path):
    run = train(callbacks=[fj.loggers.TensorBoard(tmp_path / "events")])
    losses = run.metrics["train_loss"].astype(np.float32)
    assert scalars(tmp_path / "events", "train/loss") == {number: losses[number - 1] for number in (1, 2, 3, 4)}
    tested = run.metrics["test_loss"].astype(np.float32)
    assert scalars(tmp_path / "events", "test/loss") == {2: tested[1], 4: tested[3]}


class Fails(fj.Callback):
    def on_round_end(self, run):
        if run.round == 3:
            raise LookupError("mine")


def test_tensorboard_closes_its_file_when_a_run_fails(tmp_path):
    with pytest.raises(LookupError):
        train(callbacks=[fj.loggers.TensorBoard(tmp_path), Fails()])
    assert list(scalars(tmp_path, "train/loss")) == [1, 2, 3]


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")


def assert_wandb_writes(folder, *texts):
    """Wait for the texts in the one offline run below a folder: its service writes the file after the run has ended."""
    (file,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    missing, until = list(texts), time.monotonic() + 30.0
    while missing and time.monotonic() < until:
        written = file.read_bytes()
        missing = [text for text in missing if text.encode() not in written]
        time.sleep(0.05)
    assert missing == []


def test_wandb_gets_the_options_every_round_and_the_end(quiet, tmp_path):
    logged = []

    class Noted(fj.loggers.WandB):
        """Keeps what is logged, beside logging it."""

        def on_round_end(self, run):
            super().on_round_end(run)
            logged.append((run.round, self._evaluated, dict(self._run.config)))

    run = train(callbacks=[Noted("energy", dir=tmp_path, name="mine", config={"site": "north"})])
    assert [number for number, _, _ in logged] == [1, 2, 3, 4]
    config = logged[0][2]
    assert (config["local_steps"], config["sparsity"], config["site"]) == (2, [2.0, 2.0, 2.0], "north")
    loss = repr(float(run.metrics["train_loss"][2]))
    assert_wandb_writes(tmp_path, "train/loss", "test/accuracy", "uplink/total_bits", "stop_reason", loss)


def test_wandb_finishes_a_run_that_fails(quiet, tmp_path):
    logger = fj.loggers.WandB("energy", mode="disabled", dir=tmp_path)
    with pytest.raises(LookupError):
        train(callbacks=[logger, Fails()])
    assert logger._run is None


@pytest.mark.parametrize(("package", "name"), [("tensorboard", "TensorBoard"), ("wandb", "wandb")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    logger = {"tensorboard": fj.loggers.TensorBoard, "wandb": fj.loggers.WandB}[package]
    with pytest.raises(MissingLibraryError, match=rf"needs {name}: pip install 'fewjoules\[{package}\]'"):
        logger(tmp_path)
