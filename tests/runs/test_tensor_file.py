"""Files written a block at a time are safetensors files, and saving or loading a run needs little memory beside it."""

import io
import json
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load

from fewjoules.engine.algorithm.saved import SavedTensor, tensors_of
from fewjoules.runs.tensor_file import write_tensors

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
names = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "__metadata__")


def made_of(tensor, rows_at_a_time):
    """The tensor in blocks of so many rows."""
    if tensor.ndim == 0:
        return SavedTensor.of(tensor)
    return SavedTensor(tuple(tensor.shape), tensor.dtype, lambda: iter(tensor.split(rows_at_a_time)))


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(names, st.tuples(shapes, st.booleans()), max_size=6), st.integers(1, 3), st.text(max_size=5))
def test_the_library_reads_what_was_written(kinds, rows_at_a_time, said):
    tensors = {
        name: torch.randn(shape) if real else torch.randint(-9, 9, shape) for name, (shape, real) in kinds.items()
    }
    blocks = {name: made_of(tensor, rows_at_a_time) for name, tensor in tensors.items()}
    stream = io.BytesIO()
    write_tensors(stream, blocks, lambda checksums: {"said": said, "checksums": json.dumps(checksums)})
    found = load(stream.getvalue())
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
        assert torch.equal(tensors_of(blocks)[name], tensor)
    length = int.from_bytes(stream.getvalue()[:8], "little")
    metadata = json.loads(stream.getvalue()[8 : 8 + length])["__metadata__"]
    assert length % 8 == 0
    assert metadata["said"] == said
    expected = {name: zlib.crc32(tensor.numpy().tobytes()) for name, tensor in tensors.items()}
    assert json.loads(metadata["checksums"]) == expected


def test_an_empty_array_of_numpy_is_written():
    """It has stride 0, as the buffers of a model without any."""
    stream = io.BytesIO()
    write_tensors(stream, {"buffers": SavedTensor.of(torch.from_numpy(np.zeros(0, dtype=np.float32)))}, lambda _: {})
    assert load(stream.getvalue())["buffers"].shape == (0,)


MEASURE = """
import sys
from pathlib import Path
import numpy as np, torch
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ClientState
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Federation, Samples
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.runs.checkpoint import load_checkpoint, save_checkpoint
from fewjoules.runs.training import in_memory

CLIENTS, SIZE = 200, 500 * 500

def simulator():
    samples = Samples(torch.randn(CLIENTS, 500), torch.zeros(CLIENTS, dtype=torch.int64))
    options = TrainingOptions.of(local_steps=1, sparsity=np.ones(CLIENTS), rounds=1, learning_rate=0.1)
    parts = [np.array([client]) for client in range(CLIENTS)]
    model = torch.nn.Linear(500, 500, bias=False)
    return Simulator(model, Federation(samples, parts), options, loss=cross_entropy)

def kept():
    return own("RssAnon") + own("VmSwap")  # pages of files are the system's to take back

def own(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

path = Path(sys.argv[2])
one = simulator()
one.close()
if sys.argv[1] == "save":
    for client in range(CLIENTS):
        one.store.put(client, ClientState(residual=np.full(SIZE, client, dtype=np.float32), steps=1))
    before = kept()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    save_checkpoint(path, in_memory(one), {"data": "x"})
    print(own("VmHWM") - own("RssFile") - before)
else:
    before = kept()
    load_checkpoint(path, {"data": "x"}, one)
    print(kept() - before)
"""
STATE_BYTES = 4 * 200 * 500 * 500


def measured(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_saving_needs_a_block_of_memory_and_loading_what_is_kept(tmp_path):
    assert measured("save", tmp_path / "checkpoint") < 0.2 * STATE_BYTES
    assert measured("load", tmp_path / "checkpoint") < 1.2 * STATE_BYTES
