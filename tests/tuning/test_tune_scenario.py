"""Tuning of a small scenario: the same recipe however pilots are trained, and what is refused."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fewjoules.cli.tuning_progress import progress_lines
from fewjoules.errors import InvalidInputError
from fewjoules.physics.message_fit import usual_bits
from fewjoules.reports.numbers import number
from fewjoules.reports.tuning import payment, sentences
from fewjoules.runs.laboratory import options_of_pilots, pilots_of
from fewjoules.runs.pilots import Pilots
from fewjoules.runs.task import prepare
from fewjoules.runs.tuning import aim_of, require_aim, tune_scenario, usual_processes, usual_seed
from fewjoules.runs.tuning_text import tuned_text
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import PLAIN
from fewjoules.tuning.books import Budget
from fewjoules.tuning.pilot import PilotSpec
from tests.scenario.test_training_scenario import SCENARIO, trained_with

CPU = torch.device("cpu")
TEXT = trained_with("target_accuracy = 0.8")
LAW = SCENARIO[SCENARIO.index("[rounds]") : SCENARIO.index("[limits]")]
ACCURACY = Aim("accuracy", 0.8)


def scenario_of(text):
    return Scenario.from_text(text, "small", Path())


@pytest.fixture(scope="module")
def found():
    return tune_scenario(scenario_of(TEXT), CPU)


def test_a_recipe_is_found_that_pilots_have_trained_to_the_target(found):
    assert found.aim == ACCURACY
    assert any(pilot.reached for pilot in found.tuned.pilots)
    recipe = found.recipe
    assert recipe.plan.scheme == "fewest"
    assert recipe.plan.recipe.options() == recipe.options()
    assert recipe.report is found.tuned
    assert recipe.name == found.tuned.optimiser
    assert recipe.plan.relative_gap <= 1e-9


def test_the_prediction_has_a_spread_around_the_rounds_of_the_plan(found):
    rounds, low, high = found.predicted_rounds()
    assert low < rounds < high
    assert rounds == pytest.approx(found.tuned.plan.rounds, rel=0.1)


def test_a_training_saves_against_plain_sgd_by_its_pace_in_the_race(found):
    assert found.untuned == "SGD at its best step size, by its pace in the race"
    dearer = dataclasses.replace(found, untuned_joules=1.25 * found.tuned.plan.energy_joules)
    assert dearer.saving_joules == pytest.approx(0.25 * found.tuned.plan.energy_joules)


def test_pilots_have_paid_after_as_many_trainings_as_their_price_has_savings(found):
    saving = dataclasses.replace(found, untuned_joules=1.25 * found.tuned.plan.energy_joules)
    assert (saving.trainings_to_pay - 1) * saving.saving_joules < found.tuned.joules
    assert saving.trainings_to_pay * saving.saving_joules >= found.tuned.joules
    (sentence,) = payment(saving)
    assert sentence.endswith(f"so they have paid after {saving.trainings_to_pay} trainings")


def test_a_scenario_without_a_rounds_law_is_tuned():
    found = tune_scenario(scenario_of(TEXT.replace(LAW, "")), CPU)
    assert found.untuned_joules > 0.0


def test_without_a_step_size_in_the_file_no_law_of_plain_sgd_is_written(found):
    bare = TEXT.replace(LAW, "")
    assert "\n[rounds]\n" in tuned_text(scenario_of(bare), found, "2026-01-01")
    without = scenario_of(bare.replace("learning_rate = 0.1\n", ""))
    assert "\n[rounds]\n" not in tuned_text(without, found, "2026-01-01")


def test_the_law_of_plain_sgd_takes_its_steps_at_the_plan_of_the_race(found):
    raced = found.tuned.pilots[0].spec
    law = found.plain_law
    steps = law.tau * (1.0 + law.c * raced.local_steps**law.a * np.mean(np.array(raced.sparsity) ** law.q))
    taken = found.untuned_joules / found.tuned.joules * found.tuned.client_steps / found.clients
    assert steps == pytest.approx(taken, rel=0.1)


def test_pilots_that_never_pay_say_so(found):
    dear = dataclasses.replace(found, untuned_joules=0.5 * found.tuned.plan.energy_joules)
    assert dear.trainings_to_pay is None
    for one in (dear, dataclasses.replace(found, untuned_joules=1.0009 * found.tuned.plan.energy_joules)):
        assert "a training saves nothing against SGD" in payment(one)[0]
        assert payment(one)[0].endswith("so they never pay")
    unknown = dataclasses.replace(found, untuned_joules=None)
    assert unknown.saving_joules is None


def test_the_number_of_processes_changes_nothing(found):
    again = tune_scenario(scenario_of(TEXT), CPU, processes=2)
    assert again.tuned.pilots == found.tuned.pilots
    assert again.recipe == found.recipe
    assert again.tuned.belief.law() == found.tuned.belief.law()


def test_a_scenario_without_a_target_is_refused():
    with pytest.raises(
        InvalidInputError,
        match=r"small: training\.target_accuracy \(or target_loss, target_perplexity, target_metric\) is missing",
    ):
        tune_scenario(scenario_of(SCENARIO), CPU)


@pytest.mark.parametrize(
    ("options", "aim"),
    [
        ({"target_accuracy": 0.9, "target_loss": None}, Aim("accuracy", 0.9)),
        ({"target_loss": 0.3}, Aim("loss", 0.3)),
        ({"target_perplexity": 6}, Aim("perplexity", 6.0)),
        ({"seed": 3}, None),
    ],
)
def test_the_aim_is_the_target_of_the_training(options, aim):
    assert aim_of(options) == aim


def test_the_aim_of_a_scenario_is_that_of_its_training_table():
    assert require_aim(scenario_of(TEXT)) == ACCURACY


def test_pilots_have_a_seed_of_their_own():
    assert usual_seed(scenario_of(trained_with("target_accuracy = 0.8", "seed = 7"))) == 1007


def test_one_pilot_at_a_time_on_a_processor():
    assert usual_processes(CPU) == 1
    assert usual_processes(torch.device("cuda")) == 4


@pytest.mark.parametrize("lines", [["momentum = 0.9"], ['inner = "adamw"', "momentum = 0.8"], ['outer = "nesterov"']])
def test_the_optimiser_of_the_training_table_does_not_mix_with_that_of_a_pilot(lines):
    spec = PilotSpec(options=PLAIN.options | {"learning_rate": 0.1}, local_steps=2, sparsity=(4.0,) * 4, steps=4)
    results = []
    for text in (TEXT, trained_with("target_accuracy = 0.8", *lines)):
        pilots = pilots_of(prepare(scenario_of(text), CPU), ACCURACY, seed=5)
        results.append(pilots.train(spec))
    assert results[0] == results[1]


def test_a_pilot_from_another_start_has_other_weights_where_they_can_be_drawn():
    """A step size this small leaves the loss of the initial weights."""
    spec = PilotSpec(options=PLAIN.options | {"learning_rate": 1e-9}, local_steps=2, sparsity=(4.0,) * 4, steps=2)
    drawn = pilots_of(prepare(scenario_of(TEXT), CPU), ACCURACY, seed=5)
    task = prepare(scenario_of(TEXT), CPU)
    given = Pilots(task, options_of_pilots(task), ACCURACY, seed=5)
    for pilots, same in ((drawn, False), (given, True)):
        losses = [pilots.train(dataclasses.replace(spec, start=start)).losses[0] for start in (0, 1)]
        assert (losses[0] == pytest.approx(losses[1], rel=1e-5)) == same


def test_without_a_step_size_the_search_begins_at_a_usual_one():
    text = TEXT.replace("learning_rate = 0.1\n", "")
    assert options_of_pilots(prepare(scenario_of(text), CPU))["learning_rate"] == 0.1


def plan_of(found):
    return ScenarioPlans(scenario_of(tuned_text(scenario_of(TEXT), found, "2026-01-01"))).plan("fewest")


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_rounds_that_suffice_are_not_worth_a_note(found, spare):
    allowed = dataclasses.replace(found, most_rounds=found.tuned.plan.rounds_to_train() + spare)
    assert (allowed.too_few_rounds is None) == (spare >= 0)
    assert len(allowed.notes) - len(found.tuned.notes) == (spare < 0)
    assert ("with training.rounds" in tuned_text(scenario_of(TEXT), allowed, "2026-01-01")) == (spare < 0)


def test_a_scenario_that_states_no_rounds_allows_any_number(found):
    assert found.most_rounds == scenario_of(TEXT).training.rounds == 2
    assert dataclasses.replace(found, most_rounds=None).notes == found.tuned.notes


def test_the_limits_of_the_file_are_those_of_the_recipe_unless_they_differ(found):
    text = tuned_text(scenario_of(TEXT), found, "2026-01-01")
    assert "[recipe.limits]" not in text
    assert "on 2026-01-01 with seed 1000" in text


def test_the_best_step_size_of_plain_sgd_is_written_beside_the_recipe(found):
    search = scenario_of(tuned_text(scenario_of(TEXT), found, "2026-01-01")).recipe_search
    assert search.plain_learning_rate == found.tuned.plain_rate


def test_a_recipe_whose_messages_need_a_larger_sparsity_has_limits_of_its_own(found):
    plan = plan_of(dataclasses.replace(found, sparsity=(20.0, 50.0), narrower_sparsity=True))
    assert plan.sparsity.min() >= 20.0
    assert plan_of(found).sparsity.min() < 20.0


def test_a_recipe_that_was_good_at_one_h_only_is_planned_with_it(found):
    best = plan_of(found).local_steps
    other = best - 1 if best > 1 else 2
    one = dataclasses.replace(found.tuned, plan=dataclasses.replace(found.tuned.plan, local_steps=other))
    assert plan_of(dataclasses.replace(found, tuned=one, keeps_local_steps=True)).local_steps == other
    assert plan_of(dataclasses.replace(found, tuned=one)).local_steps == best


DEAR = TEXT.replace("downlink_joules_per_bit = 1e-8", "downlink_joules_per_bit = 1e-6")


@pytest.fixture(scope="module")
def dear():
    return tune_scenario(scenario_of(DEAR), CPU)


def test_a_dear_server_sends_coarse_values_in_every_pilot_and_in_the_recipe(dear):
    assert dear.recipe.message["downlink_values"] == "ternary"
    assert "ternary values from the server" in dear.recipe.describe()
    assert {pilot.spec.options["downlink_values"] for pilot in dear.tuned.pilots} == {"ternary"}
    assert {one.values for pilot in dear.tuned.pilots for one in pilot.broadcasts} == {"ternary"}


def test_a_free_server_is_left_as_it_is():
    free = tune_scenario(scenario_of(trained_with("target_accuracy = 0.8", 'downlink = "free"')), CPU)
    assert "downlink_values" not in free.recipe.options()
    assert free.server is None
    assert not any(pilot.broadcasts for pilot in free.tuned.pilots)
    text = tuned_text(scenario_of(TEXT), free, "2026-01-01")
    assert "downlink_message_size" not in text


def test_the_file_of_the_recipe_plans_the_server_as_tuning_did(dear):
    read = scenario_of(tuned_text(scenario_of(DEAR), dear, "2026-01-01"))
    server, plan = read.recipe_problem().server, ScenarioPlans(read).plan("fewest")
    assert server.message.bits(650, 8.0) == pytest.approx(dear.server.message.bits(650, 8.0), rel=1e-4)
    assert server.sparsity == dear.server.sparsity == (4.0, 50.0)
    assert plan.downlink_sparsity == pytest.approx(dear.tuned.plan.downlink_sparsity, rel=1e-3)
    assert plan.energy_joules == pytest.approx(dear.tuned.plan.energy_joules, rel=1e-3)
    assert plan.recipe.options() == dear.recipe.options()


def test_a_dear_first_message_is_told_beside_the_prediction(dear, found):
    plan = dear.tuned.plan
    bits = usual_bits(650, "float32", 1.0) - dear.server.message_size.bits(650, plan.downlink_sparsity)
    assert dear.first_message_joules == pytest.approx(4 * 1e-6 * bits)
    assert f"adds {number(dear.first_message_joules)} J to the plan's joules" in " ".join(sentences(dear))
    free = dataclasses.replace(found, first_message_joules=0.009 * found.tuned.plan.energy_joules)
    assert "first message" not in " ".join(sentences(free))


def test_progress_calls_the_first_at_the_target_the_best():
    told = []
    tune_scenario(scenario_of(TEXT), CPU, tell=told.append)
    racing = [
        one for one in told if one.plan is None and any(two.news.result.reached for two in told[: one.news.pilots])
    ]
    assert racing
    for one in racing:
        steps = [ACCURACY.steps_to_target(two.news.result) for two in told[: one.news.pilots]]
        assert one.expected_steps == min(number for number in steps if number is not None)


def test_progress_tells_the_plan_and_its_spread_once_the_law_has_been_observed():
    told = []
    found = tune_scenario(
        scenario_of(TEXT), CPU, trainings=1_000_000, budget=Budget.parse("1e6 steps"), tell=told.append
    )
    assert [one.news.result for one in told] == list(found.tuned.pilots)
    assert told[0].plan is None
    assert told[0].spread is None
    assert told[-1].optimiser == found.tuned.optimiser
    assert told[-1].plan.local_steps in range(1, 6)
    assert told[-1].allowed_client_steps == 1e6
    text = "; ".join(progress_lines(told[-1]))
    assert f"booked {found.tuned.client_steps:,} of 1,000,000 client-steps" in text
    assert re.search(r"about \d+ steps to the target \(\d+ to \d+\), plan: H [1-5], \S+ J", text)
