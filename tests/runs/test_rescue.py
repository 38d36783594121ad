"""An error in the middle of a run loses no complete round, with a folder or without one."""

import errno
import json
import warnings

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.utils.data import Dataset

import fewjoules as fj
from fewjoules.engine.simulator.cuda.backend import CudaBackend
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.row_file import RowFile
from fewjoules.ledger.log import RowLog
from fewjoules.runs.saver import Checkpoints
from tests.engine.test_contract import without_gpu  # noqa: F401 - a fixture
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([6, 4, 5, 7], 4, 3, 1)
OPTIONS = {"local_steps": 2, "sparsity": 3.0, "rounds": 12, "learning_rate": 0.2, "batch_size": 2, "device": "cpu"}
OPTIONS |= {"inner": "momentum", "momentum": 0.9, "momentum_state": "kept", "participation": 0.75}
OPTIONS |= {"failure_probability": 0.2, "outer": "nesterov", "averaging": 0.2, "downlink_sparsity": 2.0}
OPTIONS |= {"clients_at_a_time": 1}
TABLES = ("metrics.parquet", "ledger.parquet", "model.safetensors")
BREAKS_IN = 7
CALLS = {
    "metric": 0,
    "data": 2,
    "data at once": 0,
    "store once": 2,
    "store": 2,
}  # that go well in the round that breaks
SAYS = "no such thing|No space left"


class BrokenError(Exception):
    """What the user's own code raises here."""


class Trouble:
    """Breaks in a round, after so many calls, ``once`` or from then on; ``round`` is the one that goes on."""

    def __init__(self, calls=0, number=BREAKS_IN, error=BrokenError, *, once=False):
        self.calls, self.number, self.error, self.once, self.round = calls, number, error, once, 1

    def note(self, report):
        self.round = report.round + 1

    def call(self):
        if self.round >= self.number:
            self.calls -= 1
            if self.calls == -1 or (self.calls < 0 and not self.once):
                raise self.error("no such thing")


class Rows(Dataset):
    """The samples of a client, of which reading one may break, or give another value."""

    def __init__(self, arrays, trouble=None):
        self.arrays, self.trouble = arrays, trouble

    def __len__(self):
        return len(self.arrays[1])

    def __getitem__(self, number):
        if self.trouble is not None:
            self.trouble.call()
        return tuple(array[number] for array in self.arrays)


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def given(metric=None, data=None):
    """The arguments of a run whose metric or whose data may break."""

    def errors(outputs, targets):
        if metric is not None:
            metric.call()
        return (outputs.argmax(1) != targets).float()

    clients = [Rows(arrays, data) for arrays in CLIENTS]
    return {"clients": clients, "data_memory_gib": 0, "test": CLIENTS[0], "metrics": {"errors": errors}}


def full_disk(trouble, monkeypatch):
    """Let writing a row break as on a full disk."""
    write = RowFile._write

    def broken(file, slot, row):
        trouble.call()
        return write(file, slot, row)

    monkeypatch.setattr(RowFile, "_write", broken)


def no_space(_text):
    return OSError(errno.ENOSPC, "No space left on device")


def broken(kind, evaluate_every, monkeypatch, **more):
    """Train until something breaks in round 7; return the error, and the last round that ended before.

    Data are read a round ahead while a round is still to be recorded, so that what cannot be read may be missed up to
    two rounds later.
    """
    place = kind.split()[0]
    error = no_space if place == "store" else BrokenError
    trouble = Trouble(CALLS[kind], error=error, once=kind == "store once")
    own = given(**{place: trouble} if place != "store" else {})
    with monkeypatch.context() as patch:
        if place == "store":
            full_disk(trouble, patch)
            more |= {"memory_gib": 0}
        with pytest.raises((fj.InvalidInputError, OSError), match=SAYS) as caught:
            fj.train(net(), **own, **OPTIONS, **more, evaluate_every=evaluate_every, on_round=trouble.note)
    last = trouble.round - 1
    assert BREAKS_IN - 1 <= last <= BREAKS_IN - 1 + 2 * ("data" in kind)
    return caught.value, last


@pytest.fixture(scope="module", params=[1, 7])
def whole(request, tmp_path_factory):
    """A run that is not disturbed: with 7, its rounds are recorded while the next one runs."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return fj.train(net(), **given(), **OPTIONS, evaluate_every=request.param, out=folder), request.param


@pytest.fixture
def gpu_stood_in(without_gpu, monkeypatch):  # noqa: F811
    """The GPU's backend on the processor; the kinds of backends that were made."""
    made = set()

    def new_backend(simulator, model, loss, _compiled, graphs, place):
        given = model, loss, simulator.federation, simulator.options, simulator.execution
        made.add(CudaBackend)
        return CudaBackend(*given, compiled=False, graphs=graphs, place=place)

    monkeypatch.setattr(Simulator, "_new_backend", new_backend)
    return made


def saved_round(folder):
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["fewjoules"])["round"]


def assert_same(folder, whole):
    for name in TABLES:
        assert (folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


@pytest.mark.parametrize("kind", CALLS)
def test_an_error_with_a_folder_loses_no_complete_round(kind, whole, tmp_path, monkeypatch):
    run, evaluate_every = whole
    folder = tmp_path / "run"
    error, last = broken(kind, evaluate_every, monkeypatch, out=folder)
    assert getattr(error, "run", None) is None
    last = 0 if kind == "store" else last  # the folder is on the disk that stays full
    assert saved_round(folder) == last
    rounds = []
    fj.resume(folder, model=net(), on_round=lambda report: rounds.append(report.round), **given())
    assert rounds == list(range(last + 1, 13))
    assert_same(folder, run)


@pytest.mark.parametrize("kind", CALLS)
def test_an_error_without_a_folder_carries_the_run_up_to_the_last_complete_round(kind, whole, monkeypatch):
    run, evaluate_every = whole
    error, last = broken(kind, evaluate_every, monkeypatch)
    assert error.__notes__ == [f"error.run of this exception is the run up to round {last}, the last complete one"]
    assert error.run.stop_reason == "error"
    shorter = fj.train(net(), **given(), **OPTIONS | {"rounds": last}, evaluate_every=evaluate_every)
    for name in ("metrics", "ledger"):
        rows = getattr(run, name)
        assert getattr(error.run, name).tobytes() == rows[rows["round"] <= last].tobytes()
    for found, expected in zip(error.run.model.state_dict().values(), shorter.model.state_dict().values(), strict=True):
        assert torch.equal(found, expected)


def test_an_error_before_the_first_complete_round_has_no_run():
    with pytest.raises(fj.FewJoulesError) as refused:
        fj.train(net(), **given(), **OPTIONS | {"rounds": -1})
    assert refused.value.run is None


def test_an_error_of_on_round_loses_no_complete_round(whole, tmp_path):
    run, evaluate_every = whole
    trouble = Trouble(number=BREAKS_IN + 1)

    def on_round(report):
        trouble.note(report)
        trouble.call()

    with pytest.raises(BrokenError):
        fj.train(net(), **given(), **OPTIONS, evaluate_every=evaluate_every, on_round=on_round, out=tmp_path / "run")
    assert saved_round(tmp_path / "run") == BREAKS_IN
    fj.resume(tmp_path / "run", model=net(), **given())
    assert_same(tmp_path / "run", run)


def test_a_callback_that_holds_no_rounds_loses_none(whole, tmp_path):
    class Breaks(fj.Callback):
        holds_rounds = False

        def on_round_end(self, run):
            if run.round == BREAKS_IN:
                raise BrokenError

    run, evaluate_every = whole
    with pytest.raises(BrokenError):
        fj.train(net(), **given(), **OPTIONS, evaluate_every=evaluate_every, callbacks=[Breaks()], out=tmp_path / "run")
    assert saved_round(tmp_path / "run") == BREAKS_IN
    fj.resume(tmp_path / "run", model=net(), **given())
    assert_same(tmp_path / "run", run)


def test_a_loss_that_is_not_a_number_loses_no_complete_round(whole, tmp_path):
    """Without a guard it ends the run; once the loss is right, the run goes on."""

    def loss(outputs, targets):
        each = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return each * (np.nan if trouble.round == BREAKS_IN else 1.0)

    options = OPTIONS | {"guard": False, "evaluate_every": whole[1], "loss": loss}
    trouble = Trouble()
    expected = fj.train(net(), **given(), **options, out=tmp_path / "whole")
    with pytest.raises(fj.DivergedError):
        fj.train(net(), **given(), **options, on_round=trouble.note, out=tmp_path / "run")
    assert saved_round(tmp_path / "run") == BREAKS_IN - 1
    trouble.round = 0
    fj.resume(tmp_path / "run", model=net(), **given(), loss=loss)
    assert_same(tmp_path / "run", expected)


def test_the_guard_goes_on_as_if_nothing_had_happened(tmp_path):
    """A run that returns once breaks around that round.

    Only an evaluation that breaks just after the return goes back to the last checkpoint.
    """
    jump = {"learning_rate": lambda number: 1e20 if number == 11 else 0.2}
    options = OPTIONS | jump | {"rounds": 16, "evaluate_every": 1}
    with pytest.warns(fj.FewJoulesWarning, match="the guard returns"):
        expected = fj.train(net(), **given(), **options, out=tmp_path / "whole")
    assert expected.returns
    (returned,) = expected.returns
    for number in (returned, returned + 1):
        for kind in ("metric", "data"):
            trouble, folder = Trouble({"metric": 0, "data": 2}[kind], number), tmp_path / f"{kind} {number}"
            own = given(**{kind: trouble})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fj.FewJoulesWarning)
                with pytest.raises(fj.InvalidInputError, match=SAYS):
                    fj.train(net(), **own, **options, on_round=trouble.note, out=folder)
                just_after = (kind, number) == ("metric", returned)
                assert saved_round(folder) == (0 if just_after else trouble.round - 1)
                fj.resume(folder, model=net(), **given(), **jump)
            assert_same(folder, expected)


def test_a_disk_that_stays_full_leaves_the_last_checkpoint_and_the_first_error(whole, tmp_path, monkeypatch):
    run, evaluate_every = whole
    folder, trouble = tmp_path / "run", Trouble()
    with monkeypatch.context() as patch:

        def full(*_):
            raise no_space("")

        def note(report):
            trouble.note(report)
            if report.round == 3:
                patch.setattr(Checkpoints, "save", full)

        own = given(data=trouble)
        with pytest.raises(fj.InvalidInputError, match=SAYS):
            fj.train(net(), **own, **OPTIONS, evaluate_every=evaluate_every, on_round=note, out=folder)
    assert trouble.round >= BREAKS_IN
    assert saved_round(folder) == 0
    fj.resume(folder, model=net(), **given())
    assert_same(folder, run)


def test_a_round_that_is_half_recorded_is_not_saved(whole, tmp_path, monkeypatch):
    run, evaluate_every = whole
    append = RowLog.append

    def half(log, rows):
        if log.table.name == "metrics" and rows["round"][0] == BREAKS_IN:
            raise BrokenError
        append(log, rows)

    with monkeypatch.context() as patch:
        patch.setattr(RowLog, "append", half)
        with pytest.raises(BrokenError):
            fj.train(net(), **given(), **OPTIONS, evaluate_every=evaluate_every, out=tmp_path / "run")
    assert saved_round(tmp_path / "run") == 0
    fj.resume(tmp_path / "run", model=net(), **given())
    assert_same(tmp_path / "run", run)


def test_the_backend_of_a_gpu_takes_a_round_back(gpu_stood_in, tmp_path, monkeypatch):
    """It records a round while the next one runs, and an error may come before that."""
    monkeypatch.setitem(OPTIONS, "rounds", 9)
    expected = fj.train(net(), **given(), **OPTIONS, evaluate_every=7, out=tmp_path / "whole")
    for kind in ("metric", "data"):
        _, told = broken(kind, 7, monkeypatch, out=tmp_path / kind)
        assert saved_round(tmp_path / kind) in (told, told + 1)
        fj.resume(tmp_path / kind, model=net(), **given())
        assert_same(tmp_path / kind, expected)
    assert gpu_stood_in == {CudaBackend}


def test_an_error_in_the_first_round_has_nothing_to_keep():
    with pytest.raises(fj.InvalidInputError, match=SAYS) as caught:
        fj.train(net(), **given(metric=Trouble(0, 1)), **OPTIONS)
    assert caught.value.run is None
