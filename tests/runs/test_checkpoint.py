"""Checkpoints: what is loaded is what was saved, and nothing else is ever loaded."""

import errno
import functools
import json
import os
import subprocess
import sys
import zlib
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.row_file import RowFile
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint, save_tensors
from fewjoules.runs.tensor_file import checksum

IDENTITY = {
    "fewjoules version": "1.2.3",
    "data": "abc",
    "fleet": {"joules_per_bit": [0.1, 0.2]},
    "training": {"seed": 7},
}
STATE = ("weights", "buffers", "accepted", "synced", "broadcast", "residual", "changed")
SERVER = (*STATE, "knows", "outer.velocity", "outer.squares")
CLIENTS = ("numbers", "steps", "slots", "checksums")
TENSORS = (*SERVER, *(f"clients.{name}" for name in CLIENTS))
FIXED = "fixed.1.num_batches_tracked"
GUARD = tuple(f"guard.good.{name}" for name in (*STATE, "knows", *TENSORS[-4:]))  # of the first model
EVERYTHING = {"outer": "adam", "outer_rate": 0.01, "inner": "adamw", "momentum_state": "kept"}
EVERYTHING |= {"downlink_sparsity": 3.0, "downlink_values": "int8"}


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
    given |= {"downlink": "charged", "failure_probability": 0.3} | EVERYTHING | changes
    costs = {"joules_per_bit": [1e-7, 2e-7], "joules_per_step": [1e-3, 2e-3], "downlink_joules_per_bit": 1e-8}
    times = {"seconds_per_bit": 1e-6, "seconds_per_step": [0.01, 0.02], "downlink_seconds_per_bit": 1e-7}
    fleet = Fleet(**costs, **times)
    federation = Federation(Samples(inputs, targets), [np.arange(10), np.arange(10, 20)])
    simulator = Simulator(model, federation, TrainingOptions.of(**given), loss=cross_entropy, fleet=fleet)
    evaluator = simulator.evaluator(model, cross_entropy, Samples(inputs, targets))
    return TrainingLoop(simulator, RowLog(None, LEDGER), RowLog(None, METRICS), evaluator)


def everything(simulator):
    """All that is saved, by the names of the format."""
    state = simulator.state
    found = {name: torch.as_tensor(np.asarray(getattr(state, name))) for name in STATE}
    found |= {f"outer.{name}": tensor for name, tensor in state.outer.items()}
    return found | {f"clients.{name}": tensor for name, tensor in simulator.backend.save().tensors().items()}


def assert_same(one, other):
    assert one.state.round == other.state.round
    there, here = everything(one), everything(other)
    assert there.keys() == here.keys()
    for name, tensor in there.items():
        assert tensor.dtype == here[name].dtype
        assert torch.equal(tensor, here[name]), name


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


def fresh(**changes):
    """A simulator of the same run before its first round."""
    made = make_loop(**changes)
    made.simulator.close()
    return made.simulator


@functools.cache
def untouched():
    """A fresh simulator into which nothing is ever loaded."""
    return fresh()


def header_of(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["fewjoules"])


def rewrite(path, header=None, **tensors):
    """The same file with another header or other tensors; None takes a tensor out."""
    kept = {name: tensor for name, tensor in (load_file(path) | tensors).items() if tensor is not None}
    save_sealed(kept, path, header_of(path) if header is None else header)


def save_sealed(tensors, path, header):
    text = json.dumps(header)
    save_file(tensors, path, {"fewjoules": text, "checksum": f"{zlib.crc32(text.encode()):010d}"})


def rows_of(path):
    """The file of rows beside a checkpoint."""
    return path.with_name(header_of(path)["rows"]["file"])


def assert_refused(path, *says, identity=IDENTITY):
    before = path.read_bytes()
    with pytest.raises(InvalidInputError) as refusal:
        load_checkpoint(path, identity, untouched())
    assert "\n" not in str(refusal.value)
    for part in (str(path), *says):
        assert part in str(refusal.value)
    assert path.read_bytes() == before
    assert untouched().state.round == 0
    assert untouched().backend.save().tensors()["numbers"].numel() == 0


def test_what_is_loaded_is_what_was_saved(loop, saved):
    simulator = fresh()
    rest = load_checkpoint(saved, IDENTITY, simulator)
    assert simulator.state.round == 3
    assert_same(simulator, loop.simulator)
    assert all(tensor.any() for tensor in everything(loop.simulator).values())
    assert asdict(rest["totals"]) == asdict(loop.totals)
    assert rest["last_test"] == loop.last_test
    assert rest["reason"] is None


def test_the_time_and_the_joules_by_which_participants_are_drawn_are_saved(tmp_path):
    always = {"availability": [(0, 0.0, 1e6), (1, 0.0, 1e6)]}
    timed = make_loop(rounds=2, **always)
    timed.run()
    timed.simulator.close()
    save_checkpoint(tmp_path / "checkpoint", timed, IDENTITY)
    simulator = fresh(rounds=2, **always)
    load_checkpoint(tmp_path / "checkpoint", IDENTITY, simulator)
    books, before = simulator.sampler.books, timed.simulator.sampler.books
    assert books.clock == before.clock == timed.totals.seconds > 0.0
    np.testing.assert_array_equal(books.spent_joules, before.spent_joules)
    assert before.spent_joules.sum() == pytest.approx(timed.totals.joules)
    header = header_of(tmp_path / "checkpoint")
    for clock in (None, "soon", (-1.0).hex(), float("inf").hex()):
        rewrite(tmp_path / "checkpoint", header=header | {"clock": clock})
        with pytest.raises(InvalidInputError, match="the header of the checkpoint is not one"):
            load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh(rounds=2, **always))
    rewrite(tmp_path / "checkpoint", header=header, spent_joules=None)
    with pytest.raises(InvalidInputError, match="lacks spent_joules"):
        load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh(rounds=2, **always))


def test_a_checkpoint_holds_these_tensors_and_no_others(saved):
    assert sorted(load_file(saved)) == sorted([*TENSORS, FIXED, *GUARD])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"outer": "none"}, ["outer.velocity", "outer.squares"]),
        ({"outer": "nesterov"}, ["outer.squares"]),
        ({"error_feedback": False}, ["residual"]),
        ({"inner": "momentum"}, ["squares"]),
        ({"inner": "sgd", "momentum_state": None}, ["velocity", "squares"]),
    ],
    ids=str,
)
def test_what_the_options_do_not_ask_for_is_not_saved(changes, names, tmp_path):
    small = make_loop(rounds=1, **changes)
    small.run()
    small.simulator.close()
    save_checkpoint(tmp_path / "checkpoint", small, IDENTITY)
    gone = {name for name in names if name.startswith("outer.")}
    assert set(load_file(tmp_path / "checkpoint")) == {*TENSORS, FIXED, *GUARD} - gone
    kept = [name for name in ("residual", "velocity", "squares") if name not in names]
    assert header_of(tmp_path / "checkpoint")["rows"]["row_bytes"] == 4 * small.simulator.parameters.size * len(kept)
    simulator = fresh(rounds=1, **changes)
    load_checkpoint(tmp_path / "checkpoint", IDENTITY, simulator)
    assert_same(simulator, small.simulator)


def test_only_clients_that_took_part_are_saved(tmp_path):
    half = make_loop(rounds=1, participation=0.5)
    half.run()
    half.simulator.close()
    save_checkpoint(tmp_path / "checkpoint", half, IDENTITY)
    tensors = load_file(tmp_path / "checkpoint")
    assert tensors["clients.numbers"].tolist() == half.ledger.rows()["device"].tolist()
    assert rows_of(tmp_path / "checkpoint").stat().st_size == 3 * 4 * half.simulator.parameters.size
    simulator = fresh(rounds=1, participation=0.5)
    load_checkpoint(tmp_path / "checkpoint", IDENTITY, simulator)
    assert_same(simulator, half.simulator)


@pytest.mark.parametrize(
    ("changes", "empty"),
    [
        ({"downlink": "free"}, {"broadcast", "changed"}),
        ({"downlink_sparsity": 1.0, "downlink_values": "float32"}, {"residual"}),
        ({}, set()),
    ],
    ids=["free", "exact", "everything"],
)
def test_what_the_downlink_does_not_need_is_saved_empty(tmp_path, changes, empty):
    loop = make_loop(rounds=2, **changes)
    loop.run()
    loop.simulator.close()
    save_checkpoint(tmp_path / "checkpoint", loop, IDENTITY)
    found = load_file(tmp_path / "checkpoint")
    assert {name for name in ("broadcast", "residual", "changed") if not found[name].numel()} == empty
    load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh(rounds=2, **changes))


@pytest.mark.parametrize("name", ["residual", "changed"])
def test_a_server_that_needs_it_does_not_go_on_without(name, saved):
    found = load_file(saved)[name]
    header = header_of(saved)
    header["checksums"][name] = 0
    rewrite(saved, header, **{name: found[:0]})
    assert_refused(saved, f"{name} must be {found.dtype} of shape ({found.numel()},)", "shape (0,)")


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    loop = make_loop(averaging=0.3)
    loop.run()
    loop.simulator.close()
    path = tmp_path_factory.mktemp("averaged") / "checkpoint"
    save_checkpoint(path, loop, IDENTITY)
    return path


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("weights", lambda found: found.double()),
        ("weights", lambda found: found[:-1]),
        ("buffers", lambda found: found[None]),
        ("models", lambda found: found.int()),
        ("models", lambda found: found[0]),
    ],
    ids=["weights of another type", "too few weights", "buffers of another shape", "type of models", "shape of models"],
)
def test_a_mean_of_another_type_or_shape_is_refused(name, changed, averaged, tmp_path):
    header, tensors = header_of(averaged), load_file(averaged)
    other = changed(tensors[f"average.{name}"]).contiguous()
    header["checksums"][f"average.{name}"] = checksum(other)
    save_sealed(tensors | {f"average.{name}": other}, tmp_path / "checkpoint", header)
    rows_of(tmp_path / "checkpoint").write_bytes(rows_of(averaged).read_bytes())
    simulator = fresh(averaging=0.3)
    with pytest.raises(
        InvalidInputError, match=rf"average\.{name} must be torch\.\w+ of shape \(\d+,\), got"
    ) as refusal:
        load_checkpoint(tmp_path / "checkpoint", IDENTITY, simulator)
    assert f"got {other.dtype} of shape {tuple(other.shape)}" in str(refusal.value)
    assert simulator.state.round == 0
    load_checkpoint(averaged, IDENTITY, simulator)
    assert simulator.state.round == 3


def test_a_broadcast_that_is_the_velocity_of_the_outer_optimiser_is_saved_beside_it(tmp_path):
    changes = {"outer": "momentum", "outer_rate": 1.0}
    begun = make_loop(**changes)
    begun.run()
    save_checkpoint(tmp_path / "checkpoint", begun, IDENTITY)
    begun.simulator.close()
    simulator = fresh(**changes)
    load_checkpoint(tmp_path / "checkpoint", IDENTITY, simulator)
    assert_same(simulator, begun.simulator)


def test_values_that_are_not_finite_survive(loop, tmp_path):
    """Seconds are unknown without times, and the last evaluation before the first one."""
    unknown = replace_totals(loop, seconds=float("nan"))
    save_checkpoint(tmp_path / "checkpoint", unknown, IDENTITY)
    rest = load_checkpoint(tmp_path / "checkpoint", IDENTITY, fresh())
    assert np.isnan(rest["totals"].seconds)
    assert np.isnan(rest["last_test"]).all()


def replace_totals(loop, **changes):
    totals = replace(loop.totals, **changes)
    return TrainingLoop(loop.simulator, RowLog(None, LEDGER), RowLog(None, METRICS), totals=totals)


def test_a_run_that_goes_on_from_a_checkpoint_ends_like_one_that_never_stopped(loop, tmp_path):
    """Loaded into a new simulator, at every round."""
    for stop in (1, 2):
        first = make_loop()
        first.should_stop = lambda loop=first, stop=stop: loop.simulator.state.round == stop
        assert first.run() == "interrupted"
        save_checkpoint(tmp_path / "checkpoint", first, IDENTITY)
        first.simulator.close()
        second = make_loop()
        rest = load_checkpoint(tmp_path / "checkpoint", IDENTITY, second.simulator)
        second.totals = rest["totals"]
        second.run()
        second.simulator.close()
        assert_same(second.simulator, loop.simulator)
        assert asdict(second.totals) == asdict(loop.totals)
        assert second.ledger.rows().tobytes() == loop.ledger.rows()[loop.ledger.rows()["round"] > stop].tobytes()


def test_the_same_state_gives_the_same_bytes(loop, saved, tmp_path):
    before, again = rows_of(saved).read_bytes(), tmp_path / "again" / saved.name
    again.parent.mkdir()
    save_checkpoint(again, loop, IDENTITY)
    assert again.read_bytes() == saved.read_bytes()
    assert rows_of(again).read_bytes() == before


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
        load_checkpoint(saved, IDENTITY | {"data": "x" * 10_000}, untouched())
    assert len(str(refusal.value)) < len(str(saved)) + 250


@pytest.mark.parametrize("version", [0, 4, 5, "6", None])
def test_another_version_is_refused(version, saved):
    rewrite(saved, header_of(saved) | {"version": version})
    assert_refused(saved, "version", "must be 6", f"got {version!r}")


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
        load_checkpoint(tmp_path / "nothing", IDENTITY, untouched())


def test_the_tensors_of_another_program_are_refused(tmp_path):
    save_file({"weights": torch.zeros(3)}, tmp_path / "other")
    assert_refused(tmp_path / "other", "version", "got None")


@pytest.mark.parametrize("name", [*TENSORS, *GUARD])
def test_a_checkpoint_that_lacks_a_tensor_is_refused(name, saved):
    rewrite(saved, **{name: None})
    assert_refused(saved, name)


def test_a_checkpoint_that_lacks_the_only_moment_of_the_outer_optimiser_is_refused(tmp_path):
    begun = make_loop(outer="nesterov")
    begun.run()
    save_checkpoint(tmp_path / "checkpoint", begun, IDENTITY)
    begun.simulator.close()
    rewrite(tmp_path / "checkpoint", **{"outer.velocity": None})
    assert_refused(tmp_path / "checkpoint", "outer.velocity")


@pytest.mark.parametrize("key", ["round", "totals", "last_test", "identity", "parts"])
def test_a_checkpoint_that_lacks_a_key_is_refused(key, saved):
    header = header_of(saved)
    del header[key]
    rewrite(saved, header)
    assert_refused(saved, key)


@pytest.mark.parametrize("value", [[], "", {}, ["0x0p+0"], ["0x0p+0"] * 3, 0.5, [0.5, 0.5]], ids=str)
def test_a_last_test_of_other_than_two_numbers_is_refused(value, saved):
    rewrite(saved, header_of(saved) | {"last_test": value})
    assert_refused(saved, "header")


@pytest.mark.parametrize("header", [[], 3, None, "text"])
def test_a_header_that_is_no_table_is_refused(header, saved):
    save_sealed(load_file(saved), saved, header)
    assert_refused(saved)


@pytest.mark.parametrize("name", [*TENSORS, *GUARD])
def test_a_tensor_of_another_kind_or_shape_is_refused(name, saved):
    tensors = load_file(saved)
    for other in (tensors[name].to(torch.int16), tensors[name].repeat(2, 2)):
        rewrite(saved, **{name: other})
        assert_refused(saved, name)


@pytest.mark.parametrize("numbers", [[1, 0], [0, 0], [0, 2], [-1, 0]], ids=str)
def test_clients_that_do_not_exist_or_are_out_of_order_are_refused(numbers, saved):
    tensor = torch.tensor(numbers)
    header = header_of(saved)
    header["checksums"]["clients.numbers"] = zlib.crc32(tensor.numpy().tobytes())
    rewrite(saved, header, **{"clients.numbers": tensor})
    assert_refused(saved, "clients", "from 0 to 1")


def test_a_flipped_bit_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    data[-100] ^= 1
    saved.write_bytes(bytes(data))
    assert_refused(saved)


# Rows beside the checkpoint.


def test_a_damaged_or_missing_row_is_refused(saved):
    rows, whole = rows_of(saved), rows_of(saved).read_bytes()
    flipped = bytes([whole[0] ^ 1]) + whole[1:]
    for bytes_left, says in ((flipped, "does not have its checksum"), (whole[:-1], "is missing"), (b"", "is missing")):
        rows.write_bytes(bytes_left)
        with pytest.raises(InvalidInputError, match=rf"checkpoint-clients-1.rows: .*client \d kept {says}"):
            load_checkpoint(saved, IDENTITY, untouched())
    rows.unlink()
    with pytest.raises(InvalidInputError, match=r"checkpoint-clients-1.rows: cannot be read"):
        load_checkpoint(saved, IDENTITY, untouched())
    assert untouched().state.round == 0


@pytest.mark.parametrize("name", ["../checkpoint-clients-1.rows", "other.rows", "", None, 3])
def test_rows_of_another_place_are_refused(name, saved):
    header = header_of(saved)
    rewrite(saved, header | {"rows": header["rows"] | {"file": name}})
    assert_refused(saved, "must name its file of rows")


@pytest.mark.parametrize("told", [None, {}, [], {"row_bytes": 0}])
def test_a_header_without_rows_is_refused(told, saved):
    rewrite(saved, header_of(saved) | {"rows": told})
    assert_refused(saved, "must name its file of rows")


@pytest.mark.parametrize("slot", [-1, 10**6])
def test_a_slot_that_no_file_has_is_refused(slot, saved):
    header, slots = header_of(saved), load_file(saved)["clients.slots"]
    slots[0] = slot
    header["checksums"]["clients.slots"] = zlib.crc32(slots.numpy().tobytes())
    rewrite(saved, header, **{"clients.slots": slots})
    assert_refused(saved, "slots of rows")


def test_a_checkpoint_writes_only_rows_that_changed_and_uses_free_ones_again(tmp_path, monkeypatch):
    """Twelve rounds, a checkpoint after each: the rows of the last one are never overwritten before the next."""
    path, written = tmp_path / "checkpoint", []
    write = RowFile.write
    monkeypatch.setattr(RowFile, "write", lambda file, row: written.append(file) or write(file, row))
    loop, rows = make_loop(rounds=12, participation=0.5, guard=False), None
    for number in range(1, 13):
        loop.simulator.start_round()()
        before = None if rows is None else (path.read_bytes(), rows.path.read_bytes())
        rows = save_checkpoint(path, loop, IDENTITY, rows)
        assert len(written) == number
        if before is not None:
            old = tmp_path / "old" / "checkpoint"
            old.parent.mkdir(exist_ok=True)
            old.write_bytes(before[0])
            (old.parent / rows.path.name).write_bytes(rows.path.read_bytes())  # a kill before the rename
            load_checkpoint(old, IDENTITY, fresh(rounds=12, participation=0.5, guard=False))
    assert rows.slots <= 3
    loop.simulator.close()
    simulator = fresh(rounds=12, participation=0.5, guard=False)
    load_checkpoint(path, IDENTITY, simulator)
    assert_same(simulator, loop.simulator)


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
    assert sorted(path.name for path in saved.parent.iterdir()) == ["checkpoint", "checkpoint-clients-1.rows"]
    load_checkpoint(saved, IDENTITY, fresh())


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system_that_names_the_file(tmp_path):
    with pytest.raises(OSError, match="missing/model'"):
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
