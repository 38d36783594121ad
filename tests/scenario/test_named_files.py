"""Files that a scenario names: regular ones below its folder, and nothing of what they hold is shown."""

import os

import pytest

import fewjoules as fj
from tests.scenario.test_training_scenario import trained_with
from tests.test_bad_input import TRACE, assert_refused, run, run_program, write

SECRET = "root:x:0:0:hunter2,correct horse\nsecond:secret\n"
GAINS = "gain\n0.5\n1.5\n"


def traced(name):
    return TRACE.replace('"channel.csv"', f'"{name}"')


@pytest.fixture
def folder(tmp_path):
    """The folder of a scenario, beside a file and a folder that it must not reach."""
    (tmp_path / "scenario" / "below").mkdir(parents=True)
    write(tmp_path, GAINS, "outside.csv")
    return tmp_path / "scenario"


@pytest.mark.parametrize(
    "name", ["channel.csv", "below/channel.csv", "below/../channel.csv", "../scenario/channel.csv"]
)
def test_a_trace_below_the_folder_is_read(folder, name):
    write(folder, GAINS, "channel.csv")
    write(folder / "below", GAINS, "channel.csv")
    assert run("plan", write(folder, traced(name))).exit_code == 0


@pytest.mark.parametrize(
    "name", ["../outside.csv", "below/../../outside.csv", "{outside}", "link.csv", "linked/outside.csv"]
)
def test_a_trace_outside_is_read_only_where_the_user_allows_it(folder, name):
    outside = folder.parent / "outside.csv"
    (folder / "link.csv").symlink_to(outside)
    (folder / "linked").symlink_to(folder.parent)
    scenario = write(folder, traced(name.format(outside=outside)))
    refusal = run("plan", scenario)
    assert_refused(refusal, "laptop", "radio.trace", "below the folder of the scenario", "--allow-outside")
    assert run("plan", scenario, "--allow-outside").exit_code == 0
    with pytest.raises(fj.InvalidInputError, match="below the folder"):
        fj.Scenario.from_toml(scenario)
    assert fj.Scenario.from_toml(scenario, allow_outside=True).parameters == 1000


def test_whether_a_file_outside_exists_is_not_told(folder):
    there, missing = (run("plan", write(folder, traced(name))).stderr for name in ("../outside.csv", "../missing.csv"))
    assert there.replace("outside", "missing", 2) == missing.replace("outside", "missing", 1)


@pytest.mark.parametrize("name", ["a\\u0000b.csv", "circle.csv"])
def test_a_name_that_leads_nowhere_is_refused(folder, name):
    (folder / "circle.csv").symlink_to("circle.csv")
    assert_refused(run("plan", write(folder, traced(name))), "laptop")


def test_lost_uploads_are_read_below_the_folder_too(folder):
    write(folder.parent, "round,device\n1,0\n", "lost.csv")
    scenario = write(folder, trained_with('failure_trace = "../lost.csv"'))
    refusal = run("train", scenario, "--out", folder / "out")
    assert_refused(refusal, "training.failure_trace", "below the folder", "'../lost.csv'")
    assert not (folder / "out").exists()
    assert run("train", scenario, "--out", folder / "out", "--allow-outside").exit_code == 0


def test_a_resumed_run_may_read_what_it_might_before(folder):
    write(folder.parent, "round,device\n1,0\n", "lost.csv")
    scenario = write(folder, trained_with('failure_trace = "../lost.csv"'))
    assert run("train", scenario, "--out", folder / "out", "--allow-outside").exit_code == 0
    (folder / "out" / "run.json").unlink()
    assert run("train", "--resume", folder / "out").exit_code == 0


@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.replace("\n", ",gain\n"), f"gain\n{SECRET}", f"gain\n'{SECRET}", "gain\nhunter2\n"]
)
def test_no_text_of_a_trace_is_shown(folder, secret):
    write(folder, secret, "channel.csv")
    refusal = run("plan", write(folder, TRACE))
    assert_refused(refusal, "channel.csv")
    assert not any(word in refusal.stderr for word in ("hunter2", "correct", "horse", "second"))


@pytest.mark.parametrize("command", ["gpu", "rounds"])
def test_no_text_of_measurements_is_shown(tmp_path, command):
    refusal = run("calibrate", command, write(tmp_path, SECRET, "measured.csv"))
    assert_refused(refusal, "measured.csv")
    assert "hunter2" not in refusal.stderr


def test_no_text_is_shown_of_a_file_in_the_place_of_a_stored_scenario(tmp_path):
    scenario = write(tmp_path, trained_with())
    assert run("train", scenario, "--out", tmp_path / "out").exit_code == 0
    (tmp_path / "out" / "run.json").unlink()
    write(tmp_path / "out", SECRET)
    refusal = run("train", scenario, "--resume", tmp_path / "out")
    assert_refused(refusal, "must be TOML")
    assert "hunter2" not in refusal.stderr


@pytest.mark.parametrize("kind", ["trace", "scenario", "plan", "measurements", "stored plan", "run.json", "checkpoint"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path, kind):
    """In a process of its own, which is stopped if it waits for a writer."""
    pipe = tmp_path / "channel.csv"
    os.mkfifo(pipe)
    if kind == "trace":
        refusal = run_program("plan", write(tmp_path, TRACE))
    elif kind == "scenario":
        refusal = run_program("plan", pipe)
    elif kind == "plan":
        refusal = run_program("train", write(tmp_path, trained_with()), "--plan", pipe, "--out", tmp_path / "out")
    elif kind == "measurements":
        refusal = run_program("calibrate", "rounds", pipe)
    else:
        assert run("train", write(tmp_path, trained_with()), "--out", tmp_path / "out").exit_code == 0
        (tmp_path / "out" / "run.json").unlink()
        name = {"stored plan": "plan.json", "run.json": "run.json", "checkpoint": "checkpoint.safetensors"}[kind]
        (tmp_path / "out" / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / "out" / name)
        refusal = run_program("train", "--resume", tmp_path / "out", "--device", "cpu")
    assert_refused(refusal, "must be a regular file, got a pipe")


@pytest.mark.parametrize(("path", "kind"), [("/dev/zero", "a device"), ("/dev/null", "a device"), ("/dev", "a folder")])
def test_a_device_or_a_folder_in_place_of_a_file_is_refused(path, kind):
    assert_refused(run("plan", path), path, f"must be a regular file, got {kind}")
