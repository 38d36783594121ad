"""``fewjoules reproduce``: what it refuses, what it writes, and how it goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.test_bad_input import assert_refused, run

from fewjoules.runs.lock import locked
from fewjoules_reproduction.claims import read_claims
from fewjoules_reproduction.studies import STUDIES
from test_lab import _one_thread  # noqa: F401 - a fixture of all tests here
from test_results import SCALE, Pretended, carried_out, remove, seeds
from test_results import _small as small_studies  # noqa: F401 - likewise

ALWAYS = {"claims.md", "claims.csv", "not-run.md", "diary.jsonl"}
FIG1B = {"fig1b.csv", "fig1b.pdf", "fig1b.png"}


def reproduce(*arguments):
    return run("reproduce", *arguments)


def files(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def diary_of(folder):
    return [json.loads(line) for line in (folder / "diary.jsonl").read_text(encoding="utf-8").splitlines()]


# --- How it is found


def test_the_command_is_that_of_this_package_and_loads_nothing_heavy():
    code = "import sys, fewjoules.cli.plugins as p; p.load(p.installed()['reproduce']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "fewjoules_reproduction.command" in modules
    assert modules.isdisjoint({"torch", "matplotlib", "numba", "plotly", "pyarrow"})


# --- Refusals


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fig3",), ("fig1a", "fig2d", "all", "'fig3'")),
        (("fig1a", "FIG1B"), ("'FIG1B'",)),
        (("",), ("''",)),
        (("fig1b", "--processes", "0"), ("--processes", "64", "0")),
        (("fig1b", "--processes", "-1"), ("--processes", "-1")),
        (("fig1b", "--processes", "65"), ("--processes", "65")),
        (("fig2c", "--no-train", "--runs", "nowhere"), ("--runs", "folder", "'nowhere'")),
        (("fig2c", "--runs", __file__), ("--runs", "folder", "test_command.py")),
    ],
    ids=["unknown", "one unknown", "empty", "no process", "less", "too many processes", "no runs", "runs in a file"],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, arguments, says):
    assert_refused(reproduce(*arguments, "--out", tmp_path / "out"), *says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("figures", [("fig2c",), ("fig1b", "fig2c"), ("fig1b",)])
def test_an_unknown_device_is_refused_before_anything_is_written(tmp_path, figures):
    assert_refused(reproduce(*figures, "--quick", "--device", "tpu", "--out", tmp_path / "out"), "device", "tpu")
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    target = tmp_path / "out"
    target.write_text("mine")
    assert_refused(reproduce("fig1b", "--out", target), str(target), "folder")
    assert target.read_text() == "mine"


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    assert_refused(reproduce("fig1b", "--out", tmp_path), str(tmp_path), "earlier reproduction")
    assert files(tmp_path) == {"thesis.tex"}


def test_a_damaged_record_is_refused_by_name(tmp_path):
    carried_out(tmp_path / "runs", Pretended())
    (tmp_path / "runs" / "digits" / "tune-stc.json").write_text("{")
    refusal = reproduce("fig2c", "--quick", "--runs", tmp_path / "runs", "--out", tmp_path / "out", "--no-train")
    assert_refused(refusal, "tune-stc.json", "JSON")
    assert files(tmp_path / "out") == {"diary.jsonl"}


# --- Fig. 1


@pytest.fixture(scope="module")
def fig1b(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig1b") / "a" / "new one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["/bin/fewjoules", "reproduce", "fig1b", "--out", "a/new one"])
        done = reproduce("fig1b", "--quick", "--out", folder)
    assert done.exit_code == 0, done.stderr
    return folder, done


def test_one_figure_writes_its_own_files_the_claims_and_the_diary(fig1b):
    folder, _ = fig1b
    assert files(folder) == FIG1B | ALWAYS


def test_the_verdicts_are_printed_with_where_the_rest_is(fig1b):
    folder, done = fig1b
    assert re.search(r"reproduced|partly", done.stdout)
    assert "1(b)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"in {folder}")
    assert "not run" not in done.stdout
    assert done.stderr == ""


def test_quick_says_what_it_left_out(fig1b):
    _, done = fig1b
    left_out = [line for line in done.stdout.splitlines() if line.startswith("left out by --quick: ")]
    assert left_out == ["left out by --quick: every other point of the sweeps of Fig. 1"]


def test_what_has_no_quick_form_is_said_to_be_left_out(tmp_path):
    done = reproduce("writers", "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "left out by --quick: Fig. 2 with QMNIST writers" in done.stdout
    assert files(tmp_path / "out") == ALWAYS


def test_a_diary_begins_with_command_commit_and_machine(fig1b):
    (line,) = diary_of(fig1b[0])
    assert line["begun"] is True
    assert line["command"] == "fewjoules reproduce fig1b --out 'a/new one'"
    assert line["machine"].keys() == {"platform", "cores", "gpu"}
    assert line["machine"]["cores"] == os.cpu_count()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["time"])


def test_the_diary_has_the_commit_of_the_source(fig1b):
    source = Path(__file__).parents[1]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=False)
    commit = diary_of(fig1b[0])[0]["commit"]
    assert (commit is None) == (head.returncode != 0)
    if commit is not None:
        assert head.stdout.startswith(commit.removesuffix("-dirty"))
        assert len(commit.removesuffix("-dirty")) >= 12


def test_a_second_call_into_the_folder_adds_to_it(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("fig1b", "fig1c"):
        assert reproduce(name, "--quick", "--out", tmp_path / "empty").exit_code == 0
    fig1c = {file.replace("1b", "1c") for file in FIG1B}
    assert files(tmp_path / "empty") == FIG1B | fig1c | ALWAYS
    assert len(diary_of(tmp_path / "empty")) == 1, "nothing was trained"
    figures = [claim.figure for claim in read_claims(tmp_path / "empty" / "claims.csv")]
    assert list(dict.fromkeys(figures)) == ["1(b)", "1(c)"]
    again = reproduce("fig1b", "--quick", "--out", tmp_path / "empty")
    assert again.exit_code == 0
    assert [claim.figure for claim in read_claims(tmp_path / "empty" / "claims.csv")] == figures, (
        "replaced, not doubled"
    )


def test_quick_accuracy_and_energy_are_figures_of_their_own(tmp_path):
    for name in ("fig2d", "fig2c"):
        assert reproduce(name, "--quick", "--no-train", "--out", tmp_path / "out").exit_code == 0
    figures = [claim.figure for claim in read_claims(tmp_path / "out" / "claims.csv")]
    assert list(dict.fromkeys(figures)) == ["2(a, c), quick", "2(b, d), quick"]


def test_a_second_call_keeps_what_the_first_did_not_run_of_other_studies(tmp_path):
    for name in ("dirichlet", "writers", "dirichlet"):
        assert reproduce(name, "--no-train", "--out", tmp_path / "out").exit_code == 0
    titles = [STUDIES[name].title for name in ("qmnist-writers", "mnist-dirichlet")]
    listed = (tmp_path / "out" / "not-run.md").read_text(encoding="utf-8").splitlines()
    assert listed == [f"- {title}: pilot runs" for title in titles]


# --- Fig. 2


def test_without_training_and_records_everything_is_not_run(tmp_path):
    done = reproduce("fig2c", "fig2d", "dirichlet", "writers", "--no-train", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    not_run = [line for line in done.stdout.splitlines() if line.startswith("not run: ")]
    titles = [STUDIES[name].title for name in ("mnist", "mnist-dirichlet", "qmnist-writers")]
    assert not_run == [f"not run: {title}: pilot runs" for title in titles]
    listed = (tmp_path / "out" / "not-run.md").read_text(encoding="utf-8").splitlines()
    assert listed == [f"- {title}: pilot runs" for title in titles]
    assert files(tmp_path / "out") == ALWAYS
    assert "not run" in (tmp_path / "out" / "claims.md").read_text(encoding="utf-8")


def test_records_of_another_folder_make_the_figures(tmp_path):
    carried_out(tmp_path / "runs", Pretended())
    before = files(tmp_path / "runs")
    done = reproduce("fig2c", "fig2d", "--quick", "--no-train", "--runs", tmp_path / "runs", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "not run: " not in done.stdout
    written = files(tmp_path / "out")
    assert {f"fig2-quick-{what}.{kind}" for what in ("accuracy", "energy") for kind in ("csv", "pdf", "png")} <= written
    assert written > ALWAYS
    assert files(tmp_path / "runs") == before


def test_a_call_again_trains_only_what_is_missing(tmp_path):
    out, (missing, *_) = tmp_path / "out", seeds("stc", 0.4)
    carried_out(out / "runs", Pretended())
    remove(out / "runs", missing)
    (out / "diary.jsonl").write_text("")
    arguments = ("fig2d", "--quick", "--device", "cpu", "--out", out)
    first, second = reproduce(*arguments), reproduce(*arguments, "--processes", "2")
    assert first.exit_code == second.exit_code == 0, first.stderr
    assert [line.split("digits: ")[1] for line in first.stderr.splitlines()] == [missing]
    assert second.stderr == ""
    (line,) = diary_of(out)
    assert line["trained"] == 1
    assert line["wall_seconds"] > 0.0
    assert {"command", "commit", "machine"} <= line.keys()
    assert (out / "runs" / "digits" / f"{missing}.json").is_file()


def test_missing_seeds_are_said_when_nothing_is_trained(tmp_path):
    carried_out(tmp_path, Pretended())
    remove(tmp_path, *seeds("stc", 0.4)[1:])
    done = reproduce("fig2d", "--quick", "--no-train", "--runs", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert f"not run: {STUDIES['digits'].title}: stc (1 of {len(SCALE.seeds)} seeds)" in done.stdout.splitlines()


# --- Help


def test_help_teaches():
    done = reproduce("--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for word in ("fig1a", "fig2d", "lte", "dirichlet", "writers", "all"):
        assert word in text
    for option in ("--quick", "--out", "--runs", "--no-train", "--processes", "--data-dir", "--device"):
        assert option in text
    assert "fewjoules reproduce --quick" in text
    assert "continues a reproduction that was stopped" in text


# --- Ctrl-C


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_reproduction_keeps_its_trainings_ends_its_processes_and_says_how_to_go_on(tmp_path, processes):
    out = tmp_path / "out"
    # a shell starts background jobs with Ctrl-C ignored, and programs inherit that
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "from fewjoules.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "reproduce", "fig2c", "--quick", "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--processes", str(processes), "--out", str(out)], stderr=subprocess.PIPE, text=True, env=environment
    ) as program:
        deadline = time.monotonic() + 600.0
        while not list(out.glob("runs/digits/tune-*.json")):
            assert program.poll() is None, program.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = children_of(program.pid)
        program.send_signal(signal.SIGINT)  # to it alone; a terminal would tell its processes, too
        _, told = program.communicate(timeout=600.0)
    assert program.returncode == 130
    last = re.fullmatch(
        r"stopped; (\d+) new trainings are kept, and the same command continues from there", told.splitlines()[-1]
    )
    assert last is not None, told
    assert "Traceback" not in told
    kept = len(list(out.glob("runs/digits/*.json")))
    assert kept - 1 <= int(last[1]) <= kept, "one may have been saved and not yet counted"
    assert diary_of(out)[-1].get("trained", 0) == int(last[1]), "nothing is written of no training"
    assert len(children) >= processes - 1
    deadline = time.monotonic() + 60.0
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "its processes must end with it"
        time.sleep(0.1)


def test_processes_do_not_outlive_a_parent_that_is_killed(tmp_path):
    out, script = tmp_path / "out", "import sys; from fewjoules.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "reproduce", "fig2c", "--quick", "--device", "cpu", "--processes", "2"]
    with subprocess.Popen(
        [*command, "--out", str(out)], stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    ) as program:
        deadline = time.monotonic() + 600.0
        while not list(out.glob("runs/digits/tune-*.json")):
            assert program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = children_of(program.pid)
        program.kill()
    assert len(children) >= 2
    deadline = time.monotonic() + 60.0
    while any(is_alive(child) for child in children):
        assert time.monotonic() < deadline, "its processes must end with it"
        time.sleep(0.1)


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody may be there to bury it


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_a_folder_that_another_process_draws_into_is_refused(tmp_path):
    with locked(tmp_path / "out"):
        assert_refused(run("reproduce", "fig1b", "--quick", "--out", tmp_path / "out"), "is writing to this folder")
    assert list((tmp_path / "out").iterdir()) == []
