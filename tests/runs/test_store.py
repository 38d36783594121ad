"""What clients keep on disk: a run that spills ends with the same bytes, and a full disk loses nothing."""

import errno

import numpy as np
import pytest
import torch

import fewjoules as fj
from fewjoules.engine.store.row_file import RowFile
from tests.runs.test_resume import EVERY_ROUND, lively, results
from tests.test_bad_input import run, write

SMALL = {"local_steps": 1, "sparsity": 3.0, "rounds": 14, "learning_rate": 0.1, "batch_size": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    scenario = write(place, lively("momentum_state = 'kept'", rounds=4))
    assert run("train", scenario, "--out", place / "run", *EVERY_ROUND).exit_code == 0
    return scenario, place / "run"


def test_a_run_without_memory_for_its_clients_ends_with_the_same_bytes(whole, tmp_path):
    scenario, expected = whole
    assert run("train", scenario, "--out", tmp_path / "run", *EVERY_ROUND, "--memory-gib", "0").exit_code == 0
    assert results(tmp_path / "run") == results(expected)
    assert not list((tmp_path / "run").glob("*.rows"))


@pytest.mark.parametrize("writes", [0, 3, 7])
def test_a_full_disk_under_the_store_is_one_sentence_and_the_run_goes_on(writes, whole, tmp_path, monkeypatch):
    scenario, expected = whole
    folder, done, write_row = tmp_path / "run", [], RowFile._write

    def full(file, slot, row):
        if len(done) == writes:
            raise OSError(errno.ENOSPC, "No space left on device", str(file.path))
        done.append(slot)
        return write_row(file, slot, row)

    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "_write", full)
        stopped = run("train", scenario, "--out", folder, *EVERY_ROUND, "--memory-gib", "0")
    assert stopped.exit_code == 1
    assert stopped.stderr.count("\n") == 1
    assert f"{folder}: " in stopped.stderr or f"{folder}/checkpoint-clients-1.rows: " in stopped.stderr
    assert f"free some space and run fewjoules train --resume {folder}" in stopped.stderr
    assert run("train", "--resume", folder, "--device", "cpu").exit_code == 0
    assert results(folder) == results(expected)


def clients():
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(4, 5)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(9)]


def test_memory_is_no_part_of_what_is_trained(tmp_path):
    model = torch.nn.Linear(5, 3)
    usual, spilled = (
        fj.train(model, clients=clients(), participation=0.4, **SMALL, **more)
        for more in ({}, {"memory_gib": 1e-7, "store_dir": tmp_path})
    )
    assert torch.equal(usual.model.weight, spilled.model.weight)
    assert usual.ledger.tobytes() == spilled.ledger.tobytes()


def test_bfloat16_trains_nearly_the_same_and_is_another_run():
    model = torch.nn.Linear(5, 3)
    exact, rounded = (fj.train(model, clients=clients(), kept_values=kind, **SMALL) for kind in ("float32", "bfloat16"))
    assert not torch.equal(exact.model.weight, rounded.model.weight)
    torch.testing.assert_close(exact.model.weight, rounded.model.weight, rtol=0.0, atol=0.01)


def test_values_that_nobody_can_keep_are_refused():
    with pytest.raises(fj.InvalidInputError, match=r"kept_values must be .*bfloat16.*float8"):
        fj.train(torch.nn.Linear(5, 3), clients=clients(), kept_values="float8", **SMALL)


# Very many clients.


def test_slices_of_shared_samples_are_clients_like_others():
    rng = np.random.default_rng(2)
    data = rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, 30)
    starts, sizes = np.array([0, 5, 12, 8]), np.array([5, 7, 18, 9])
    slices = fj.ClientSlices(starts, sizes)
    apart = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    assert [part.tolist() for part in slices] == [part.tolist() for part in apart]
    model = torch.nn.Linear(5, 3)
    one, other = (fj.train(model, clients=clients, data=data, **SMALL) for clients in (slices, apart))
    assert torch.equal(one.model.weight, other.model.weight)
    assert one.ledger.tobytes() == other.ledger.tobytes()


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (29, 2), (3, 0)])
def test_slices_that_are_not_of_the_samples_are_refused(start, size):
    data = np.zeros((30, 5), np.float32), np.zeros(30, np.int64)
    slices = fj.ClientSlices(np.array([0, start]), np.array([4, size]))
    with pytest.raises(fj.InvalidInputError, match=rf"clients\[1\] must be .* got {size} from number {start} on"):
        fj.train(torch.nn.Linear(5, 3), clients=slices, data=data, **SMALL)


def test_slices_may_be_lists_or_numbers_of_other_types():
    for starts, sizes in (
        ([0, 50], [50, 50]),
        (np.array([0, 50], np.uint16), torch.tensor([50, 50], dtype=torch.int32)),
    ):
        slices = fj.ClientSlices(starts, sizes)
        assert slices.starts.dtype == slices.sizes.dtype == np.int64
        assert [part.tolist() for part in slices] == [list(range(50)), list(range(50, 100))]


@pytest.mark.parametrize(
    ("starts", "sizes", "says"),
    [
        ([0, 50], [50], "starts and sizes of clients must be equally long, got 2 and 1"),
        ([0.5], [50], r"starts of clients must be a list of whole numbers, got \[0.5\]"),
        ([0], None, "sizes of clients must be a list of whole numbers, got None"),
        (0, 50, "starts of clients must be a list of whole numbers, got 0"),
        ([[0], [1, 2]], [1, 2], "starts of clients must be a list of whole numbers"),
    ],
)
def test_slices_of_other_than_whole_numbers_are_refused(starts, sizes, says):
    with pytest.raises(fj.InvalidInputError, match=says):
        fj.ClientSlices(starts, sizes)


def test_slices_of_a_table_are_refused_on_one_line():
    with pytest.raises(fj.InvalidInputError, match=r"got array\(\[\[0, 0\], \[0, 0\]\]\)$"):
        fj.ClientSlices(np.zeros((2, 2), int), [1, 1])


def test_a_hundred_thousand_clients_keep_what_those_keep_that_took_part(tmp_path):
    """Three clients a round: three ledger rows, and a checkpoint far smaller than a number for each client."""
    many = 100_000
    slices = fj.ClientSlices(np.arange(many) % 20, np.full(many, 4))
    data = np.ones((30, 5), np.float32), np.zeros(30, np.int64)
    fleet = fj.Fleet(joules_per_bit=np.full(many, 1e-7), joules_per_step=1e-3)
    told = SMALL | {"participation": 3 / many, "rounds": 4, "out": tmp_path / "run", "checkpoint_seconds": 0.0}
    sizes = []

    class Watch(fj.Callback):
        def on_save_checkpoint(self, run):
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "run").glob("checkpoint*")))

    run = fj.train(torch.nn.Linear(5, 3), clients=slices, data=data, fleet=fleet, callbacks=[Watch()], **told)
    assert run.ledger.size == 12
    assert max(sizes) < 100_000
