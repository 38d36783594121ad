"""``fewjoules.train(..., out=...)`` and ``fewjoules.resume``: a folder like the command's, resumed bit for bit."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import fewjoules as fj
from fewjoules.cli import app
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.presets import PRESETS
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.federation import Samples
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.runs.checkpoint import require_same_identity
from fewjoules.runs.data_facts import data_facts
from fewjoules.runs.own_identity import identity_of_own
from fewjoules.runs.own_settings import own_options, own_settings, save_own_settings
from fewjoules.runs.sealed import write_sealed
from tests.reference import training as reference

CLIENTS = reference.made_up_clients([6, 4, 5], 4, 3, 1)
FLEET = fj.Fleet(
    joules_per_bit=np.full(3, 1e-6),
    joules_per_step=np.full(3, 1e-3),
    seconds_per_bit=np.full(3, 1e-6),
    seconds_per_step=np.full(3, 1e-3),
)
OPTIONS = {"local_steps": 2, "sparsity": 3.0, "rounds": 8, "learning_rate": 0.2, "batch_size": 2, "momentum": 0.9}
GIVEN = {"clients": CLIENTS, "test": CLIENTS[0], "fleet": FLEET, "device": "cpu"}
TABLES = ("metrics.parquet", "ledger.parquet", "model.safetensors")


def net(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


class StopAfter(fj.Callback):
    """Asks for an end as Ctrl-C does, by a signal, or raises an error."""

    def __init__(self, last, error=None):
        self.last, self.error, self.saved = last, error, []

    def on_round_end(self, run):
        if run.round == self.last and self.error is not None:
            raise self.error
        if run.round == self.last:
            os.kill(os.getpid(), signal.SIGINT)

    def on_save_checkpoint(self, run):
        self.saved.append(run.round)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return fj.train(net(), out=folder, **GIVEN, **OPTIONS)


def interrupted(folder, last=3, **changes):
    with pytest.warns(FewJoulesWarning, match="fewjoules.resume goes on"):
        run = fj.train(net(), out=folder, callbacks=[StopAfter(last)], **GIVEN | changes, **OPTIONS)
    assert run.stop_reason == "interrupted"
    return run


def assert_same(folder, whole):
    for name in TABLES:
        assert (folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


def test_a_folder_holds_what_a_run_in_memory_gives_back(whole):
    alone = fj.train(net(), **GIVEN, **OPTIONS)
    for name in ("metrics", "ledger"):
        assert getattr(whole, name).tobytes() == getattr(alone, name).tobytes()
    assert {file.name for file in whole.folder.iterdir()} == {"settings.json", "run.json", *TABLES}
    read = fj.Run.load(whole.folder, net(seed=9))
    assert read.ledger.tobytes() == alone.ledger.tobytes()
    assert (read.stop_reason, read.execution, read.energy_joules) == ("rounds", alone.execution, alone.energy_joules)
    for found, expected in zip(read.model.state_dict().values(), alone.model.state_dict().values(), strict=True):
        assert torch.equal(found, expected)


def test_frames_of_a_folder_are_those_of_the_run(whole):
    import polars

    assert whole.to_polars("ledger").equals(polars.read_parquet(whole.folder / "ledger.parquet"))
    assert whole.to_pandas()["round"].tolist() == list(range(1, 9))
    with pytest.raises(InvalidInputError, match="the table must be 'metrics' or 'ledger', got 'ledgers'"):
        whole.to_pandas("ledgers")


def test_an_interrupted_run_goes_on_bit_for_bit_with_a_model_of_other_weights(whole, tmp_path):
    run = interrupted(tmp_path / "run")
    assert run.metrics["round"].tolist() == [1, 2, 3, 4]
    done = fj.resume(tmp_path / "run", model=net(seed=5), **GIVEN)
    assert done.stop_reason == "rounds"
    assert done.ledger.tobytes() == whole.ledger.tobytes()
    assert_same(tmp_path / "run", whole)


def test_a_folder_of_a_comparison_is_told_with_one_of_its_runs(tmp_path):
    write_sealed(tmp_path / "settings.json", {"command": "compare"})
    with pytest.raises(InvalidInputError, match="is a comparison, whose runs are in its folders, none finished yet"):
        fj.Run.load(tmp_path)
    (tmp_path / "flexible" / "seed-1").mkdir(parents=True)
    (tmp_path / "flexible" / "seed-1" / "run.json").touch()
    with pytest.raises(InvalidInputError, match=r"is a comparison, .*, such as .*flexible/seed-1$"):
        fj.Run.load(tmp_path)


def test_a_folder_of_a_tuning_is_told_to_have_no_run(tmp_path):
    write_sealed(tmp_path / "settings.json", {"command": "tune"})
    with pytest.raises(InvalidInputError, match="is a tuning, which has no run; train the recipe that it found"):
        fj.Run.load(tmp_path)


def test_a_run_is_killed_and_resumed_bit_for_bit(whole, tmp_path):
    script = textwrap.dedent(f"""
        import os, signal
        import fewjoules as fj
        from tests.runs.test_own_folder import GIVEN, OPTIONS, net
        class Kill(fj.Callback):
            def on_round_end(self, run):
                if run.round == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
        fj.train(net(), out={str(tmp_path / "run")!r}, checkpoint_seconds=0, callbacks=[Kill()], **GIVEN, **OPTIONS)
    """)
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(InvalidInputError, match="the run is not finished; resume it first"):
        fj.Run.load(tmp_path / "run")
    seen = StopAfter(None)
    fj.resume(tmp_path / "run", model=net(), checkpoint_seconds=0, callbacks=[seen], **GIVEN)
    assert seen.saved == [5, 6, 7, 8]
    assert_same(tmp_path / "run", whole)


def test_an_error_of_a_callback_loses_no_round(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(LookupError, match="mine"):
        fj.train(net(), out=folder, callbacks=[StopAfter(5, LookupError("mine"))], **GIVEN, **OPTIONS)
    rounds = []
    fj.resume(folder, model=net(), on_round=lambda report: rounds.append(report.round), **GIVEN)
    assert rounds == [6, 7, 8]
    assert_same(folder, whole)


def test_a_finished_run_is_read_and_not_trained_again(whole):
    rounds = []
    again = fj.resume(whole.folder, model=net(), on_round=rounds.append, **GIVEN)
    assert rounds == []
    assert again.metrics.tobytes() == whole.metrics.tobytes()


def test_a_folder_that_is_not_empty_is_refused(whole):
    with pytest.raises(InvalidInputError, match=r"must be new or empty; use fewjoules\.resume"):
        fj.train(net(), out=whole.folder, **GIVEN, **OPTIONS)
    with pytest.raises(InvalidInputError, match="out must be the path of a folder, got 3"):
        fj.train(net(), out=3, **GIVEN, **OPTIONS)
    with pytest.raises(InvalidInputError, match="checkpoint_seconds needs a folder"):
        fj.train(net(), checkpoint_seconds=1.0, **GIVEN, **OPTIONS)


def wider():
    return nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))


def frozen():
    model = net()
    model[0].weight.requires_grad_(False)
    return model


def changed(clients):
    (inputs, labels), *others = clients
    inputs = np.array(inputs)
    inputs[0, 0] += 1e-3
    return [(inputs, labels), *others]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    interrupted(folder)
    return folder


@pytest.mark.parametrize(
    ("title", "model", "changes", "says"),
    [
        ("another model", nn.Linear(4, 3), {}, "architecture was 'Sequential', and is 'Linear' now"),
        ("another width", wider(), {}, "model.parameters was"),
        ("other weights frozen", frozen(), {}, "model.parameters was"),
        ("a client less", None, {"clients": CLIENTS[:2], "fleet": None}, "sparsity must have one entry for each of 2"),
        ("a value changed", None, {"clients": changed(CLIENTS)}, "data.values was"),
        ("another test set", None, {"test": CLIENTS[1]}, "test.samples was 6, and is 4 now"),
        ("no test set", None, {"test": None}, "test.samples was 6, and is None now"),
        ("no fleet", None, {"fleet": None}, "fleet.joules_per_bit was [1e-06,"),
        ("another loss", None, {"loss": nn.CrossEntropyLoss()}, "loss was 'cross_entropy'"),
        ("another weight", None, {"loss": {"ce": (cross_entropy, 2.0)}}, "and is '2.0 cross_entropy' now"),
    ],
)
def test_what_differs_from_the_beginning_is_refused_by_name(stopped, title, model, changes, says):
    before = {file.name: file.read_bytes() for file in stopped.iterdir() if file.is_file()}
    with pytest.raises(InvalidInputError) as caught:
        fj.resume(stopped, model=model or net(), **GIVEN | changes)
    message = str(caught.value)
    assert says in message, title
    assert "\n" not in message
    assert {file.name: file.read_bytes() for file in stopped.iterdir() if file.is_file()} == before


def test_the_frozen_weights_must_be_the_same(tmp_path):
    def half_frozen(seed):
        model = net(seed)
        model[0].requires_grad_(False)
        return model

    with pytest.warns(FewJoulesWarning):
        fj.train(half_frozen(1), out=tmp_path / "run", callbacks=[StopAfter(2)], **GIVEN, **OPTIONS)
    with pytest.raises(InvalidInputError, match=r"model\.frozen weights was"):
        fj.resume(tmp_path / "run", model=half_frozen(2), **GIVEN)
    assert fj.resume(tmp_path / "run", model=half_frozen(1), **GIVEN).stop_reason == "rounds"


def test_commands_send_such_a_folder_to_python_and_export_its_model(stopped, tmp_path):
    told = CliRunner().invoke(app, ["train", "--resume", str(stopped)])
    assert told.exit_code != 0
    assert "was made in Python" in told.output
    assert "fewjoules.resume(" in " ".join(told.output.split())
    target = tmp_path / "model.safetensors"
    done = CliRunner().invoke(app, ["export", str(stopped), "--out", str(target)])
    assert done.exit_code == 0, done.output
    assert "round 4" in done.output


def test_a_folder_of_the_command_is_sent_back_to_it(tmp_path):
    (tmp_path / "settings.json").write_text('{"version": 1, "command": "compare"}')
    with pytest.raises(InvalidInputError, match="continue it with fewjoules compare --resume"):
        fj.resume(tmp_path, model=net(), **GIVEN)
    (tmp_path / "settings.json").write_text('{"version": 1, "command": "fewjoules.train", "options": {}}')
    with pytest.raises(InvalidInputError, match=r"settings\.json: checksums must be a dict, got None"):
        fj.resume(tmp_path, model=net(), **GIVEN)
    with pytest.raises(InvalidInputError, match=r"settings\.json is missing"):
        fj.resume(tmp_path / "nowhere", model=net(), **GIVEN)


def test_a_plan_travels_with_its_folder(tmp_path):
    law = fj.PowerLawRounds(tau=20.0, c=0.1, a=0.5, q=0.5)
    parameters = sum(one.numel() for one in net().parameters())
    plan = fj.solve(
        fj.ControlProblem(fleet=FLEET, rounds=law, parameters=parameters, sparsity=(1.0, 9.0), local_steps=range(1, 5))
    )
    options = {"rounds": 4, "learning_rate": 0.2, "batch_size": 2, "plan": plan}
    with pytest.warns(FewJoulesWarning):
        fj.train(net(), out=tmp_path / "run", callbacks=[StopAfter(1)], **GIVEN, **options)
    done = fj.resume(tmp_path / "run", model=net(), **GIVEN)
    assert done.ledger.tobytes() == fj.train(net(), **GIVEN, **options).ledger.tobytes()
    assert fj.Plan.load(tmp_path / "run" / "plan.json").chooses_like(plan)


def test_a_model_without_code_is_refused_where_it_is_asked_for(whole):
    run = fj.Run.load(whole.folder)
    assert run.metrics.size == 8
    with pytest.raises(InvalidInputError, match="weights but no code"):
        _ = run.model
    with pytest.raises(InvalidInputError, match="does not fit the model"):
        fj.Run.load(whole.folder, wider())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((3,), "folder must be the path of a folder, got 3"),
        (("run", 3), "model must be a torch.nn.Module or None, got 3"),
    ],
)
def test_only_a_folder_and_a_model_are_loaded(given, says):
    with pytest.raises(InvalidInputError, match=says):
        fj.Run.load(*given)


def test_the_identity_of_data_that_change_whenever_they_are_read_does_not_hold_their_values():
    from fewjoules.engine.models.loss import cross_entropy
    from fewjoules.engine.simulator.federation import Federation, Samples
    from fewjoules.runs.training import Task

    class Augmented(Samples):
        @property
        def resident(self):
            return False

        def take(self, numbers):
            inputs, targets = super().take(numbers)
            return inputs + torch.rand_like(inputs), targets

    inputs, targets = (torch.as_tensor(array) for array in CLIENTS[0])
    for kind, known in ((Samples, True), (Augmented, False)):
        federation = Federation(kind(inputs, targets), [np.arange(6)])
        task = Task(model=net(), federation=federation, test=None, loss=cross_entropy, fleet=None)
        options = TrainingOptions(local_steps=1, sparsity=[1.0], rounds=1, learning_rate=0.1)
        assert (identity_of_own(task, options)["data"]["values"] is not None) == known


def read_sets():
    """Data sets, which are held in memory where it has room for them."""
    return [TensorDataset(*map(torch.as_tensor, pair)) for pair in CLIENTS]


@pytest.mark.parametrize("first", [None, 0.0], ids=["held at first", "read at first"])
def test_a_run_on_a_processor_goes_on_bit_for_bit_whether_its_data_fit_into_memory_or_not(whole, tmp_path, first):
    given = GIVEN | {"clients": read_sets(), "test": read_sets()[0]}
    out, error = tmp_path / "run", ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        fj.train(net(), **given, **OPTIONS, out=out, data_memory_gib=first, callbacks=[StopAfter(3, error)])
    run = fj.resume(out, model=net(9), **given, data_memory_gib=0.0 if first is None else None)
    for name in TABLES:
        assert (out / name).read_bytes() == (whole.folder / name).read_bytes()
    assert run.stop_reason == "rounds"


def test_one_changed_sample_of_many_that_are_held_is_noticed():
    inputs, targets = torch.rand(1000, 4), torch.zeros(1000, dtype=torch.int64)
    before = data_facts(Samples(inputs.clone(), targets))
    inputs[502] += 1.0
    with pytest.raises(InvalidInputError, match=r"^here: data\.values in memory was"):
        require_same_identity("here", {"data": before}, {"data": data_facts(Samples(inputs, targets))})


class OnGpu:
    """Samples that say they were on a GPU."""

    device = torch.device("cuda")

    def __init__(self, resident):
        self.resident, self.samples = resident, Samples(torch.rand(9, 4), torch.zeros(9, dtype=torch.int64))
        self.take = self.samples.take

    def __len__(self):
        return 9


def test_on_a_gpu_data_are_held_as_they_were_and_the_refusal_says_how():
    held, read = (data_facts(OnGpu(resident)) for resident in (True, False))
    with pytest.raises(
        InvalidInputError, match=r"data\.in memory was True, and is False now; data_memory_gib says how"
    ):
        require_same_identity("here", {"data": held}, {"data": read})


def test_step_sizes_by_a_function_are_given_again_and_checked_by_their_values(tmp_path):
    options = OPTIONS | {"learning_rate": lambda number: 0.2 / number}
    with pytest.warns(FewJoulesWarning):
        fj.train(net(), out=tmp_path / "run", callbacks=[StopAfter(3)], **GIVEN, **options)
    with pytest.raises(InvalidInputError, match="the run has its own learning_rate, which must be given again"):
        fj.resume(tmp_path / "run", model=net(), **GIVEN)
    with pytest.raises(InvalidInputError, match=r"training\.learning_rate\.last was 0.025, and is 0.2 now"):
        fj.resume(tmp_path / "run", model=net(), learning_rate=lambda _number: 0.2, **GIVEN)
    done = fj.resume(tmp_path / "run", model=net(), learning_rate=lambda number: 0.2 / number, **GIVEN)
    assert done.metrics.tobytes() == fj.train(net(), **GIVEN, **options).metrics.tobytes()


def test_metrics_of_ones_own_are_in_the_folder_and_given_again(tmp_path):
    def hits(outputs, targets):
        return (outputs.argmax(1) == targets).float()

    given = GIVEN | {"metrics": {"hits": hits}}
    with pytest.warns(FewJoulesWarning):
        fj.train(net(), out=tmp_path / "run", callbacks=[StopAfter(2)], target={"hits": 1.1}, **given, **OPTIONS)
    with pytest.raises(InvalidInputError, match="hits"):
        fj.resume(tmp_path / "run", model=net(), **GIVEN)
    done = fj.resume(tmp_path / "run", model=net(), **given)
    assert done.metrics["test_hits"][-1] == done.metrics["test_accuracy"][-1]
    assert fj.Run.load(tmp_path / "run").metrics.tobytes() == done.metrics.tobytes()
    told = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert (told["target_metric"], told["target_reached"]) == ("hits >= 1.1", False)
    assert told["test_metrics"] == {"hits": done.metrics["test_hits"][-1]}


@pytest.mark.parametrize(
    "changes",
    [
        *({"preset": name} for name in PRESETS),
        {"batch_size": None, "schedule": "step", "decay_rounds": (2, 5), "failures": {2: {0, 1}, 3: {2}}},
        {"inner": "adamw", "outer": "adam", "values": "int8", "guard": False, "target_loss": 0.1, "participation": 0.5},
    ],
    ids=str,
)
def test_options_are_read_back_as_they_were_written(tmp_path, changes):
    given = {"local_steps": 2, "sparsity": [1.5, 2.0, 3.0], "rounds": 9, "learning_rate": 0.1}
    options = TrainingOptions.of(**given | changes)
    save_own_settings(tmp_path, options, None, name="mine", device="cpu", meter=False)
    assert own_options(tmp_path, own_settings(tmp_path), {}).to_dict() == options.to_dict()
