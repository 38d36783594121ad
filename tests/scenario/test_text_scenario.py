"""Text by role from a scenario file: sizes in [model], the partition by roles, and trainings that learn."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fewjoules.datasets import shakespeare
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.runs.task import identity_of_task, prepare, varied
from fewjoules.runs.training import train_task
from fewjoules.scenario import Scenario

SCENARIO = """
[model]
architecture = "gpt"
width = 16
depth = 1
heads = 2
context = 16

[limits]
sparsity = {min = 1.0, max = 50.0}
local_steps = {min = 1, max = 5}

[training]
data = "shakespeare"
partition = "roles"
inner = "adamw"
learning_rate = 0.01
batch_size = 8

[[device]]
count = 3
joules_per_bit = 1e-8
joules_per_step = 1e-3
"""
LSTM = SCENARIO.replace('"gpt"', '"lstm"').replace("heads = 2\n", "")
LINES = ("To be, or not to be,", "words, words, words.", "What's in a name?", "Who's there?")


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """Two plays of two roles each; every role has a line of its own, so that all can be learnt by heart."""
    for number, length in ((0, 130), (1, 200)):
        said = [f"{role}.\n{LINES[2 * number + place]}\n" for place, role in enumerate(("HAM", "OPH"))]
        (tmp_path / f"play{number}_gut.txt").write_text("\n".join(said * length))
    monkeypatch.setattr(shakespeare, "texts_folder", lambda: tmp_path)


def scenario(text=SCENARIO):
    return Scenario.from_text(text, "text", Path())


def task(text=SCENARIO):
    return prepare(scenario(text), torch.device("cpu"))


def options(clients=3, **changes):
    given = {"local_steps": 5, "sparsity": np.ones(clients), "rounds": 16, "learning_rate": 0.01, "inner": "adamw"}
    return TrainingOptions.of(**given | {"batch_size": 8} | changes)


@pytest.mark.parametrize("text", [SCENARIO, LSTM], ids=["gpt", "lstm"])
def test_a_network_learns_the_words_of_its_roles(plays, text):
    trained = train_task(task(text), options(evaluate_every=16, learning_rate=0.03))
    assert trained.loop.metrics.rows()["test_loss"][-1] < 1.0 < np.log(66) / 4


@pytest.mark.parametrize("text", [SCENARIO, LSTM], ids=["gpt", "lstm"])
def test_a_stack_trains_as_clients_one_by_one(plays, text):
    known = task(text)
    weights = []
    for chunk in (3, 1):
        simulator = Simulator(
            known.model, known.federation, options(sparsity=np.full(3, 4.0)), loss=known.loss, chunk=chunk
        )
        for _ in range(2):
            simulator.start_round()
        weights.append(simulator.state.weights)
        simulator.close()
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-5)
    assert not torch.equal(weights[0], torch.cat([p.detach().reshape(-1) for p in known.model.parameters()]))


def test_the_largest_roles_take_part_and_only_they_are_tested_on(plays):
    known = task()
    roles = [known.data.writers[part] for part in known.federation.parts]
    assert [len(set(own.tolist())) for own in roles] == [1, 1, 1]
    left_out = set(range(4)) - {int(own[0]) for own in roles}
    assert len(left_out) == 1
    assert len(known.test) == int((known.data.test_writers != left_out.pop()).sum()) < len(known.data.test)
    other = varied(known, seed=5)
    assert len(other.test) == len(known.test)
    everybody = task(SCENARIO.replace('partition = "roles"', 'partition = "writers"'))
    assert sum(part.size for part in everybody.federation.parts) == len(everybody.data.train)
    assert len(everybody.test) == len(everybody.data.test)


def test_a_run_of_other_sizes_is_not_resumed(plays):
    wider = SCENARIO.replace("width = 16", "width = 32")
    assert identity_of_task(task()) != identity_of_task(task(wider))
    assert identity_of_task(task()) == identity_of_task(task())


def test_sizes_are_counted_without_pytorch():
    code = (
        "import sys, pathlib; from fewjoules.scenario import Scenario;"
        f"print(Scenario.from_text({SCENARIO!r}, 'text', pathlib.Path()).parameters, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str((66 + 16) * 16 + 12 * 256 + 13 * 16 + 2 * 16), "False"]
    assert scenario(SCENARIO.replace("context = 16\n", "")).parameters == scenario().parameters + 64 * 16


REFUSED = {
    "not a multiple": ("heads = 2", "heads = 3", r"model.width must be a multiple of heads \(3\).* got 16"),
    "no heads": ('"gpt"', '"lstm"', "model.heads is unused: architecture 'lstm' has width and depth"),
    "unknown": ("heads = 2", "layers = 2", "model.layers"),
    "zero": ("depth = 1", "depth = 0", "model.depth"),
    "images": ('data = "shakespeare"', 'data = "digits"', "model.context is unused: training.data = 'digits'"),
    "no text": (
        "context = 16\n\n[limits]\nsparsity = {min = 1.0, max = 50.0}\nlocal_steps = {min = 1, max = 5}\n\n[training]\n"
        'data = "shakespeare"',
        '[limits]\nsparsity = {min = 1.0, max = 50.0}\nlocal_steps = {min = 1, max = 5}\n\n[training]\ndata = "digits"',
        "model.architecture = 'gpt' needs text, such as data = 'shakespeare', got training.data = 'digits'",
    ),
    "parameters": ('architecture = "gpt"', "parameters = 10", "model.context is unused: .* given by its parameters"),
    "cnn": ('"gpt"\nwidth = 16\ndepth = 1\nheads = 2', '"cnn"', "'cnn' needs images, such as data = 'digits'"),
}


@pytest.mark.parametrize(("old", "new", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(old, new, message):
    assert old in SCENARIO
    with pytest.raises(InvalidInputError, match=message):
        scenario(SCENARIO.replace(old, new))


PARTITIONS = {
    "too many devices": ("count = 3", "count = 5", r"as many roles as clients \(5\), got 4"),
    "labels": ('"roles"', '"shards"\nshards_per_client = 2', "a label for each sample, which 'shakespeare' does not"),
    "no window": ("context = 16", "context = 2000", "no role is long enough for one window of context = 2000 to test"),
}


@pytest.mark.parametrize(("old", "new", "message"), PARTITIONS.values(), ids=PARTITIONS)
def test_partitions_that_the_text_does_not_allow(plays, old, new, message):
    with pytest.raises(InvalidInputError, match=message):
        task(SCENARIO.replace(old, new))


def test_roles_need_a_text():
    images = SCENARIO.replace('"shakespeare"', '"digits"').replace("context = 16\n", "")
    images = images.replace('"gpt"\nwidth = 16\ndepth = 1\nheads = 2', '"softmax"')
    with pytest.raises(InvalidInputError, match="partition = 'roles' needs data = 'shakespeare', got 'digits'"):
        task(images)
