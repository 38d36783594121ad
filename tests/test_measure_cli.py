"""``fewjoules measure``: a table to paste, what could not be measured and why, and refusals in one line."""

import functools
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fewjoules.cli import app
from fewjoules.errors import InvalidInputError
from fewjoules.metering.fit import Coefficient, CostFit
from fewjoules.metering.protocol import Bench, Protocol
from fewjoules.profiles.profile import Profile
from fewjoules.reports.measured import _of_both
from fewjoules.scenario import Scenario
from fewjoules.scenario.scenario import read_device
from tests.metering.trees import add_zone
from tests.scenario.test_training_scenario import SCENARIO
from tests.test_bad_input import assert_refused, run, write


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """Measure for moments, on a machine without a meter."""
    short = functools.partial(Protocol, cool_down_seconds=0.0, window_seconds=0.001, resolutions=0.0, idle_windows=2)
    monkeypatch.setattr("fewjoules.cli.measure.Protocol", short)
    sysfs = tmp_path / "sys"
    sysfs.mkdir()
    monkeypatch.setenv("FEWJOULES_SYSFS", str(sysfs))
    return sysfs


@pytest.fixture
def scenario(tmp_path):
    return write(tmp_path, SCENARIO)


def measure(*arguments):
    return CliRunner().invoke(app, ["measure", *map(str, arguments)], catch_exceptions=False)


STEP = ["--batch-sizes", "2,4", "--max-seconds", "0.01", "--device", "cpu"]
KINDS = {"step": STEP, "codec": ["--sparsities", "5,50", "--max-seconds", "0.01"]}
SECONDS = {
    "step": {"seconds_per_step", "seconds_per_sample"},
    "codec": {"codec_seconds_per_parameter", "codec_seconds_per_entry"},
}


@pytest.mark.parametrize("kind", ["step", "codec"])
def test_without_a_meter_seconds_alone_are_written_and_the_exit_code_is_1(kind, scenario, quick, tmp_path):
    done = measure(kind, scenario, *KINDS[kind], "--out", tmp_path / "pi.toml", "--name", "pi")
    assert done.exit_code == 1
    assert (tmp_path / "pi.toml").read_text() == done.stdout
    (device,) = tomllib.loads(done.stdout)["device"]
    assert set(device) == {"name", *SECONDS[kind]}, "provenance is a mark of joules"
    assert device["name"] == "pi"
    assert all(device[key] >= 0.0 for key in SECONDS[kind])
    said = done.stderr.splitlines()
    assert said[0] == "no meter can be read, so only seconds are measured:"
    for meter, place in (("nvml", "driver"), ("rapl", "powercap"), ("hwmon", "hwmon"), ("battery", "power_supply")):
        assert any(line.startswith(f"  {meter}: ") and place in line for line in said)
    assert str(quick) in done.stderr


def test_the_table_says_what_is_still_to_be_given(scenario):
    lines = measure("step", scenario, *STEP).stdout.splitlines()
    rest = lines[lines.index("# still to be given:") :]
    assert "#   joules_per_step, joules_per_sample: only seconds were measured" in rest
    assert any("joules_per_bit" in line and "[device.radio]" in line for line in rest)


def test_seconds_only_is_no_failure_and_looks_for_no_meter(scenario):
    done = measure("step", scenario, *STEP, "--seconds-only")
    assert done.exit_code == 0
    assert "meter" not in done.stderr
    assert "by a clock alone" in done.stdout


@pytest.mark.parametrize("kind", ["step", "codec"])
@pytest.mark.parametrize("with_idle", [False, True])
def test_with_a_meter_joules_are_in_the_table(kind, with_idle, scenario, quick):
    add_zone(quick, "intel-rapl:0", "package-0", 1_000)  # whose counter stands still
    done = measure(kind, scenario, *KINDS[kind], *(["--with-idle"] if with_idle else []))
    assert done.exit_code == 0, done.stderr
    (device,) = tomllib.loads(done.stdout)["device"]
    joules = {key.replace("seconds", "joules") for key in SECONDS[kind]}
    assert set(device) == {"name", "provenance", *SECONDS[kind], *joules}
    assert all(device[key] == 0.0 for key in joules)
    assert device["provenance"] == {"compute" if kind == "step" else "codec": "measured"}
    assert "by RAPL of package-0" in done.stdout
    assert f"the joules below have it {'in them' if with_idle else 'taken off'}" in done.stdout


def test_the_file_with_a_radio_is_what_a_node_reports_its_costs_from(scenario, quick, tmp_path):
    add_zone(quick, "intel-rapl:0", "package-0", 1_000)
    file = tmp_path / "node.toml"
    assert measure("step", scenario, *STEP, "--out", file).exit_code == 0
    with pytest.raises(InvalidInputError, match=r"joules_per_bit and \[device.radio\], got neither"):
        read_device(file)
    file.write_text(file.read_text() + "joules_per_bit = 2e-7\n")
    costs, marks = read_device(file)
    assert (marks["compute"], marks["uplink"]) == ("measured", "assumed")
    (device,) = tomllib.loads(file.read_text())["device"]
    measured = ("joules_per_step", "seconds_per_step", "joules_per_sample", "seconds_per_sample")
    assert {name: costs[name] for name in measured} == {name: device[name] for name in measured}


def test_a_measured_profile_gives_a_scenario_the_costs_that_were_measured(scenario, quick, tmp_path, monkeypatch):
    add_zone(quick, "intel-rapl:0", "package-0", 1_000)
    monkeypatch.chdir(tmp_path)
    done = measure("step", scenario, *STEP, "--profile", "my-board")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "my-board.toml").read_text() == done.stdout
    profile = Profile.from_text(done.stdout, "my-board")
    assert set(profile.device) == {"joules_per_step", "seconds_per_step", "joules_per_flop", "seconds_per_flop"}
    marks = {key: source.mark for key, source in profile.sources.items()}
    assert marks == {key: "fitted" if key.endswith("flop") else "measured" for key in profile.device}
    used = SCENARIO.replace("joules_per_step = 5e-4\nseconds_per_step = 2e-3", 'profile = "my-board.toml"')
    fleet = Scenario.from_text(used, "x", tmp_path).fleet
    operations = float(re.search(r"over (\S+) operations", done.stdout)[1])
    assert fleet.seconds_per_sample[0] == pytest.approx(profile.device["seconds_per_flop"] * operations, rel=1e-4)
    assert fleet.seconds_per_step[0] == profile.device["seconds_per_step"]


def test_a_profile_of_messages_can_be_read_too(scenario, quick, tmp_path, monkeypatch):
    add_zone(quick, "intel-rapl:0", "package-0", 1_000)
    monkeypatch.chdir(tmp_path)
    done = measure("codec", scenario, *KINDS["codec"], "--profile", "my-board")
    profile = Profile.from_text(done.stdout, "my-board")
    assert set(profile.device) == SECONDS["codec"] | {key.replace("seconds", "joules") for key in SECONDS["codec"]}


def test_a_profile_needs_a_meter_and_a_file_of_its_own(scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ask = functools.partial(run, "measure", "step", scenario, *STEP, "--profile")
    assert_refused(ask("x"), "--profile needs joules, but no meter can be read", "rapl:", longest=1000)
    assert_refused(ask("a/x"), "--profile", "without folder", "'a/x'")
    assert_refused(ask("x", "--out", "y.toml"), "--profile", "cannot be combined with --out")
    assert_refused(ask("x", "--seconds-only"), "--profile", "cannot be combined with --seconds-only")
    write(tmp_path, "mine", "x.toml")
    assert_refused(ask("x"), "--profile must name a new file", "x.toml exists")


def test_a_limit_that_ends_the_trials_is_told_with_the_interval_reached(scenario, quick):
    add_zone(quick, "intel-rapl:0", "package-0", 1_000)
    done = measure("step", scenario, *STEP)
    assert "warning: batch 2: the limit of 0.01 s ended the trials at an interval of +- " in done.stderr
    assert "# batch 2: the limit of 0.01 s ended the trials" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["step", "--batch-sizes", "8"], ("--batch-sizes", "two different", "8")),
        (["step", "--batch-sizes", "8,many"], ("--batch-sizes", "whole numbers", "'8,many'")),
        (["step", "--batch-sizes", "0,8"], ("--batch-sizes", "from 1", "got 0")),
        (["step", "--clients", "0"], ("--clients", "from 1", "got 0")),
        (["step", "--max-seconds", "0"], ("--max-seconds", "above 0", "got 0")),
        (["step", "--meter", "sun"], ("--meter", "rapl", "'sun'")),
        (["step", "--meter", "rapl"], ("--meter rapl", "powercap")),
        (["step", "--meter", "zeus"], ("--meter zeus", "pip install zeus")),
        (["step", "--device", "tpu"], ("device", "cuda", "'tpu'")),
        (["codec", "--sparsities", "0.5,8"], ("--sparsities", "at least 1", "0.5")),
        (["codec", "--sparsities", "600,640"], ("--sparsities", "two different", "1 of 650")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_refused_in_one_line(arguments, says, scenario):
    command, *rest = arguments
    assert_refused(run("measure", command, scenario, *rest), *says)


def test_a_file_that_exists_or_has_no_folder_is_refused_before_anything_is_measured(scenario, tmp_path):
    there = write(tmp_path, "mine", "there.toml")
    assert_refused(run("measure", "step", scenario, *STEP, "--out", there), "--out", "new file", str(there))
    assert there.read_text() == "mine"
    nowhere = tmp_path / "no" / "x.toml"
    assert_refused(run("measure", "step", scenario, *STEP, "--out", nowhere), "--out", "folder", str(nowhere))


def test_a_meter_that_fails_is_an_error_in_one_line(scenario, quick, monkeypatch):
    zone = add_zone(quick, "intel-rapl:0", "package-0", 1_000)
    monkeypatch.setattr(Bench, "idle_watts", lambda bench: (zone / "energy_uj").unlink() or bench.meter.joules())
    done = measure("step", scenario, *STEP)
    assert done.exit_code == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith("energy_uj: cannot be read (No such file or directory)")


def test_a_scenario_without_training_is_refused(tmp_path):
    text = SCENARIO[: SCENARIO.index("[training]")] + SCENARIO[SCENARIO.index("[[device]]") :]
    done = run("measure", "step", write(tmp_path, text.replace("softmax", "lenet5")), *STEP)
    assert done.exit_code == 2
    assert "[training] is missing" in done.stderr


CLOCKS = (("measure", "step", "--clocks-from"), ("calibrate", "gpu"))


def test_recorded_clocks_are_fitted_as_calibrate_does():
    file = str(Path(__file__).parents[1] / "examples" / "gpu-measurements.csv")
    measured, calibrated = (CliRunner().invoke(app, [*words, file]) for words in CLOCKS)
    assert measured.exit_code == 0
    assert "[device.gpu]" in measured.stdout
    assert measured.stdout == calibrated.stdout


def test_what_messages_cost_is_booked_as_it_was_measured():
    """A round writes and reads one message: each entry of both is charged once, the parameters once."""
    writing, reading = (
        CostFit((Coefficient(p, p, p), Coefficient(e, e, e)), 0.0) for p, e in ((3.0, 10.0), (1.0, 4.0))
    )
    both = _of_both(writing, reading)
    entries, parameters = 7.0, 100.0
    told = both.coefficients[0].value * parameters + both.coefficients[1].value * (entries + entries)
    assert told == (3.0 + 1.0) * parameters + (10.0 + 4.0) * entries
