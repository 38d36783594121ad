"""``fewjoules train`` and ``fewjoules compare``: the folder they leave, why they stop, and what they refuse.

tests/scenario/test_training_scenario.py has the bad scenario files, tests/runs/test_resume.py kills and resumes.
"""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fewjoules.cli import app, progress
from fewjoules.datasets.load import load
from fewjoules.engine.models import networks as models
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.provenance import MARKS
from fewjoules.runs.lock import LOCK
from fewjoules.scenario import Scenario
from tests.datasets.files import write_mnist
from tests.reports.test_page import Reader
from tests.runs.test_loggers import assert_wandb_writes
from tests.scenario.test_training_scenario import ROUNDS, SCENARIO, TRAINING, trained_with
from tests.test_bad_input import assert_refused, run, write

DOCUMENTED = Path(__file__).parents[1] / "docs" / "ledger.md"
TABLES = {"ledger.parquet", "metrics.parquet", "model.safetensors"}
LEFT = "train writes the folder before it checks everything"


def train(folder, *lines, options=(), replace=()):
    """Train the small scenario with more lines in [training]; the results folder."""
    text = trained_with(*lines)
    for old, new in replace:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir(exist_ok=True)
    done = run("train", write(folder, text), "--device", "cpu", "--out", folder / "out", *options)
    assert done.exit_code == 0, done.stderr
    return folder / "out"


def summary_of(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def metrics_of(folder):
    return read_table(folder / "metrics.parquet", METRICS)


def ledger_of(folder):
    return read_table(folder / "ledger.parquet", LEDGER)


def contents(folder):
    """Every file below a folder with its bytes; a lock file is left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in which every account is used: drawn channel, charged downlink, lost uploads, a cost a sample, marks."""
    lines = ['channel = "drawn"', 'downlink = "charged"', "participation = 0.5", "failure_probability = 0.3"]
    costs = ("joules_per_step = 5e-4", "joules_per_step = 5e-4\njoules_per_sample = 1e-6")
    marks = ('name = "near"', 'name = "near"\nprovenance = {uplink = "measured", compute = "measured"}')
    return train(tmp_path_factory.mktemp("trained"), *lines, replace=[costs, marks, (ROUNDS, "rounds = 5")])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """All schemes; two of them cannot reach the target in six rounds."""
    folder = tmp_path_factory.mktemp("compared")
    text = trained_with("target_accuracy = 0.6").replace(ROUNDS, "rounds = 6")
    done = run("compare", write(folder, text), "--device", "cpu", "--out", folder / "out")
    assert done.exit_code == 0, done.stderr
    return folder / "out", done.stdout


def test_train_leaves_the_documented_files(trained):
    table = DOCUMENTED.read_text(encoding="utf-8").split("## ")[0]
    documented = set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE))
    assert documented >= TABLES | {"run.json"}
    assert documented <= {path.name for path in trained.iterdir()}


def test_train_leaves_no_file_that_is_not_documented(trained):
    table = DOCUMENTED.read_text(encoding="utf-8").split("## ")[0]
    assert {path.name for path in trained.iterdir()} <= set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE))


def test_run_json_has_the_documented_keys(trained):
    table = DOCUMENTED.read_text(encoding="utf-8").split("## `run.json`")[1]
    keys = {key for line in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", line)}
    of_own_metrics = {"target_metric", "test_metrics"}  # tests/runs/test_own_folder.py has a run with them
    assert {"stop_reason", "joules", "devices"} | of_own_metrics <= keys
    assert keys - of_own_metrics <= set(summary_of(trained))


def test_the_scenario_is_kept_as_it_was_read(trained):
    assert (trained / "scenario.toml").read_bytes() == (trained.parent / "scenario.toml").read_bytes()


def test_the_joules_of_a_run_are_the_sum_of_its_ledger_and_its_last_metrics(trained):
    summary, ledger, last = summary_of(trained), ledger_of(trained), metrics_of(trained)[-1]
    uplink, downlink, compute = (math.fsum(ledger[f"{kind}_joules"]) for kind in ("uplink", "downlink", "compute"))
    assert min(uplink, downlink, compute) > 0.0
    assert summary["radio_joules"] == pytest.approx(uplink + downlink, rel=1e-12)
    assert summary["compute_joules"] == pytest.approx(compute, rel=1e-12)
    assert summary["joules"] == pytest.approx(uplink + downlink + compute, rel=1e-12)
    for name in ("joules", "radio_joules", "compute_joules", "seconds", "payload_bytes"):
        assert summary[name] == last[f"total_{name}"]
    assert summary["payload_bytes"] == ledger["payload_bytes"].sum()


def test_the_joules_by_kind_and_mark_are_the_sums_of_the_ledger(trained):
    summary, ledger = summary_of(trained), ledger_of(trained)
    split = summary["joules_by_kind"]
    assert {kind: list(marks) for kind, marks in split.items()} == {
        "uplink": ["measured", "fitted"],
        "downlink": ["assumed"],
        "tail": ["assumed"],
        "compute": ["measured", "assumed"],
        "codec": ["assumed"],
    }
    for kind, marks in split.items():
        for mark, joules in marks.items():
            rows = ledger[ledger[f"{kind}_mark"] == MARKS.index(mark)]
            assert joules == math.fsum(rows[f"{kind}_joules"])
    total = math.fsum(joules for marks in split.values() for joules in marks.values())
    assert total == pytest.approx(summary["joules"], rel=1e-12)


def test_the_ledger_charges_what_the_fleet_says(trained):
    ledger, fleet = ledger_of(trained), Scenario.from_toml(trained / "scenario.toml").fleet
    device, steps = ledger["device"], summary_of(trained)["local_steps"]
    np.testing.assert_allclose(
        ledger["planned_uplink_joules"], 8.0 * ledger["payload_bytes"] * fleet.joules_per_bit[device], rtol=1e-12
    )
    np.testing.assert_allclose(ledger["compute_joules"], 5e-4 * steps + 1e-6 * ledger["samples"], rtol=1e-12)
    np.testing.assert_allclose(ledger["downlink_joules"], 8.0 * ledger["downlink_bytes"] * 1e-8, rtol=1e-12)
    np.testing.assert_allclose(ledger["compute_seconds"], 2e-3 * steps, rtol=1e-12)


def test_a_round_lasts_as_long_as_its_slowest_device(trained):
    ledger, metrics = ledger_of(trained), metrics_of(trained)
    seconds = ledger["uplink_seconds"] + ledger["downlink_seconds"] + ledger["compute_seconds"]
    slowest = [seconds[ledger["round"] == number].max() for number in metrics["round"]]
    np.testing.assert_allclose(metrics["round_seconds"], slowest, rtol=1e-12)
    np.testing.assert_allclose(metrics["total_seconds"], np.cumsum(slowest), rtol=1e-12)


def test_radio_joules_over_a_drawn_channel_are_set_against_those_of_the_average(trained):
    ledger = ledger_of(trained)
    assert not np.allclose(ledger["uplink_joules"], ledger["planned_uplink_joules"])
    realised = math.fsum(ledger["uplink_joules"]) / math.fsum(ledger["planned_uplink_joules"])
    assert summary_of(trained)["realised_over_planned_radio"] == pytest.approx(realised, rel=1e-12)


def test_the_saved_model_has_the_accuracy_that_the_run_says(trained):
    summary, digits = summary_of(trained), load("digits")
    inputs = torch.from_numpy(digits.normalised(digits.test_images))
    tensors = load_file(trained / "model.safetensors")
    channels, height, width = digits.shape
    model = models.build("softmax", channels=channels, height=height, width=width, classes=10, seed=1)
    model.load_state_dict(tensors)
    with torch.no_grad():
        right = model.eval()(inputs).argmax(dim=1).numpy() == digits.test_labels
    assert summary["test_accuracy"] == right.mean()
    weight, bias = (tensor.double().numpy() for tensor in sorted(tensors.values(), key=lambda t: -t.ndim))
    scores = inputs.numpy().reshape(len(inputs), -1) @ weight.T + bias
    assert summary["test_accuracy"] == (scores.argmax(axis=1) == digits.test_labels).mean()


def test_the_page_needs_nothing_from_elsewhere(trained):
    reader = Reader((trained / "page.html").read_text(encoding="utf-8"))
    assert [a for _, a in reader.elements if {"src", "href", "data", "action"} & set(a)] == []
    assert len(reader.figures()) >= 3


def test_training_twice_gives_the_same_bytes(trained, tmp_path):
    text = (trained / "scenario.toml").read_text(encoding="utf-8")
    assert run("train", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "out").exit_code == 0
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() == (trained / name).read_bytes()


def test_another_seed_gives_another_run(trained, tmp_path):
    text = (trained / "scenario.toml").read_text(encoding="utf-8").replace("[training]", "[training]\nseed = 1")
    assert run("train", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "out").exit_code == 0
    for name in TABLES:
        assert (tmp_path / "out" / name).read_bytes() != (trained / name).read_bytes()


def test_a_run_stops_at_the_first_evaluation_that_meets_the_target(tmp_path):
    out = train(tmp_path, "target_accuracy = 0.5", "evaluate_every = 2", replace=[(ROUNDS, "rounds = 40")])
    summary, metrics = summary_of(out), metrics_of(out)
    met = metrics["test_accuracy"] >= 0.5
    assert summary["stop_reason"] == "target accuracy"
    assert summary["target_reached"] is True
    assert met.tolist() == [False] * (metrics.size - 1) + [True]
    assert metrics.size == summary["rounds"] == summary["rounds_to_target"] < 40
    assert np.isnan(metrics["test_accuracy"]).tolist() == [number % 2 == 1 for number in metrics["round"]]
    assert summary["joules_to_target"] == metrics["total_joules"][-1]
    assert summary["seconds_to_target"] == metrics["total_seconds"][-1]


def test_a_run_that_misses_its_target_says_so(tmp_path):
    summary = summary_of(train(tmp_path, "target_accuracy = 1.0"))
    assert (summary["stop_reason"], summary["rounds"], summary["target_reached"]) == ("rounds", 2, False)
    assert [summary[f"{what}_to_target"] for what in ("rounds", "joules", "seconds")] == [None, None, None]


@pytest.mark.parametrize(
    ("line", "reason", "column"),
    [
        ("energy_budget_joules = 0.025", "energy budget", "total_joules"),
        ("time_budget_seconds = 0.025", "time budget", "total_seconds"),
    ],
)
def test_a_run_stops_with_the_round_that_uses_up_its_budget(line, reason, column, tmp_path):
    out = train(tmp_path, line, replace=[(ROUNDS, "rounds = 40")])
    totals = metrics_of(out)[column]
    assert summary_of(out)["stop_reason"] == reason
    assert 2 <= totals.size < 40
    assert totals[-2] < 0.025 <= totals[-1]


@pytest.mark.parametrize(
    ("line", "factor"),
    [("", 1), ("target_accuracy = 1.0", 4), ("energy_budget_joules = 1e9", 4), ("time_budget_seconds = 1e9", 4)],
)
def test_without_rounds_a_run_takes_those_of_its_plan_or_four_times_as_many_towards_an_aim(line, factor, tmp_path):
    out = train(tmp_path, line, replace=[(ROUNDS, ""), ("tau = 20.0", "tau = 5.0")])
    (plan,) = json.loads((out / "plan.json").read_text(encoding="utf-8"))["plans"]
    assert plan["rounds"] > 1.0
    assert summary_of(out)["rounds"] == math.ceil(factor * plan["rounds"])


def test_a_plan_that_is_given_is_trained(tmp_path):
    scenario = write(tmp_path, SCENARIO)
    planned = run("plan", scenario, "--scheme", "fedavg", "--json").stdout
    plan = write(tmp_path, planned, "mine.json")
    done = run("train", scenario, "--plan", plan, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8")) == json.loads(planned)
    summary = summary_of(tmp_path / "out")
    assert (summary["scheme"], summary["sparsity"]) == ("fedavg", [1.0, 1.0, 1.0, 1.0])
    assert set(ledger_of(tmp_path / "out")["entries"]) == {650}


def test_the_default_folder_is_named_after_the_scheme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("train", write(tmp_path, SCENARIO), "--scheme", "dense").exit_code == 0
    assert summary_of(tmp_path / "fewjoules-train-dense")["scheme"] == "dense"


def test_plots_are_saved_when_asked_for(tmp_path):
    out = train(tmp_path, options=["--plots", "png"])
    files = sorted((out / "plots").iterdir())
    assert len(files) >= 3
    assert all(file.read_bytes().startswith(b"\x89PNG\r\n") for file in files)


def test_tensorboard_gets_every_round(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = train(tmp_path, options=["--tensorboard"])
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    logged = {(one.step, one.value) for one in events.Scalars("energy/total_joules")}
    metrics = metrics_of(out)
    assert logged == {(int(row["round"]), float(np.float32(row["total_joules"]))) for row in metrics}


def test_wandb_gets_a_run_of_the_folders_name(tmp_path, monkeypatch):
    import wandb

    for name, value in {"MODE": "offline", "SILENT": "true", "DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.teardown()  # it reads the environment once in a process
    out = train(tmp_path, options=["--wandb", "energy"])
    assert_wandb_writes(tmp_path, "energy/total_joules", out.name)


def test_compare_ranks_the_schemes_and_ends_each_row_with_the_ratio_to_the_best(compared):
    folder, printed = compared
    runs = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["runs"]
    rows = [line.split() for line in printed.splitlines()[1 : 1 + len(SCHEMES)]]
    assert printed.splitlines()[0].endswith("x least")
    assert [row[0] for row in rows] == [one["scheme"] for one in runs]
    assert {one["scheme"] for one in runs} == set(SCHEMES)
    reached = [one for one in runs if one["target_reached"]]
    joules = [one["joules_to_target"] for one in reached]
    assert joules == sorted(joules)
    assert len(joules) >= 2
    assert [row[-1] for row in rows[: len(reached)]] == [f"{value / joules[0]:.2f}" for value in joules]


def test_a_scheme_that_misses_the_target_is_marked_and_not_hidden(compared):
    folder, printed = compared
    runs = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["runs"]
    missed = [one["scheme"] for one in runs if not one["target_reached"]]
    assert missed
    assert [one["scheme"] for one in runs][-len(missed) :] == missed
    for scheme in missed:
        (row,) = (line for line in printed.partition("\n\n")[0].splitlines() if line.startswith(scheme))
        assert "missed: " in row
        assert "> 6" in row


def test_a_second_table_tells_where_the_joules_of_each_run_come_from(compared):
    folder, printed = compared
    title, *rows = printed.split("\n\n")[1].splitlines()
    assert title.split() == ["scheme", "J", "booked", "fitted", "J", "assumed", "J"]
    assert {row.split()[0] for row in rows} == set(SCHEMES)
    for row in rows:
        scheme, joules, fitted, *_ = row.split()
        summary = summary_of(folder / scheme)
        assert float(joules) == pytest.approx(summary["joules"], rel=1e-3)
        assert float(fitted) == pytest.approx(summary["joules_by_kind"]["uplink"]["fitted"], rel=1e-2)


def test_a_comparison_holds_a_results_folder_for_each_scheme_and_a_page(compared):
    folder, _ = compared
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(SCHEMES)
    for scheme in SCHEMES:
        assert summary_of(folder / scheme)["scheme"] == scheme
        assert {path.name for path in (folder / scheme).iterdir()} >= TABLES | {"plan.json", "scenario.toml"}
    reader = Reader((folder / "page.html").read_text(encoding="utf-8"))
    assert [a for _, a in reader.elements if {"src", "href", "data", "action"} & set(a)] == []


def test_all_schemes_start_from_the_same_weights(tmp_path):
    """A step of vanishing size leaves every scheme where it began."""
    text = SCENARIO.replace("learning_rate = 0.1", "learning_rate = 1e-30")
    assert run("compare", write(tmp_path, text), "--out", tmp_path / "out").exit_code == 0
    assert len({(tmp_path / "out" / scheme / "model.safetensors").read_bytes() for scheme in SCHEMES}) == 1


def test_a_scheme_trained_alone_gives_the_bytes_of_the_comparison(compared, tmp_path):
    folder, _ = compared
    scenario = write(tmp_path, (folder / "scenario.toml").read_bytes())
    done = run("train", scenario, "--scheme", "unified", "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    for name in (*TABLES, "plan.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / "unified" / name).read_bytes()


def test_resuming_a_comparison_trains_only_what_is_not_finished(compared, tmp_path):
    """run.json holds wall_seconds, so its bytes would change if a scheme were trained again."""
    folder, printed = compared
    copy = tmp_path / "copy"
    for name, data in contents(folder).items():
        if not name.startswith("dense/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(data)
    done = run("compare", "--resume", copy)
    assert done.exit_code == 0, done.stderr
    before, after = contents(folder), contents(copy)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"dense/run.json", "comparison.json", "page.html"}
    assert done.stdout.splitlines()[:7] == printed.splitlines()[:7]


def test_a_comparison_does_not_mix_plans_of_two_versions(compared, tmp_path):
    folder, _ = compared
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    plan = Plan.load(copy / "unified" / "plan.json")
    dataclasses.replace(plan, sparsity=1.01 * plan.sparsity).save(copy / "unified" / "plan.json")
    before = contents(copy)
    done = run("compare", "--resume", copy)
    assert_refused(done, "plan.json", "must be the plan of this version", "new folder")
    assert contents(copy) == before


def test_json_of_a_comparison_is_all_that_is_printed(tmp_path):
    options = ["--schemes", "dense,fedavg", "--json", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, SCENARIO), *options)
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert [one["scheme"] for one in printed["runs"]] == ["dense", "fedavg"]
    summary = summary_of(tmp_path / "out" / "dense")
    assert printed["runs"][0] == {key: summary[key] for key in summary if not key.startswith("checksum")}


def test_json_of_a_comparison_does_not_drop_the_plots(tmp_path):
    options = ["--schemes", "dense,fedavg", "--json", "--plots", "png", "--out", tmp_path / "out"]
    assert run("compare", write(tmp_path, SCENARIO), *options).exit_code == 0
    assert any((tmp_path / "out" / "plots").iterdir())


def test_a_scheme_that_diverges_is_left_out_of_the_comparison_and_the_exit_code_is_1(tmp_path):
    """The rate explodes in round 4; fedavg has met the target before, dense has not."""
    lines = ['schedule = "step"', "decay_rounds = [3]", "decay_factor = 3e39", "target_accuracy = 0.6"]
    text = trained_with(*lines, "evaluate_every = 1").replace(ROUNDS, "rounds = 6")
    options = ["--schemes", "dense,fedavg", "--no-guard", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, text), *options)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert re.match(r"warning: scheme dense is left out: .* client \d+ .* round \d", line)
    runs = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))["runs"]
    assert [one["scheme"] for one in runs] == ["fedavg"]


def test_a_run_stops_at_a_target_loss_and_says_so(tmp_path):
    folder = train(tmp_path, "target_loss = 2.25", "evaluate_every = 1", replace=[(ROUNDS, "rounds = 200")])
    summary, metrics = summary_of(folder), metrics_of(folder)
    assert (summary["stop_reason"], summary["target_loss"], summary["target_accuracy"]) == ("target loss", 2.25, None)
    assert summary["target_reached"] is True
    assert summary["rounds_to_target"] == metrics["round"][-1] == int(np.argmax(metrics["test_loss"] <= 2.25)) + 1
    shown = run("train", "--resume", folder).stdout.replace("\u00a0", " ")
    assert "flexible reached loss 2.25 with " in shown
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "reached loss 2.25" in page
    assert "Dotted: the target" not in page


def test_two_targets_in_a_scenario_are_refused(tmp_path):
    text = trained_with("target_accuracy = 0.9", "target_perplexity = 3.0")
    refusal = run("train", write(tmp_path, text), "--out", tmp_path / "out")
    assert_refused(refusal, "training.target_accuracy and target_perplexity are several targets", "at most one")


EXPLODES = ('schedule = "step"', "decay_rounds = [2]", "decay_factor = 3e39")  # in every round after the second
RETURNED = "The guard returned twice, after rounds 3 and 4; the step size is now 0.025."


def test_a_run_that_blows_up_tells_where_the_guard_returned(tmp_path):
    scenario = write(tmp_path, trained_with(*EXPLODES).replace(ROUNDS, "rounds = 4"))
    done = run("train", scenario, "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert RETURNED in done.stdout.splitlines()
    warnings = done.stderr.splitlines()
    assert [re.search(r"return (\d) of at most 3", line).group(1) for line in warnings] == ["1", "2"]
    assert all(line.startswith("warning: training diverged: ") for line in warnings)
    summary = summary_of(tmp_path / "out")
    assert (summary["returns"], summary["learning_rate"]) == ([3, 4], 0.025)
    assert RETURNED in (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert metrics_of(tmp_path / "out")["round"].tolist() == [1, 2, 3, 4]


def test_a_comparison_names_the_scheme_whose_guard_returned(tmp_path):
    scenario = write(tmp_path, trained_with(*EXPLODES).replace(ROUNDS, "rounds = 3"))
    done = run("compare", scenario, "--schemes", "dense,fedavg", "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0
    for scheme in ("dense", "fedavg"):
        says = f"The guard of {scheme} returned once, after round 3; the step size is now 0.05."
        assert says in done.stdout.splitlines()


def test_without_the_guard_a_run_ends_where_it_blows_up_and_so_does_its_resumption(tmp_path):
    scenario, folder = write(tmp_path, trained_with(*EXPLODES).replace(ROUNDS, "rounds = 4")), tmp_path / "out"
    done = run("train", scenario, "--device", "cpu", "--no-guard", "--checkpoint-seconds", "0", "--out", folder)
    again = run("train", "--resume", folder)
    for end in (done, again):
        assert end.exit_code == 1
        assert re.fullmatch(r"error: training diverged: .* of round 3 is (nan|inf).*\n", end.stderr)


def test_the_guard_cannot_be_taken_from_a_run_that_began_with_it(tmp_path):
    folder = train(tmp_path)
    (folder / "run.json").unlink()
    before = contents(folder)
    refusal = run("train", "--resume", folder, "--no-guard")
    assert_refused(refusal, "--no-guard must be given from the first round on")
    assert contents(folder) == before


def test_a_comparison_in_which_every_scheme_diverges_fails(tmp_path):
    text = SCENARIO.replace("learning_rate = 0.1", "learning_rate = 1e38")
    done = run("compare", write(tmp_path, text), "--schemes", "unified,fedavg", "--no-guard", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("error: no scheme could be trained")
    assert not (tmp_path / "out" / "comparison.json").exists()


def test_the_embedded_scenario_can_be_trained_without_a_download():
    training = Scenario.embedded().training
    assert training is not None
    assert training.data == "digits"
    assert training.learning_rate is not None


# Options that are refused, before anything is written.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scheme", "best"], ("--scheme", "flexible", "best")),
        (["--plots", "gif"], ("--plots", "png", "gif")),
        (["--device", "tpu"], ("device", "cuda", "tpu")),
        (["--plan", "nowhere.json"], ("nowhere.json", "cannot be read")),
        (["--resume", "other"], ("--resume", "--out")),
    ],
)
def test_train_refuses_options_that_it_cannot_follow(options, says, tmp_path):
    assert_refused(run("train", write(tmp_path, SCENARIO), "--out", tmp_path / "out", *options), *says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--schemes", "dense,best"], ("--schemes", "flexible", "best")),
        (["--schemes", ","], ("--schemes", "flexible")),
        (["--plots", "gif"], ("--plots", "png", "gif")),
        (["--resume", "other"], ("--resume", "--out")),
    ],
)
def test_compare_refuses_options_that_it_cannot_follow(options, says, tmp_path):
    assert_refused(run("compare", write(tmp_path, SCENARIO), "--out", tmp_path / "out", *options), *says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_time_between_checkpoints_that_cannot_be_is_refused(seconds, tmp_path):
    options = ["--checkpoint-seconds", seconds, "--out", tmp_path / "out"]
    refusal = run("train", write(tmp_path, SCENARIO), *options)
    assert_refused(refusal, "--checkpoint-seconds", "at least 0", seconds)


def test_a_refused_time_between_checkpoints_leaves_no_folder(tmp_path):
    run("train", write(tmp_path, SCENARIO), "--checkpoint-seconds", "-1", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_gpu_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refusal = run("train", write(tmp_path, SCENARIO), "--device", "cuda", "--out", tmp_path / "out")
    assert_refused(refusal, "cuda", "GPU")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_folder_that_holds_anything_is_refused_and_not_touched(command, tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "mine", "notes.txt")
    refusal = run(command, write(tmp_path, SCENARIO), "--out", tmp_path / "out")
    assert_refused(refusal, str(tmp_path / "out"), "new or empty", "--resume")
    assert contents(tmp_path / "out") == {"notes.txt": b"mine"}


def test_an_empty_folder_is_welcome(tmp_path):
    (tmp_path / "out").mkdir()
    assert run("train", write(tmp_path, SCENARIO), "--out", tmp_path / "out").exit_code == 0


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    file = write(tmp_path, "mine", "out")
    assert_refused(run("train", write(tmp_path, SCENARIO), "--out", file), "new or empty")
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("place", ["file/out", "x" * 300])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, place):
    (tmp_path / "file").touch()
    refusal = run("train", write(tmp_path, SCENARIO), "--device", "cpu", "--out", tmp_path / place)
    assert_refused(refusal, "the results folder must be one that can be made")
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.toml", "file"}


PLAN = {"scheme": "flexible", "solver": "pareto", "local_steps": 2, "rounds": 3.0, "energy_joules": 2.0}
PLAN |= {"radio_joules": 1.0, "compute_joules": 1.0, "seconds": None, "lower_bound_joules": None, "relative_gap": None}


@pytest.mark.parametrize("devices", [3, 5])
def test_a_plan_for_another_number_of_devices_is_refused(devices, tmp_path):
    text = json.dumps({"version": 1, "plans": [PLAN | {"sparsity": [4.0] * devices}]})
    options = ["--plan", write(tmp_path, text, "plan.json"), "--out", tmp_path / "out"]
    assert_refused(run("train", write(tmp_path, SCENARIO), *options), "plan", "4 devices", f"got {devices}")


def test_a_plan_for_a_model_of_another_size_is_refused(tmp_path):
    other = write(tmp_path, SCENARIO.replace('architecture = "softmax"', 'architecture = "cnn"'), "other.toml")
    plan = write(tmp_path, run("plan", other, "--json").stdout, "plan.json")
    options = ["--plan", plan, "--out", tmp_path / "out"]
    refusal = run("train", write(tmp_path, SCENARIO), *options)
    assert_refused(refusal, "plan", "a model of 13,706 parameters", "got a model of 650")
    assert not (tmp_path / "out").exists()


def test_a_plan_of_more_rounds_than_can_be_trained_is_refused(tmp_path):
    text = json.dumps({"version": 1, "plans": [PLAN | {"sparsity": [4.0] * 4, "rounds": 1e308}]})
    scenario = trained_with("target_accuracy = 0.9").replace(ROUNDS, "")
    options = ["--plan", write(tmp_path, text, "plan.json"), "--out", tmp_path / "out"]
    assert_refused(run("train", write(tmp_path, scenario), *options), "rounds", "from 1 to 10000000", "...")


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_scenario_without_training_is_told_three_lines_that_are_enough(command, tmp_path):
    write_mnist(tmp_path / "data", train=40, test=20)
    without = SCENARIO.replace(TRAINING, "").replace('"softmax"', '"mlp"')
    done = run(command, write(tmp_path, without), "--out", tmp_path / "out")
    assert done.exit_code == 2
    sentence, *lines = done.stderr.splitlines()
    assert sentence == f"error: {tmp_path / 'scenario.toml'}: [training] is missing; these lines are enough:"
    assert lines == ["[training]", 'data = "mnist"', "learning_rate = 0.1"]
    assert not (tmp_path / "out").exists()
    pasted = without + "\n" + "\n".join([*lines, "rounds = 1"]) + "\n"
    done = run(command, write(tmp_path, pasted), "--data-dir", tmp_path / "data", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(("model", "data"), [('architecture = "resnet20"', "cifar10"), ("parameters = 650", "digits")])
def test_the_data_to_paste_are_those_of_the_architecture(model, data, tmp_path):
    without = SCENARIO.replace(TRAINING, "").replace('architecture = "softmax"', model)
    assert f'data = "{data}"' in run("train", write(tmp_path, without)).stderr.splitlines()


def test_a_refused_plan_leaves_no_folder(tmp_path):
    text = json.dumps({"version": 1, "plans": [PLAN | {"sparsity": [4.0] * 3}]})
    run("train", write(tmp_path, SCENARIO), "--plan", write(tmp_path, text, "plan.json"), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Data files.

MNIST = SCENARIO.replace('"digits"', '"mnist"')
IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path / "data", train=40, test=20)
    return tmp_path / "data"


def refused_data(tmp_path, *says):
    refusal = run("train", write(tmp_path, MNIST), "--data-dir", tmp_path / "data", "--out", tmp_path / "out")
    assert_refused(refusal, *says)
    assert not (tmp_path / "out").exists()


def test_data_files_that_are_good_are_trained_on(mnist, tmp_path):
    done = run("train", write(tmp_path, MNIST), "--data-dir", mnist, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert summary_of(tmp_path / "out")["data"] == "mnist"


def test_a_truncated_data_file_is_refused(mnist, tmp_path):
    whole = (mnist / IMAGES).read_bytes()
    (mnist / IMAGES).write_bytes(whole[: len(whole) // 2])
    refused_data(tmp_path, IMAGES, "gzip")


def test_a_data_file_of_another_kind_is_refused(mnist, tmp_path):
    (mnist / IMAGES).write_bytes(b"not an image")
    refused_data(tmp_path, IMAGES, "IDX")


def test_a_label_out_of_range_is_refused(mnist, tmp_path):
    labels = mnist / "train-labels-idx1-ubyte"
    (mnist / f"{labels.name}.gz").unlink()
    labels.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 40]) + bytes([10] * 40))
    refused_data(tmp_path, "label", "9", "10")


def test_images_without_as_many_labels_are_refused(mnist, tmp_path):
    labels = mnist / "train-labels-idx1-ubyte"
    (mnist / f"{labels.name}.gz").unlink()
    labels.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 39]) + bytes(39))
    refused_data(tmp_path, "39", "40")


def test_a_data_file_that_is_missing_is_named_with_where_it_was_sought(mnist, tmp_path):
    (mnist / IMAGES).unlink()
    refused_data(tmp_path, IMAGES, str(mnist), "--data-dir")


def test_a_data_folder_that_is_not_there_is_named(tmp_path):
    refused_data(tmp_path, IMAGES, str(tmp_path / "data"))


def test_a_partition_by_writers_needs_data_with_writers(mnist, tmp_path):
    text = MNIST.replace("[training]", '[training]\npartition = "writers"')
    refusal = run("train", write(tmp_path, text), "--data-dir", mnist, "--out", tmp_path / "out")
    assert_refused(refusal, "writers", "qmnist", "mnist")


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("train", "--scheme", "unified"),
        ("train", "--plan", "p.json"),
        ("compare", "--schemes", "dense"),
        ("compare", "--seeds", "2"),
        ("compare", "--rate", "dense=0.1"),
    ],
)
def test_what_a_resumed_run_would_ignore_is_refused(tmp_path, command, option, value):
    result = CliRunner().invoke(app, [command, "--resume", str(tmp_path), option, value])
    assert result.exit_code == 2
    assert f"cannot be combined with {option}" in result.stderr


def test_a_plan_and_a_scheme_are_one_too_many(tmp_path):
    result = CliRunner().invoke(app, ["train", "--plan", "p.json", "--scheme", "dense", "--out", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "cannot be combined with --scheme" in result.stderr


@pytest.mark.parametrize("name", ["plan.json", "scenario.toml", "settings.json", "mine.txt"])
def test_a_file_of_the_user_is_never_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = CliRunner().invoke(app, ["train", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "must be new or empty" in result.stderr
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


# --- GPU memory


@pytest.mark.parametrize(
    "failure",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of"),
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in"),  # not even torch fits
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=["allocator", "runtime", "cublas"],
)
def test_a_gpu_that_is_full_is_one_sentence(tmp_path, monkeypatch, failure):
    from fewjoules.engine.simulator.simulator import Simulator

    def full(*_given, **_more):
        raise failure

    monkeypatch.setattr(Simulator, "start_round", full)
    done = run("train", write(tmp_path, trained_with()), "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the GPU does not have enough free memory")
    assert done.stderr.count("\n") == 1


def test_another_failure_of_torch_is_not_taken_for_it(tmp_path, monkeypatch):
    from fewjoules.engine.simulator.simulator import Simulator

    def broken(*_given, **_more):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Simulator, "start_round", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run("train", write(tmp_path, trained_with()), "--device", "cpu", "--out", tmp_path / "out")


# --- Comparisons over seeds


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """Two schemes with three seeds."""
    folder = tmp_path_factory.mktemp("seeded")
    text = trained_with("target_accuracy = 0.5", "seed = 4", "evaluate_every = 1").replace(ROUNDS, "rounds = 30")
    options = ["--schemes", "dense,fedavg", "--seeds", "3", "--device", "cpu", "--out", folder / "out"]
    done = run("compare", write(folder, text), *options)
    assert done.exit_code == 0, done.stderr
    return folder / "out", done.stdout


def test_every_scheme_is_trained_with_every_seed(seeded):
    folder, printed = seeded
    document = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert document["seeds"] == [4, 5, 6]
    for scheme in ("dense", "fedavg"):
        assert sorted(path.name for path in (folder / scheme).iterdir()) == ["seed-4", "seed-5", "seed-6"]
        for seed in (4, 5, 6):
            assert summary_of(folder / scheme / f"seed-{seed}")["seed"] == seed
    assert len({(folder / "dense" / f"seed-{seed}" / "model.safetensors").read_bytes() for seed in (4, 5, 6)}) == 3
    assert "3 seeds" in printed.splitlines()[-2]
    joules = [summary_of(folder / "dense" / f"seed-{seed}")["joules_to_target"] for seed in (4, 5, 6)]
    (dense,) = (one for one in document["schemes"] if one["scheme"] == "dense")
    assert dense["joules"] == {"mean": math.fsum(joules) / 3, "least": min(joules), "most": max(joules)}


def test_a_later_seed_gives_the_run_of_a_scenario_with_that_seed(seeded, tmp_path):
    folder, _ = seeded
    text = (folder / "scenario.toml").read_text(encoding="utf-8").replace("seed = 4", "seed = 6")
    done = run("train", write(tmp_path, text), "--scheme", "fedavg", "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    for name in (*TABLES, "plan.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / "fedavg" / "seed-6" / name).read_bytes()


def test_resuming_trains_only_the_seeds_that_are_not_finished(seeded, tmp_path):
    folder, printed = seeded
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "fedavg" / "seed-5")
    done = run("compare", "--resume", copy)
    assert done.exit_code == 0, done.stderr
    before, after = contents(folder), contents(copy)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"fedavg/seed-5/run.json", "comparison.json", "page.html"}
    assert done.stdout.splitlines()[:3] == printed.splitlines()[:3]


def test_a_run_in_the_place_of_another_seed_is_refused(seeded, tmp_path):
    folder, _ = seeded
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "fedavg" / "seed-5")
    shutil.copytree(copy / "fedavg" / "seed-6", copy / "fedavg" / "seed-5")
    before = contents(copy)
    assert_refused(run("compare", "--resume", copy), "seed-5", "seed must be 5", "got 6")
    assert contents(copy) == before


def test_a_damaged_run_of_any_seed_is_named_before_anything_is_trained(seeded, tmp_path):
    folder, _ = seeded
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damaged = copy / "dense" / "seed-6" / "metrics.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    shutil.rmtree(copy / "fedavg" / "seed-4")
    assert_refused(run("compare", "--resume", copy), "seed-6", "metrics.parquet")
    assert not (copy / "fedavg" / "seed-4").exists()


def test_a_seed_that_diverges_is_told_and_the_others_are_kept(tmp_path):
    """The rate explodes in round 4; with some seeds fedavg meets the target before."""
    lines = ['schedule = "step"', "decay_rounds = [3]", "decay_factor = 3e39", "target_accuracy = 0.6"]
    text = trained_with(*lines, "evaluate_every = 1").replace(ROUNDS, "rounds = 6")
    options = ["--schemes", "dense,fedavg", "--seeds", "2", "--no-guard", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, text), *options)
    assert done.exit_code == 1
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert re.match(r"warning: scheme dense is left out with seed 0: ", warned[0])
    document = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert document["diverged"]["dense"] == 2
    assert [one["scheme"] for one in document["schemes"]] == ["fedavg"]


def test_schemes_are_compared_to_a_loss_over_seeds(tmp_path):
    text = trained_with("target_loss = 2.25", "evaluate_every = 1").replace(ROUNDS, "rounds = 200")
    done = run("compare", write(tmp_path, text), "--schemes", "dense,fedavg", "--seeds", "2", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "reached loss 2.25 with every one of 2 seeds" in done.stdout.replace("\u00a0", " ")
    document = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert {one["target_loss"] for one in document["runs"]} == {2.25}
    assert all(one["reached"] == 2 and one["test_loss"]["most"] <= 2.25 for one in document["schemes"])


def test_progress_says_which_scheme_and_which_seed_of_how_many(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    options = ["--schemes", "dense,fedavg", "--seeds", "2", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, SCENARIO), *options)
    assert [line.partition(": round ")[0] for line in done.stderr.splitlines() if ": round 1/" in line] == [
        "dense 1 of 2, seed 1 of 2",
        "fedavg 2 of 2, seed 1 of 2",
        "dense 1 of 2, seed 2 of 2",
        "fedavg 2 of 2, seed 2 of 2",
    ]


@pytest.mark.parametrize("count", ["0", "101", "-1"])
def test_a_number_of_seeds_that_cannot_be_is_refused(count, tmp_path):
    refusal = run("compare", write(tmp_path, SCENARIO), "--seeds", count, "--out", tmp_path / "out")
    assert_refused(refusal, "--seeds", "1 to 100", count)
    assert not (tmp_path / "out").exists()


def test_seeds_beyond_the_largest_one_are_refused(tmp_path):
    text = trained_with(f"seed = {2**63 - 2}")
    refusal = run("compare", write(tmp_path, text), "--seeds", "3", "--out", tmp_path / "out")
    assert_refused(refusal, "training.seed", str(2**63 - 3), str(2**63 - 2))
    assert not (tmp_path / "out").exists()


# --- Presets beside schemes


def test_a_preset_is_trained_and_booked_beside_schemes(tmp_path):
    options = ["--schemes", "dgc,dense", "--rate", "dgc=0.05", "--json", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, trained_with("target_accuracy = 0.1")), *options)
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert {one["scheme"] for one in document["runs"]} == {"dgc", "dense"}
    assert document["rates"] == {"dgc": 0.05}
    folder = tmp_path / "out" / "dgc"
    summary = summary_of(folder)
    assert (summary["scheme"], summary["local_steps"], summary["sparsity"]) == ("dgc", 1, [1000.0] * 4)
    booked = [math.fsum(ledger_of(folder)[f"{kind}_joules"]) for kind in ("uplink", "downlink", "compute")]
    assert summary["joules"] == pytest.approx(math.fsum(booked), rel=1e-12)
    assert set(metrics_of(folder)["learning_rate"]) == {0.05}
    assert not (folder / "plan.json").exists()
    page = Reader((tmp_path / "out" / "page.html").read_text(encoding="utf-8")).text
    assert "dgc" in page


def test_a_comparison_with_a_preset_resumes_with_its_step_size(tmp_path):
    options = ["--schemes", "qsgd,stc", "--rate", "stc=0.05", "--seeds", "2", "--out", tmp_path / "out"]
    assert run("compare", write(tmp_path, SCENARIO), *options).exit_code == 0
    before = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "stc" / "seed-1")
    done = run("compare", "--resume", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    after = contents(tmp_path / "out")
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"stc/seed-1/run.json", "comparison.json", "page.html"}


def test_a_finished_preset_of_other_constants_is_not_mixed_in(tmp_path, monkeypatch):
    from fewjoules.engine.algorithm import presets

    assert run("compare", write(tmp_path, SCENARIO), "--schemes", "dgc,dense", "--out", tmp_path / "out").exit_code == 0
    other = dataclasses.replace(presets.PRESETS["dgc"], options=presets.preset_options("dgc") | {"sparsity": 500.0})
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "dgc": other})
    assert_refused(run("compare", "--resume", tmp_path / "out"), "dgc", "sparsity 500", "new folder")


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        ("dgc", ("--rate", "NAME=VALUE", "dgc")),
        ("stc=0.1", ("--rate", "dense", "stc")),
        ("dense=fast", ("--rate dense", "number", "fast")),
        ("dense=0", ("--rate dense", "0")),
        ("dense=nan", ("--rate dense", "nan")),
        ("dense=-1", ("--rate dense", "-1")),
    ],
)
def test_a_step_size_that_cannot_be_is_refused(rate, says, tmp_path):
    options = ["--schemes", "dense,dgc", "--rate", rate, "--out", tmp_path / "out"]
    assert_refused(run("compare", write(tmp_path, SCENARIO), *options), *says)
    assert not (tmp_path / "out").exists()


def test_two_step_sizes_of_one_scheme_are_refused(tmp_path):
    options = ["--schemes", "dense", "--rate", "dense=1", "--rate", "dense=2", "--out", tmp_path / "out"]
    assert_refused(run("compare", write(tmp_path, SCENARIO), *options), "--rate", "once", "dense")
