"""Checkpoints: what is loaded is what was saved, and nothing else is ever loaded."""

import errno
import functools
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.loop import TrainingLoop
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint, save_tensors

CPU = torch.device("cpu")
IDENTITY = {
    "fewjoules version": "1.2.3",
    "data": "abc",
    "fleet": {"joules_per_bit": [0.1, 0.2]},
    "training": {"seed": 7},
}
TENSORS = ("weights", "memories", "buffers", "synced", "mean_update")


def make_loop(rounds=3, **changes):
    """A run of two clients with every part of the state in use, BatchNorm's buffers too."""
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(20, 4)).astype(np.float32))
    targets = torch.from_numpy(rng.integers(0, 3, 20))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
    given = {
        "local_steps": 2,
        "sparsity": np.array([2.0, 5.0]),
        "rounds": rounds,
        "learning_rate": 0.1,
        "batch_size": 4,
    }
    given |= {"downlink": "charged", "failure_probability": 0.3} | changes
    costs = {"joules_per_bit": [1e-7, 2e-7], "joules_per_step": [1e-3, 2e-3], "downlink_joules_per_bit": 1e-8}
    times = {"seconds_per_bit": 1e-6, "seconds_per_step": [0.01, 0.02], "downlink_seconds_per_bit": 1e-7}
    fleet = Fleet(**costs, **times)
    federation = Federation(Samples(inputs, targets), [np.arange(10), np.arange(10, 20)])
    simulator = Simulator(model, federation, TrainingOptions(**given), loss=cross_entropy, fleet=fleet)
    evaluator = simulator.evaluator(model, cross_entropy, Samples(inputs, targets))
    return TrainingLoop(simulator, evaluator, RowLog(None, LEDGER), RowLog(None, METRICS))


@pytest.fixture(scope="module")
def loop():
    made = make_loop()
    made.run()
    yield made
    made.simulator.close()


@pytest.fixture
def saved(loop, tmp_path):
    save_checkpoint(tmp_path / "checkpoint", loop, IDENTITY)
    return tmp_path / "checkpoint"


@pytest.fixture(scope="module")
def good_bytes(loop, tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "checkpoint"
    save_checkpoint(path, loop, IDENTITY)
    return path.read_bytes()


@functools.cache
def fresh():
    """A state of the same run before its first round."""
    made = make_loop()
    made.simulator.close()
    return made.simulator.state


def header_of(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["fewjoules"])


def rewrite(path, header=None, **tensors):
    """The same file with another header or other tensors; None takes a tensor out."""
    kept = {name: tensor for name, tensor in (load_file(path) | tensors).items() if tensor is not None}
    save_file(kept, path, {"fewjoules": json.dumps(header_of(path) if header is None else header)})


def assert_refused(path, *says, identity=IDENTITY):
    before = path.read_bytes()
    with pytest.raises(InvalidInputError) as refusal:
        load_checkpoint(path, identity, fresh())
    assert "\n" not in str(refusal.value)
    for part in (str(path), *says):
        assert part in str(refusal.value)
    assert path.read_bytes() == before


def test_what_is_loaded_is_what_was_saved(loop, saved):
    state, rest = load_checkpoint(saved, IDENTITY, fresh())
    before = loop.simulator.state
    assert before.round == state.round == 3
    for name in ("weights", "memories", "buffers"):
        assert getattr(before, name).numel() > 0
        assert torch.equal(getattr(state, name), getattr(before, name))
    for name in ("synced", "mean_update"):
        assert getattr(before, name).any()
        np.testing.assert_array_equal(getattr(state, name), getattr(before, name), strict=True)
    assert asdict(rest["totals"]) == asdict(loop.totals)
    assert rest["last_test"] == loop.last_test


def test_values_that_are_not_finite_survive(loop, tmp_path):
    """Seconds are unknown without times, and the last evaluation before the first one."""
    unknown = replace_totals(loop, seconds=float("nan"))
    save_checkpoint(tmp_path / "checkpoint", unknown, IDENTITY)
    _, rest = load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh())
    assert np.isnan(rest["totals"].seconds)
    assert np.isnan(rest["last_test"]).all()


def replace_totals(loop, **changes):
    return TrainingLoop(
        loop.simulator, None, RowLog(None, LEDGER), RowLog(None, METRICS), replace(loop.totals, **changes)
    )


def test_a_run_that_goes_on_from_a_checkpoint_ends_like_one_that_never_stopped(loop, tmp_path):
    """Loaded into a new simulator, at every round."""
    for stop in (1, 2):
        first = make_loop()
        first.should_stop = lambda loop=first, stop=stop: loop.simulator.state.round == stop
        assert first.run() == "interrupted"
        save_checkpoint(tmp_path / "checkpoint", first, IDENTITY)
        first.simulator.close()
        second = make_loop()
        second.simulator.state, rest = load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh())
        second.totals = rest["totals"]
        second.run()
        second.simulator.close()
        for name in ("weights", "memories", "buffers"):
            assert torch.equal(getattr(second.simulator.state, name), getattr(loop.simulator.state, name))
        assert asdict(second.totals) == asdict(loop.totals)
        assert second.ledger.rows().tobytes() == loop.ledger.rows()[loop.ledger.rows()["round"] > stop].tobytes()


def test_the_same_state_gives_the_same_bytes(loop, saved, tmp_path):
    save_checkpoint(tmp_path / "again", loop, IDENTITY)
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fewjoules version": "1.2.4"}, "fewjoules version was '1.2.3', and is '1.2.4' now"),
        ({"data": "abd"}, "data was 'abc', and is 'abd' now"),
        ({"fleet": {"joules_per_bit": [0.1, 0.3]}}, "fleet.joules_per_bit was [0.1, 0.2], and is [0.1, 0.3] now"),
        ({"fleet": {"joules_per_bit": None}}, "fleet.joules_per_bit was [0.1, 0.2], and is None now"),
        ({"training": {"seed": 8}}, "training.seed was 7, and is 8 now"),
        ({"training": {"seed": 7, "levels": 3}}, "training.levels was None, and is 3 now"),
        ({"training": {}}, "training.seed was 7, and is None now"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(changes, says, saved):
    assert_refused(saved, "another run", says, identity=IDENTITY | changes)


def test_a_long_difference_is_shortened(saved):
    with pytest.raises(InvalidInputError) as refusal:
        load_checkpoint(saved, IDENTITY | {"data": "x" * 10_000}, fresh())
    assert len(str(refusal.value)) < len(str(saved)) + 250


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused(version, saved):
    rewrite(saved, header_of(saved) | {"version": version})
    assert_refused(saved, "version", "must be 1", f"got {version!r}")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_truncated_checkpoint_is_refused(data, good_bytes, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "checkpoint"
    path.write_bytes(good_bytes[: data.draw(st.integers(0, len(good_bytes) - 1))])
    assert_refused(path, "must be a checkpoint")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "checkpoint"
    path.write_bytes(data)
    assert_refused(path)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="nothing"):
        load_checkpoint(tmp_path / "nothing", IDENTITY, fresh())


def test_the_tensors_of_another_program_are_refused(tmp_path):
    save_file({"weights": torch.zeros(3)}, tmp_path / "other")
    assert_refused(tmp_path / "other", "version", "got None")


UNCHECKED = "only the version and the identity are checked; the rest ends in a traceback or is believed"


@pytest.mark.parametrize("name", TENSORS)
def test_a_checkpoint_that_lacks_a_tensor_is_refused(name, saved):
    rewrite(saved, **{name: None})
    assert_refused(saved, name)


@pytest.mark.parametrize("key", ["round", "totals", "last_test", "identity"])
def test_a_checkpoint_that_lacks_a_key_is_refused(key, saved):
    header = header_of(saved)
    del header[key]
    rewrite(saved, header)
    assert_refused(saved, key)


@pytest.mark.parametrize("header", [[], 3, None, "text"])
def test_a_header_that_is_no_table_is_refused(header, saved):
    save_file(load_file(saved), saved, {"fewjoules": json.dumps(header)})
    assert_refused(saved)


def test_a_tensor_of_another_kind_is_refused(saved):
    rewrite(saved, weights=torch.zeros(3, dtype=torch.int32))
    assert_refused(saved, "weights")


def test_a_flipped_bit_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    data[-100] ^= 1
    saved.write_bytes(bytes(data))
    assert_refused(saved)


# Files that appear whole or not at all.


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_checkpoint_before_and_nothing_else(operation, loop, saved, monkeypatch):
    def fail(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr(os, operation, fail)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(saved, replace_totals(loop, joules=1.0), IDENTITY)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["checkpoint"]


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system_that_names_the_file(tmp_path):
    with pytest.raises(OSError, match=r"missing/\.model"):
        save_tensors(tmp_path / "missing" / "model", {"weights": torch.zeros(3)}, {})


def test_a_tensor_that_is_a_view_is_saved_as_it_looks(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    save_tensors(tmp_path / "model", {"column": whole[:, 1], "turned": whole.T}, {"by": "test"})
    loaded = load_file(tmp_path / "model")
    assert torch.equal(loaded["column"], whole[:, 1])
    assert torch.equal(loaded["turned"], whole.T)


WATCH = """
import os, sys
print("watching", flush=True)
seen = set()
while "whole" not in seen:
    seen |= set(os.listdir(sys.argv[1]))
print(*sorted(seen))
"""


def test_a_file_is_written_under_a_name_that_a_resumed_run_knows(tmp_path):
    command = [sys.executable, "-S", "-c", WATCH, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        try:
            assert watcher.stdout.readline() == "watching\n"
            save_tensors(tmp_path / "whole", {"weights": torch.zeros(10_000_000)}, {})
            assert set(watcher.stdout.readline().split()) <= {".whole.partial", "whole"}
        finally:
            watcher.kill()


def test_files_have_the_permissions_of_other_files(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    save_tensors(tmp_path / "model", {"weights": torch.zeros(3)}, {})
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode
