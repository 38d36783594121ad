"""The model of a run can be had from its checkpoint, whatever else is lost; a damaged part stops a resume at once."""

import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fewjoules.engine.simulator.simulator import Simulator
from tests.scenario.test_training_scenario import ROUNDS, trained_with
from tests.test_bad_input import assert_refused, run, write
from tests.test_training_cli import contents

CHECKPOINT = "checkpoint.safetensors"
OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = nn.Linear(features, features, bias=False)
        self.second = nn.Linear(features, features, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(features, classes)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("mask", nn.init.ones_(self.frozen.weight.new_empty(classes)).bool())

    def forward(self, inputs):
        return self.frozen(self.norm(self.second(self.first(inputs.flatten(1)))))

def net(channels, height, width, classes):
    return Net(channels * height * width, classes)
"""


def stopped(folder, architecture="softmax", rounds=4):
    """A run that failed in its last round, and one like it that did not."""
    write(folder, OWN, "own_export_net.py")
    text = trained_with("participation = 0.5").replace(ROUNDS, f"rounds = {rounds}").replace("softmax", architecture)
    scenario, start_round = write(folder, text), Simulator.start_round

    def fails_late(simulator, **how):
        if simulator.state.round == rounds - 1:
            raise OSError("the power is gone")
        return start_round(simulator, **how)

    often = ["--device", "cpu", "--checkpoint-seconds", "0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "start_round", fails_late)
        assert run("train", scenario, *often, "--out", folder / "run").exit_code == 1
    return folder / "run"


@pytest.mark.parametrize("architecture", ["softmax", "resnet20", "own_export_net:net"])
def test_the_checkpoint_of_the_last_round_has_the_model_of_the_finished_run(architecture, tmp_path, monkeypatch):
    folder, kept = stopped(tmp_path, architecture, rounds=2), tmp_path / "kept"
    clean_up = "fewjoules.runs.folder.clean_up"
    monkeypatch.setattr(clean_up, lambda own: (own / CHECKPOINT).rename(kept))
    assert run("train", "--resume", folder, "--checkpoint-seconds", "0").exit_code == 0
    done = run("export", kept, "--out", tmp_path / "model")
    assert done.exit_code == 0, done.stderr
    assert "round 2" in done.stdout
    assert (tmp_path / "model").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_nothing_but_the_checkpoint_is_needed(tmp_path):
    folder = stopped(tmp_path)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path.name != CHECKPOINT:
            path.unlink()
    assert run("export", folder, "--out", tmp_path / "model").exit_code == 0
    weights = load_file(folder / CHECKPOINT)["weights"]
    model = load_file(tmp_path / "model")
    assert torch.equal(torch.cat([tensor.reshape(-1) for tensor in model.values()]).sort()[0], weights.sort()[0])
    with safe_open(tmp_path / "model", framework="pt") as file:
        assert file.metadata() == {"architecture": "softmax"}


def test_what_cannot_be_exported_is_refused(tmp_path):
    folder = stopped(tmp_path)
    assert_refused(run("export", tmp_path), "has none yet")
    assert_refused(run("export", folder, "--out", folder / "plan.json"), "must be a new file")
    assert_refused(
        run("export", folder, "--out", tmp_path / "gone" / "model"), "--out must be a file in a folder that exists"
    )
    data = bytearray((folder / CHECKPOINT).read_bytes())
    for place in (500, len(data) - 1):  # in the header and in the weights
        spoilt = bytearray(data)
        spoilt[place] ^= 1
        (folder / CHECKPOINT).write_bytes(bytes(spoilt))
        assert_refused(run("export", folder, "--out", tmp_path / "model"), CHECKPOINT)
    assert not (tmp_path / "model").exists()
    (folder / CHECKPOINT).write_bytes(bytes(data))
    assert run("train", "--resume", folder).exit_code == 0
    assert_refused(run("export", folder), "finished", "model.safetensors")


@pytest.mark.parametrize("table", ["ledger", "metrics"])
@pytest.mark.parametrize("spoil", ["cut", "flip", "lose"])
def test_a_damaged_part_is_named_before_anything_is_trained(table, spoil, tmp_path, monkeypatch):
    folder = stopped(tmp_path)
    part: Path = sorted((folder / table).iterdir())[1]
    data = part.read_bytes()
    if spoil == "lose":
        part.unlink()
    else:
        middle = len(data) // 3
        part.write_bytes(data[:middle] if spoil == "cut" else data[:middle] + b"\x55" + data[middle + 1 :])
    before = contents(folder)
    monkeypatch.setattr(Simulator, "start_round", lambda *_a, **_k: pytest.fail("trained"))
    says = re.escape(str(folder)) + ".*model of round 3"
    refusal = run("train", "--resume", folder)
    assert_refused(refusal, table if spoil == "lose" else part.name)
    assert re.search(says, refusal.stderr)
    assert contents(folder) == before


def test_a_part_that_is_damaged_while_a_run_goes_on_does_not_cost_the_model(tmp_path, monkeypatch):
    folder = stopped(tmp_path)
    start_round = Simulator.start_round

    def damages(simulator, **how):
        part = min((folder / "ledger").iterdir())
        part.write_bytes(part.read_bytes()[:100])
        return start_round(simulator, **how)

    monkeypatch.setattr(Simulator, "start_round", damages)
    assert_refused(run("train", "--resume", folder), "part-00000001")
    assert (folder / "model.safetensors").exists()
    assert not (folder / "run.json").exists()
