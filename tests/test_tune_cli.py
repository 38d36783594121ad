"""``fewjoules tune``: what it writes, that a kill changes nothing, and what it refuses."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fewjoules.planner.plan import PLAN_VERSION, plans_from_json
from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.runs.sealed import read_sealed
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from tests.reports.test_page import Reader
from tests.scenario.test_training_scenario import SCENARIO, trained_with
from tests.test_bad_input import assert_refused, run, write

TEXT = trained_with("target_accuracy = 0.8")
LAW = SCENARIO[SCENARIO.index("[rounds]") : SCENARIO.index("[limits]")]
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can write")
DOCUMENTED = Path(__file__).parents[1] / "docs" / "tuning.md"


def tune(folder, *arguments, text=TEXT):
    """Tune the small scenario in a folder; what the command said."""
    file = write(folder, text)
    return run("tune", file, "--device", "cpu", "--out", folder / "tuned.toml", "--folder", folder / "out", *arguments)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    done = tune(folder)
    assert done.exit_code == 0, done.stderr
    return folder, done


def results(folder):
    """The bytes of everything that must not depend on how the tuning was carried out."""
    return {name: (folder / name).read_bytes() for name in ("tuned.toml", "out/tuning.json", "out/page.html")}


def test_the_written_scenario_plans_what_the_report_says(tuned):
    folder, _ = tuned
    record = read_sealed(folder / "out" / "tuning.json")
    plan = ScenarioPlans(Scenario.from_toml(folder / "tuned.toml")).plan("fewest")
    (told,) = plans_from_json(json.dumps({"version": PLAN_VERSION, "plans": [record["plan"]]}), source="tuning.json")
    assert plan.chooses_like(told)
    assert plan.energy_joules == pytest.approx(told.energy_joules, rel=1e-9)
    assert plan.recipe == told.recipe


def test_the_written_scenario_is_the_old_one_with_a_recipe(tuned):
    folder, _ = tuned
    text = (folder / "tuned.toml").read_text(encoding="utf-8")
    assert text.startswith(TEXT)
    added = tomllib.loads(text)["recipe"]
    assert set(added) >= {"name", "optimiser", "message", "rounds", "message_size"}
    assert set(added["rounds"]["intervals"]) == {"tau", "c", "a", "q"}
    assert len(added["rounds"]["correlations"]) == 6
    assert re.search(r"^# found by fewjoules \S+ tune on \S+ with seed 1000(; .*)?$", text, re.M)


def test_the_written_scenario_tells_what_finding_the_recipe_took(tuned):
    books = read_sealed(tuned[0] / "out" / "tuning.json")["books"]
    search = Scenario.from_toml(tuned[0] / "tuned.toml").recipe_search
    assert search.pilots == books["pilots"]
    assert search.pilot_client_steps == books["client_steps"]
    assert search.pilot_joules == books["joules"]


def test_the_written_scenario_is_compared_by_its_levers_and_the_price_of_the_pilots(tuned, tmp_path):
    folder, _ = tuned
    text = (folder / "tuned.toml").read_text(encoding="utf-8").replace("\nrounds = 2\n", "\n")
    done = run("compare", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    rate = Scenario.from_toml(folder / "tuned.toml").recipe_search.plain_learning_rate
    assert json.loads((tmp_path / "out" / "step-size" / "run.json").read_text())["learning_rate"] == rate
    pilots = read_sealed(folder / "out" / "tuning.json")["books"]["pilots"]
    assert f"Finding the recipe took {pilots} pilot runs" in done.stdout


def test_the_written_scenario_can_be_trained_and_reaches_the_target(tuned, tmp_path):
    folder, _ = tuned
    text = (folder / "tuned.toml").read_text(encoding="utf-8").replace("\nrounds = 2\n", "\n")
    done = run("train", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert summary["scheme"] == "fewest"
    assert summary["target_reached"]


def test_the_report_tells_ranking_recipe_prediction_proof_and_payment(tuned):
    _, done = tuned
    words = " ".join(done.stdout.split())
    record = read_sealed(tuned[0] / "out" / "tuning.json")
    for contender in record["contenders"]:
        assert contender["name"] in done.stdout
    assert f"recipe: {record['recipe']['words']}" in words
    assert f"plan: H = {record['plan']['local_steps']} local steps a round" in words
    assert "proved that no plan of this recipe within the limits costs less than" in words
    books = record["books"]
    assert f"the {books['pilots']} pilots would cost" in words
    paid = books["trainings_to_pay"]
    assert ("so they never pay" if paid is None else f"so they have paid after {paid} training") in words
    assert "against SGD at its best step size, by its pace in the race" in words


def test_rounds_that_end_a_training_before_the_target_are_told_everywhere(tmp_path):
    done = tune(tmp_path, text=TEXT.replace("\nrounds = 2\n", "\nrounds = 1\n"))
    assert done.exit_code == 0, done.stderr
    record = read_sealed(tmp_path / "out" / "tuning.json")
    told = (
        "ith training.rounds = 1 a training ends before the target, which is predicted to take "
        f"{math.ceil(record['plan']['rounds'])} rounds; raise it or leave it out"
    )
    assert told in record["notes"][-1]
    assert told in " ".join(done.stdout.split())
    assert told in (tmp_path / "tuned.toml").read_text(encoding="utf-8")
    assert told in Reader((tmp_path / "out" / "page.html").read_text(encoding="utf-8")).text


def test_the_record_has_the_documented_keys(tuned):
    record = read_sealed(tuned[0] / "out" / "tuning.json")
    table = DOCUMENTED.read_text(encoding="utf-8").split("## `tuning.json`")[1]
    keys = {key for line in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", line)}
    assert keys == set(record)
    assert record["version"] == 1
    assert len(record["pilots"]) == record["books"]["pilots"]


def test_a_pipe_gets_one_line_a_pilot(tuned):
    _, done = tuned
    record = read_sealed(tuned[0] / "out" / "tuning.json")
    lines = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"pilot {n}" for n in range(1, len(record["pilots"]) + 1)]
    assert f"booked {record['books']['client_steps']:,} of" in lines[-1]


def test_the_page_has_words_and_tables_for_every_figure(tuned):
    text = (tuned[0] / "out" / "page.html").read_text(encoding="utf-8")
    reader = Reader(text)
    described = [kept["aria-label"] for _, kept in reader.elements if kept.get("role") == "img"]
    assert len(described) == len(reader.figures()) == 4
    assert all(" chart of " in words or words.startswith("Chart of ") for words in described)
    assert reader.text.count("The numbers as a table") == 3


def test_the_page_draws_every_pilot_and_the_chosen_optimiser_is_thick(tuned):
    folder, _ = tuned
    record = read_sealed(folder / "out" / "tuning.json")
    lines = Reader((folder / "out" / "page.html").read_text(encoding="utf-8")).figures()["figure-0-0"]["data"]
    assert sorted(line["x"] for line in lines) == sorted(pilot["steps"] for pilot in record["pilots"])
    thick = [line["hovertemplate"] for line in lines if line["line"]["width"] == 3]
    assert thick
    assert all(hover.startswith(record["recipe"]["name"]) for hover in thick)
    assert len(thick) < len(lines)


def test_the_band_of_the_law_holds_its_curve_and_the_diamond_is_the_plan(tuned):
    folder, _ = tuned
    record = read_sealed(folder / "out" / "tuning.json")
    figures = Reader((folder / "out" / "page.html").read_text(encoding="utf-8")).figures()
    for name in ("figure-1-0", "figure-1-1"):
        low, high, curve, plan, dots = figures[name]["data"]
        assert all(a < b < c for a, b, c in zip(low["y"], curve["y"], high["y"], strict=True))
        assert curve["y"] == sorted(curve["y"])
        assert len(dots["x"]) == len(record["belief"]["observations"])
        steps = record["plan"]["rounds"] * record["plan"]["local_steps"]
        assert plan["y"][0] == pytest.approx(steps, rel=0.1)
    assert figures["figure-1-0"]["data"][3]["x"] == [record["plan"]["local_steps"]]


def test_json_prints_the_record_and_nothing_else(tmp_path):
    done = tune(tmp_path, "--json")
    assert json.loads(done.stdout) == read_sealed(tmp_path / "out" / "tuning.json")


def test_a_scenario_without_a_rounds_law_gets_a_rough_one_of_plain_sgd(tmp_path):
    done = tune(tmp_path, text=TEXT.replace(LAW, ""))
    assert done.exit_code == 0, done.stderr
    assert "against SGD at its best step size, by its pace in the race" in " ".join(done.stdout.split())
    written = Scenario.from_toml(tmp_path / "tuned.toml")
    own = written.under_recipe().rounds
    assert (written.rounds.c, written.rounds.a, written.rounds.q) == (own.c, own.a, own.q)
    books = read_sealed(tmp_path / "out" / "tuning.json")["books"]
    plain = ScenarioPlans(written).plan("flexible")
    assert plain.energy_joules == pytest.approx(books["untuned_joules"], rel=0.5)


def test_a_tuning_stopped_after_any_pilot_gives_the_same_results_when_resumed(tuned, tmp_path, monkeypatch):
    folder, _ = tuned
    lines = (folder / "out" / "pilots.jsonl").read_bytes().splitlines(keepends=True)
    settings = (folder / "out" / "settings.json").read_bytes()
    wanted = results(folder)
    for pilots in range(len(lines)):
        torn = lines[pilots + 1][:25] if pilots + 1 < len(lines) else b""
        (folder / "out" / "pilots.jsonl").write_bytes(b"".join(lines[: pilots + 1]) + torn)
        for name in wanted:
            (folder / name).unlink()
        done = run("tune", "--resume", folder / "out")
        assert done.exit_code == 0, done.stderr
        assert results(folder) == wanted
        assert (folder / "out" / "pilots.jsonl").read_bytes() == b"".join(lines)
    assert (folder / "out" / "settings.json").read_bytes() == settings


def test_no_pilot_is_trained_twice(tuned, monkeypatch):
    folder, _ = tuned

    def add(journal, result):
        raise AssertionError(result.spec)

    monkeypatch.setattr(PilotJournal, "add", add)
    assert run("tune", "--resume", folder / "out").exit_code == 0


def test_a_killed_tuning_goes_on(tuned, tmp_path):
    file = write(tmp_path, TEXT)
    command = [sys.executable, "-m", "fewjoules", "tune", str(file), "--device", "cpu"]
    places = ["--out", str(tmp_path / "tuned.toml"), "--folder", str(tmp_path / "out")]
    process = subprocess.Popen([*command, *places], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    process.stderr.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "tuned.toml").exists()
    done = run("tune", "--resume", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert (
        read_sealed(tmp_path / "out" / "tuning.json")["pilots"]
        == read_sealed(tuned[0] / "out" / "tuning.json")["pilots"]
    )


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def add(journal, result):
        raise KeyboardInterrupt

    monkeypatch.setattr(PilotJournal, "add", add)
    done = tune(tmp_path)
    assert done.exit_code == 130
    assert f"resume with: fewjoules tune --resume {tmp_path / 'out'}" in done.stderr


def test_a_target_out_of_reach_exits_with_1_and_keeps_the_pilots(tmp_path):
    done = tune(tmp_path, text=trained_with("target_accuracy = 1.0"))
    assert done.exit_code == 1
    assert re.search(r"error: the target accuracy 1 seems out of reach: the best of \d+ pilots has 0\.\d+", done.stderr)
    assert len((tmp_path / "out" / "pilots.jsonl").read_bytes().splitlines()) > 1
    assert not (tmp_path / "tuned.toml").exists()


def test_the_scenario_itself_may_get_the_recipe_and_a_second_one_replaces_it(tmp_path):
    file = write(tmp_path, TEXT)
    for number in (1, 2):
        done = run("tune", file, "--device", "cpu", "--out", file, "--folder", tmp_path / f"out{number}")
        assert done.exit_code == 0, done.stderr
    text = file.read_text(encoding="utf-8")
    assert text.count("[recipe]") == 1
    assert text.startswith(TEXT)


def test_a_file_that_is_not_the_scenario_is_never_overwritten(tmp_path):
    (tmp_path / "tuned.toml").write_text("precious", encoding="utf-8")
    assert_refused(tune(tmp_path), "--out must be a new file or the scenario itself", "tuned.toml")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "tuned.toml").read_text(encoding="utf-8") == "precious"


def test_a_file_that_appears_meanwhile_is_not_overwritten_and_another_place_can_be_given(tuned, tmp_path):
    folder, _ = tuned
    before = (folder / "tuned.toml").read_bytes()
    (folder / "tuned.toml").write_text("precious", encoding="utf-8")
    done = run("tune", "--resume", folder / "out")
    assert done.exit_code == 2
    assert "is not overwritten; give another one by" in done.stderr.splitlines()[-1]
    assert (folder / "tuned.toml").read_text(encoding="utf-8") == "precious"
    assert run("tune", "--resume", folder / "out", "--out", folder / "other.toml").exit_code == 0
    assert (folder / "other.toml").read_bytes() == before
    (folder / "tuned.toml").write_bytes(before)


def test_without_out_the_file_is_named_after_the_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("tune", write(tmp_path, TEXT), "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.toml", "scenario-tuned.toml", "fewjoules-tune"}


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("gone/tuned.toml", "--out must be a file in a folder that exists"),
        ("file/tuned.toml", "--out must be a file in a folder that exists"),
        (f"{'x' * 300}.toml", "--out must be a file that can be written"),
        pytest.param("/proc/tuned.toml", "--out must be a file that can be written", marks=needs_proc),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_trained(place, says, tuned, tmp_path):
    write(tmp_path, TEXT, "file")
    out = tmp_path / place
    assert_refused(tune(tmp_path, "--out", out), says, out.name[:20])
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.toml", "file"}
    assert_refused(run("tune", "--resume", tuned[0] / "out", "--out", out), says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "many"], ["the budget must be client-steps or joules above 0", "'many'"]),
        (["--budget", "-3 J"], ["above 0", "'-3 J'"]),
        (["--trainings", "0"], ["--trainings", "1000000", "got 0"]),
        (["--processes", "65"], ["--processes", "64", "65"]),
        (["--seed", "-1"], ["--seed", "-1"]),
        (["--device", "tpu"], ["device must be auto, cpu, cuda or", "'tpu'"]),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_is_written(tmp_path, arguments, says):
    assert_refused(tune(tmp_path, *arguments), *says)
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.toml"}


@pytest.mark.parametrize(
    ("arguments", "target", "says"),
    [
        ([], "target_accuracy = 0.01", ["the target accuracy must be above 0.", "got 0.01"]),
        ([], "target_loss = 50", ["the target loss must be below ", "got 50"]),
        (
            ["--budget", "9 steps"],
            "target_accuracy = 0.8",
            ["the budget must allow the first 3 pilots", "got 9 client"],
        ),
        (["--budget", "1e-9 J"], "target_accuracy = 0.8", ["client-steps or", "got 1e-09 J"]),
    ],
)
def test_what_the_untrained_model_or_the_first_plan_rules_out_leaves_nothing_behind(tmp_path, arguments, target, says):
    assert_refused(tune(tmp_path, *arguments, text=trained_with(target)), *says)
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.toml"}


def test_a_scenario_without_a_target_is_refused(tmp_path):
    refusal = tune(tmp_path, text=SCENARIO)
    assert_refused(refusal, "training.target_accuracy (or target_loss, target_perplexity, target_metric) is missing")
    assert not (tmp_path / "out").exists()


def test_a_changed_scenario_and_changed_settings_are_refused_when_resumed(tuned, tmp_path):
    folder, _ = tuned
    other = write(tmp_path, TEXT.replace("learning_rate = 0.1", "learning_rate = 0.2"))
    assert_refused(run("tune", other, "--resume", folder / "out"), "another scenario", "learning_rate = 0.2")
    assert_refused(run("tune", "--resume", folder / "out", "--budget", "9 J"), "--resume", "--budget")
    assert_refused(run("train", "--resume", folder / "out"), "made by fewjoules tune")


def test_a_damaged_journal_is_refused(tuned):
    file = tuned[0] / "out" / "pilots.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"rounds": ', b'"rounds": 1', 1))
    assert_refused(run("tune", "--resume", tuned[0] / "out"), "damaged: line 2")
    file.write_bytes(whole)


def test_files_that_the_scenario_names_must_be_found_from_the_tuned_one(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    trace = 'fading = "trace"\ntrace = "gains.csv"\nmean_snr_db = 10.0'
    text = SCENARIO.replace("mean_snr_db = 10.0", trace, 1)
    text = text.replace("[training]\n", "[training]\ntarget_accuracy = 0.8\n")
    (inside / "gains.csv").write_text("gain\n1.0\n2.0\n", encoding="utf-8")
    done = run("tune", write(inside, text), "--out", tmp_path / "tuned.toml", "--folder", tmp_path / "out")
    assert_refused(done, "--out must lie where the files that the scenario names are found", "gains.csv")
