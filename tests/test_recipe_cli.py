"""``fewjoules plan``, ``train`` and ``compare`` of a scenario with a [recipe]."""

import dataclasses
import json
from pathlib import Path

import pytest

from fewjoules.planner.plan import Plan, plans_from_json
from fewjoules.planner.schemes import SCHEMES
from fewjoules.runs.task import planned_options
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from tests.scenario.test_training_scenario import RATE, SCENARIO
from tests.test_bad_input import assert_refused, run, write

RECIPE = """
[recipe]
name = "server momentum"
optimiser = {learning_rate = 0.2, outer = "nesterov", outer_momentum = 0.8, batch_size = 8}
message = {compressor = "ternary"}
rounds = {kind = "power-law", tau = 12.0, c = 0.0043, a = 0.5, q = 0.6}
[recipe.limits]
sparsity = {min = 2.0, max = 30.0}
local_steps = {min = 1, max = 8}
"""
LAW = SCENARIO[SCENARIO.index("[rounds]") : SCENARIO.index("[limits]")]
WITHOUT_LAW = SCENARIO.replace(LAW, "")
AS_TRAINING = """learning_rate = 0.2
outer = "nesterov"
outer_momentum = 0.8
batch_size = 8
compressor = "ternary"
"""


def plans_of(folder, text, *options):
    done = run("plan", write(folder, text), "--json", *options)
    assert done.exit_code == 0, done.stderr
    return plans_from_json(done.stdout, source="plan --json")


def test_a_scenario_with_a_recipe_is_planned_by_fewest(tmp_path):
    (plan,) = plans_of(tmp_path, SCENARIO + RECIPE)
    assert plan.scheme == "fewest"
    assert plan.recipe == Scenario.from_toml(tmp_path / "scenario.toml").recipe
    assert plan.relative_gap <= 1e-9
    (flexible,) = plans_of(tmp_path, SCENARIO + RECIPE, "--scheme", "flexible")
    assert flexible.recipe is None
    assert plan.energy_joules < flexible.energy_joules


@pytest.mark.parametrize(("text", "schemes"), [(SCENARIO, ["fewest", *SCHEMES]), (WITHOUT_LAW, ["fewest"])])
def test_all_are_the_schemes_that_the_scenario_has_a_law_for(tmp_path, text, schemes):
    assert [plan.scheme for plan in plans_of(tmp_path, text + RECIPE, "--scheme", "all")] == schemes


def test_the_report_names_the_recipe_and_its_limits(tmp_path):
    file = write(tmp_path, SCENARIO + RECIPE)
    done = run("plan", file, "--scheme", "all", "--plot", tmp_path / "ridge.svg")
    assert done.exit_code == 0, done.stderr
    assert (
        "recipe: server momentum (Nesterov 0.8 on the server, step size 0.2, batches of 8, ternary values)"
        in " ".join(done.stdout.split())
    )
    assert "limits: sparsity 2 to 50, H 1 to 5\nlimits of fewest: sparsity 2 to 30, H 1 to 8\n" in done.stdout
    assert "fewest, best sparsity at each H" in (tmp_path / "ridge.svg").read_text(encoding="utf-8")
    alone = run("plan", file)
    assert "\nlimits: sparsity 2 to 30, H 1 to 8\n" in alone.stdout
    assert "fewest: proved that no plan within the limits costs less" in alone.stdout


def test_a_limit_of_the_recipe_that_is_reached_is_said(tmp_path):
    text = SCENARIO + RECIPE.replace("max = 8", "max = 2").replace("max = 30.0", "max = 2.5")
    assert "fewest: H = 2 is at its upper limit." in run("plan", write(tmp_path, text)).stdout


@pytest.mark.parametrize(
    "command", [["plan"], ["train", "--out", "out"], ["compare", "--out", "out"]], ids=lambda c: c[0]
)
@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (WITHOUT_LAW, [], ("[rounds] and [recipe] are missing", "fewjoules tune")),
        (WITHOUT_LAW + RECIPE, ["flexible"], ("[rounds] is missing", "fewest")),
        (SCENARIO, ["fewest"], ("scheme fewest needs [recipe]", "fewjoules tune")),
    ],
    ids=["neither", "no law", "no recipe"],
)
def test_a_scheme_without_its_law_is_refused(tmp_path, monkeypatch, command, text, options, says):
    monkeypatch.chdir(tmp_path)
    scheme = [f"--scheme{'s' * (command[0] == 'compare')}", *options] if options else []
    assert_refused(run(*command, write(tmp_path, text), *scheme), "scenario.toml", *says)
    assert not Path("out").exists()


def test_fewest_is_not_solved_by_benders(tmp_path):
    file = write(tmp_path, SCENARIO + RECIPE)
    assert_refused(run("plan", file, "--scheme", "fewest", "--solver", "benders"), "fewest", "pareto", "benders")
    (plan,) = plans_of(tmp_path, SCENARIO + RECIPE, "--solver", "benders")
    assert plan.scheme == "flexible"


def trained(folder, text, *options):
    folder.mkdir()
    done = run("train", write(folder, text), "--device", "cpu", "--out", folder / "out", *options)
    assert done.exit_code == 0, done.stderr
    return folder / "out"


def test_fewest_trains_with_the_options_of_its_recipe(tmp_path):
    own = trained(tmp_path / "own", SCENARIO + RECIPE)
    plan = Plan.load(own / "plan.json")
    assert plan.scheme == "fewest"
    stated = tmp_path / "plan.json"
    dataclasses.replace(plan, recipe=None).save(stated)
    twin = trained(tmp_path / "twin", SCENARIO.replace(RATE, AS_TRAINING), "--plan", stated)
    other = trained(tmp_path / "other", SCENARIO, "--plan", stated)
    assert (own / "model.safetensors").read_bytes() == (twin / "model.safetensors").read_bytes()
    assert (own / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_a_stored_plan_brings_its_recipe_along(tmp_path):
    own = trained(tmp_path / "own", SCENARIO + RECIPE)
    without_rate = SCENARIO.replace(RATE, "")
    again = trained(tmp_path / "again", without_rate, "--plan", own / "plan.json")
    assert (own / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()


def test_a_recipe_wins_over_the_training_and_leaves_the_rest():
    text = SCENARIO.replace(RATE, 'learning_rate = 0.1\ninner = "momentum"\nvalues = "int8"\nseed = 7') + RECIPE
    scenario = Scenario.from_text(text, "scenario", Path())
    plan = ScenarioPlans(scenario).plan("fewest")
    options = planned_options(scenario, plan, scenario.parameters)
    assert (options.learning_rate, options.outer, options.batch_size) == (0.2, "nesterov", 8)
    assert (options.compressor, options.values) == ("ternary", "float32")
    assert (options.inner, options.seed, options.rounds) == ("momentum", 7, 2)
    assert options.local_steps == plan.local_steps


def test_a_comparison_trains_fewest_first_and_is_resumed(tmp_path):
    file = write(tmp_path, SCENARIO + RECIPE)
    done = run("compare", file, "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    compared = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert {row["scheme"] for row in compared["runs"]} == {"fewest", *SCHEMES}
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["schemes"] == ["fewest", *SCHEMES]
    assert run("compare", "--resume", tmp_path / "out").exit_code == 0


def test_fewest_is_compared_with_presets_over_seeds_where_there_is_no_other_law(tmp_path):
    names = ["--schemes", "fewest,dgc", "--seeds", "2", "--rate", "dgc=0.05"]
    done = run("compare", write(tmp_path, WITHOUT_LAW + RECIPE), *names, "--device", "cpu", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    runs = json.loads((tmp_path / "out" / "comparison.json").read_text())["runs"]
    assert sorted((one["scheme"], one["seed"]) for one in runs) == [
        *(("dgc", seed) for seed in range(2)),
        *(("fewest", seed) for seed in range(2)),
    ]
    assert {(one["scheme"], one["learning_rate"]) for one in runs} == {("dgc", 0.05), ("fewest", 0.2)}
