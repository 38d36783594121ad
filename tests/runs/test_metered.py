"""``--meter``: what meters read while a run trains stands beside the ledger, and adds up over the parts of a run."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

import fewjoules as fj
from fewjoules.cli import app
from fewjoules.errors import FewJoulesWarning, InvalidInputError, MeterError
from fewjoules.runs import folder as run_folder
from fewjoules.runs.metered import Metered, MeterLog
from fewjoules.runs.sealed import read_sealed, write_sealed
from fewjoules.runs.training import train_task
from tests.metering.trees import add_zone
from tests.scenario.test_training_scenario import ROUNDS, SCENARIO
from tests.test_bad_input import assert_refused, run, write
from tests.test_training_cli import summary_of


@pytest.fixture
def sysfs(monkeypatch, tmp_path):
    root = tmp_path / "sys"
    root.mkdir()
    monkeypatch.setenv("FEWJOULES_SYSFS", str(root))
    return root


@pytest.fixture
def package(sysfs, monkeypatch):
    """A package whose counter rises by a joule with each round."""
    zone = add_zone(sysfs, "intel-rapl:0", "package-0", 0)
    really = run_folder._after_rounds

    def raised(folder, settings, live):
        after_round = really(folder, settings, live)

        def later(report):
            spend(zone, 1.0)
            after_round(report)

        return later

    monkeypatch.setattr(run_folder, "_after_rounds", raised)
    return zone


def spend(zone, joules):
    file = zone / "energy_uj"
    file.write_text(f"{int(file.read_text()) + round(1e6 * joules)}\n")


def train(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)], catch_exceptions=False)


CPU = ["--device", "cpu"]


def test_the_reading_stands_beside_the_ledger_and_is_said(package, tmp_path):
    scenario = write(tmp_path, SCENARIO)
    done = train(scenario, "--meter", "--out", tmp_path / "run", *CPU)
    assert done.exit_code == 0, done.stderr
    metered = summary_of(tmp_path / "run")["metered"]
    assert metered["joules"] == {"RAPL of package-0": pytest.approx(2.0)}
    assert metered["parts"] == 1
    assert "spent 2\u00a0J by RAPL of package-0 in" in done.stdout
    assert "idle power included; the ledger does not count it" in done.stdout
    assert "RAPL of package-0" in (tmp_path / "run" / "page.html").read_text()
    assert not (tmp_path / "run" / "meter.json").exists()


def test_metering_changes_no_result(package, tmp_path):
    scenario = write(tmp_path, SCENARIO)
    train(scenario, "--meter", "--out", tmp_path / "metered", *CPU)
    train(scenario, "--out", tmp_path / "plain", *CPU)
    for name in ("ledger.parquet", "metrics.parquet", "model.safetensors"):
        assert (tmp_path / "metered" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    ours, plain = (summary_of(tmp_path / name) for name in ("metered", "plain"))
    assert plain["metered"] is None
    assert ours["joules"] == plain["joules"]


def test_readings_of_the_parts_of_a_resumed_run_are_added(package, tmp_path, monkeypatch):
    scenario = write(tmp_path, SCENARIO.replace(ROUNDS, "rounds = 5"))
    stop_after(monkeypatch, 2)
    begun = train(scenario, "--meter", "--out", tmp_path / "run", *CPU)
    assert begun.exit_code == 130
    spend(package, 1000.0)  # between the parts, by somebody else
    stop_after(monkeypatch, 100)
    done = train("--resume", tmp_path / "run", *CPU)
    assert done.exit_code == 0, done.stderr
    metered = summary_of(tmp_path / "run")["metered"]
    assert metered["joules"] == {"RAPL of package-0": pytest.approx(5.0)}
    assert metered["parts"] == 2
    assert "in 2 parts, of which a kill may have cut off seconds" in done.stdout


def stop_after(monkeypatch, rounds):
    """Interrupt the training after so many rounds, as Ctrl-C does."""
    left = [rounds]

    def interrupted(*arguments, should_stop, **named):
        def stop():
            left[0] -= 1
            return left[0] <= 0

        return train_task(*arguments, should_stop=stop, **named)

    monkeypatch.setattr(run_folder, "train_task", interrupted)


def test_a_part_that_was_killed_at_once_is_counted(package, tmp_path, monkeypatch):
    scenario = write(tmp_path, SCENARIO)

    def killed(task, options, *, opened, **named):
        def opened_and_killed(simulator):
            opened(simulator)
            raise KeyboardInterrupt

        return train_task(task, options, opened=opened_and_killed, **named)

    monkeypatch.setattr(run_folder, "train_task", killed)
    train(scenario, "--meter", "--out", tmp_path / "run", *CPU)
    monkeypatch.setattr(run_folder, "train_task", train_task)
    assert train("--resume", tmp_path / "run", *CPU).exit_code == 0
    metered = summary_of(tmp_path / "run")["metered"]
    assert (metered["parts"], metered["joules"]) == (2, {"RAPL of package-0": pytest.approx(2.0)})


def test_without_a_meter_nothing_is_trained(sysfs, tmp_path):
    refused = run("train", write(tmp_path, SCENARIO), "--meter", "--out", tmp_path / "run", *CPU)
    assert_refused(refused, "no meter can be read", "nvml:", "rapl:", "hwmon:", "battery:", str(sysfs), longest=1000)
    assert not (tmp_path / "run").exists()


def test_a_run_that_began_without_a_meter_goes_on_without(package, tmp_path, monkeypatch):
    scenario = write(tmp_path, SCENARIO.replace(ROUNDS, "rounds = 5"))
    stop_after(monkeypatch, 2)
    train(scenario, "--out", tmp_path / "run", *CPU)
    refused = run("train", "--resume", tmp_path / "run", "--meter", *CPU)
    assert_refused(refused, "--meter must be given from the first round on", str(tmp_path / "run"))


def test_a_metered_run_can_go_on_where_there_is_no_meter(package, sysfs, tmp_path, monkeypatch):
    scenario = write(tmp_path, SCENARIO.replace(ROUNDS, "rounds = 5"))
    stop_after(monkeypatch, 2)
    train(scenario, "--meter", "--out", tmp_path / "run", *CPU)
    (sysfs / "class" / "powercap" / "intel-rapl:0").unlink()
    assert_refused(run("train", "--resume", tmp_path / "run", *CPU), "no meter can be read", longest=1000)
    monkeypatch.setattr(run_folder, "_after_rounds", lambda _folder, settings, _live: settings.on_round)
    stop_after(monkeypatch, 100)
    assert train("--resume", tmp_path / "run", "--no-meter", *CPU).exit_code == 0
    assert summary_of(tmp_path / "run")["metered"] is None


def test_a_damaged_reading_is_refused_with_its_file(package, tmp_path, monkeypatch):
    scenario = write(tmp_path, SCENARIO.replace(ROUNDS, "rounds = 5"))
    stop_after(monkeypatch, 2)
    train(scenario, "--meter", "--out", tmp_path / "run", *CPU)
    file = tmp_path / "run" / "meter.json"
    data = read_sealed(file)
    write_sealed(file, data | {"parts": -1})
    assert_refused(run("train", "--resume", tmp_path / "run", *CPU), "meter.json", "metered.parts", "got -1")
    file.write_text(json.dumps(data | {"seconds": 0.5, "checksum": 1}))
    assert_refused(run("train", "--resume", tmp_path / "run", *CPU), "meter.json", "damaged")


READINGS = st.lists(st.dictionaries(st.sampled_from("ab"), st.floats(0.0, 1e6), min_size=2), min_size=1, max_size=6)


@given(READINGS, st.lists(st.floats(0.0, 1e3), min_size=6, max_size=6))
def test_parts_add_up_and_survive_their_file(parts, seconds):
    total = Metered.nothing()
    for joules, lasted in zip(parts, seconds, strict=False):
        total = Metered.from_dict(json.loads(json.dumps(total.then(joules, lasted).to_dict())))
    assert total.parts == len(parts)
    assert total.seconds == pytest.approx(sum(seconds[: len(parts)]))
    assert total.joules == {name: pytest.approx(sum(part[name] for part in parts)) for name in "ab"}


def test_a_meter_that_a_part_lacks_has_no_sum():
    total = Metered.nothing().then({"a": 1.0, "b": 2.0}, 1.0).then({"a": 3.0}, 1.0)
    assert total.joules == {"a": 4.0, "b": None}


class Failing:
    kind, described, resolution_seconds, left = "x", "a failing meter", 1.0, 2

    def joules(self):
        self.left -= 1
        if self.left < 0:
            raise MeterError("the sensor is gone")
        return 7.0

    def close(self):
        pass


def test_a_meter_that_fails_is_given_up_and_the_training_goes_on():
    log = MeterLog([Failing()])
    assert [log.total().joules for _ in range(2)] == [{"a failing meter": 7.0}] * 2
    with pytest.warns(FewJoulesWarning, match="a meter is given up: the sensor is gone"):
        assert log.total().joules == {"a failing meter": None}
    assert log.total().joules == {"a failing meter": None}


def test_a_reading_is_saved_now_and_then(tmp_path: Path):
    now = [0.0]
    log = MeterLog([], clock=lambda: now[0])
    log.save_now_and_then(tmp_path)
    assert not (tmp_path / "meter.json").exists()
    now[0] = 11.0
    log.save_now_and_then(tmp_path)
    assert read_sealed(tmp_path / "meter.json")["seconds"] == 11.0


def test_train_in_python_reads_the_meters_too(sysfs):
    draws = np.random.default_rng(0)
    clients = [(draws.standard_normal((20, 4), dtype=np.float32), draws.integers(2, size=20)) for _ in range(2)]
    given = {"clients": clients, "local_steps": 1, "sparsity": 1.0, "rounds": 3, "learning_rate": 0.1, "device": "cpu"}
    with pytest.raises(InvalidInputError, match="no meter can be read"):
        fj.train(nn.Linear(4, 2), meter=True, **given)
    zone = add_zone(sysfs, "intel-rapl:0", "package-0", 0)
    done = fj.train(nn.Linear(4, 2), meter=True, on_round=lambda _report: spend(zone, 0.5), **given)
    assert done.metered.joules == {"RAPL of package-0": pytest.approx(1.5)}
    assert fj.train(nn.Linear(4, 2), **given).metered is None


def test_a_run_from_python_that_is_resumed_adds_up_its_parts(sysfs, tmp_path):
    zone = add_zone(sysfs, "intel-rapl:0", "package-0", 0)

    class Spends(fj.Callback):
        def on_round_end(self, run):
            spend(zone, 0.5)
            if run.round == 2:
                raise LookupError("out of power")

    data = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    given = {"local_steps": 1, "sparsity": 1.0, "rounds": 5, "learning_rate": 0.1, "device": "cpu"}
    with pytest.raises(LookupError):
        fj.train(nn.Linear(4, 2), clients=[data], out=tmp_path / "run", meter=True, callbacks=[Spends()], **given)
    done = fj.resume(tmp_path / "run", model=nn.Linear(4, 2), clients=[data], callbacks=[Spends()])
    assert done.metered.parts == 2
    assert fj.Run.load(tmp_path / "run").metered.parts == 2
    fj.train(nn.Linear(4, 2), clients=[data], out=tmp_path / "other", **given)
    with pytest.raises(InvalidInputError, match="meter must be given from the first round on"):
        fj.resume(tmp_path / "other", model=nn.Linear(4, 2), clients=[data], meter=True)
