"""Plans with partial participation: what a cohort costs on average, which is what the ledger books."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fewjoules as fj
from fewjoules.convergence.participation import PartialRounds, rounds_growth
from fewjoules.planner.downlink import Downlink
from fewjoules.planner.partial import with_participants
from fewjoules.planner.training_costs import expected_slowest
from fewjoules.scenario import Scenario
from tests.reference.training import made_up_clients
from tests.scenario.test_training_scenario import SCENARIO, trained_with

N = 6
COSTS = {
    "joules_per_bit": np.geomspace(1e-7, 1e-5, N),
    "message_joules": np.linspace(0.1, 0.6, N),
    "joules_per_step": np.linspace(0.05, 0.02, N),
    "seconds_per_bit": 1e-6,
    "seconds_per_step": np.linspace(0.1, 0.6, N),
}
LAW = fj.PowerLawRounds(tau=100.0, c=0.05, a=0.5, q=0.5)


def problem(**changes):
    given = {"fleet": fj.Fleet(**COSTS), "rounds": LAW, "parameters": 2103, "sparsity": (2.0, 100.0)}
    return fj.ControlProblem(**given | {"local_steps": range(1, 11)} | changes)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=7), st.data())
def test_the_expected_slowest_is_the_mean_over_every_cohort(seconds, data):
    size = data.draw(st.integers(1, len(seconds)))
    every = [max(cohort) for cohort in itertools.combinations(seconds, size)]
    assert expected_slowest(np.array(seconds), size) == pytest.approx(np.mean(every), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("participants", [1, 2, 5])
def test_a_partial_plan_makes_the_same_choices_at_its_part_of_the_joules(participants):
    whole, part = fj.solve(problem()), fj.solve(with_participants(problem(), participants))
    growth = 1.0 + 0.1 * (N / participants - 1.0)
    assert part.local_steps == whole.local_steps
    np.testing.assert_allclose(part.sparsity, whole.sparsity, rtol=1e-6)
    assert part.rounds == pytest.approx(growth * whole.rounds)
    assert part.energy_joules == pytest.approx(participants / N * growth * whole.energy_joules)
    assert part.relative_gap <= 1e-9
    assert whole.rounds * growth * 0.1 < part.seconds < whole.seconds * growth


def test_with_everyone_nothing_changes_and_a_law_measured_with_the_same_part_keeps_its_rounds():
    assert with_participants(problem(), N).fleet is not None
    assert with_participants(problem(), N).rounds is LAW
    assert with_participants(problem(), 3, law_participation=0.5).rounds is LAW
    assert with_participants(problem(), 3).rounds == PartialRounds(LAW, rounds_growth(0.5))
    back = with_participants(problem(), N, law_participation=0.5)
    assert back.rounds.growth == pytest.approx(1 / 1.1)


def test_batteries_are_planned_for_what_a_device_spends_on_average():
    tight = fj.Fleet(**COSTS, battery_joules=fj.solve(problem()).energy_joules / N / 2)
    with pytest.raises(fj.InfeasiblePlanError):
        fj.solve(problem(fleet=tight))
    assert fj.solve(with_participants(problem(fleet=tight), 2)).rounds > 0


def test_planned_joules_and_seconds_of_a_round_are_what_the_ledger_books():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 210), nn.Linear(210, 3))
    clients = made_up_clients([5] * N, 6, 3, 1)
    plan = fj.solve(with_participants(problem(local_steps=(2,)), 2))
    run = fj.train(
        model,
        clients=clients,
        plan=plan,
        fleet=fj.Fleet(**COSTS),
        rounds=100,
        learning_rate=1e-3,
        batch_size=2,
        participation=2 / N,
        device="cpu",
    )
    booked, planned = run.metrics["round_joules"], plan.energy_joules / plan.rounds
    assert abs(booked.mean() - planned) < 4.0 * booked.std() / np.sqrt(100) + 0.01 * planned
    seconds, slowest = run.metrics["round_seconds"], plan.seconds / plan.rounds
    assert abs(seconds.mean() - slowest) < 4.0 * seconds.std() / np.sqrt(100) + 0.01 * slowest


@pytest.mark.parametrize("server", [10.0, 100.0])
def test_what_devices_receive_after_an_absence_is_what_the_plan_counts(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 210), nn.Linear(210, 3))
    coded = fj.Fleet(joules_per_bit=1e-6, joules_per_step=0.1, codec_joules_per_entry=np.ones(8))
    run = fj.train(
        model,
        clients=made_up_clients([20] * 8, 6, 3, 1),
        fleet=coded.changed(downlink_joules_per_bit=1e-6),
        local_steps=1,
        sparsity=1.0,
        downlink_sparsity=server,
        rounds=200,
        learning_rate=0.1,
        batch_size=5,
        participation=2 / 8,
        device="cpu",
    )
    later = np.ones(run.ledger.size, dtype=bool)
    later[np.unique(run.ledger["device"], return_index=True)[1]] = False
    received = (run.ledger["codec_joules"] - run.ledger["entries"])[later].mean()
    planned_entries = 2103 / Downlink(participation=2 / 8).received_sparsity(server)
    assert 0.6 < received / planned_entries < 1.02  # places repeat, so a little less than at random
    assert received > 1.8 * 2103 / server


def planned(text):
    return fj.solve(Scenario.from_text(text, "test", None).problem())


def test_a_scenario_counts_those_who_take_part():
    free, part = 'downlink = "free"\n', "participation = 0.5\n"
    whole, half = planned(trained_with(free)), planned(trained_with(free + part))
    assert half.energy_joules == pytest.approx(0.5 * 1.1 * whole.energy_joules)
    measured = trained_with(free + part).replace("q = 0.60", "q = 0.60\nparticipation = 0.5")
    assert planned(measured).rounds == pytest.approx(whole.rounds)
    heavier = trained_with(free + part).replace("q = 0.60", "q = 0.60\nparticipation_weight = 0.3")
    assert planned(heavier).rounds == pytest.approx(1.3 * whole.rounds)


def test_a_scenario_counts_what_devices_miss_while_they_are_away():
    whole, half = planned(SCENARIO), planned(trained_with("participation = 0.5"))
    assert 0.5 * 1.1 * whole.energy_joules * 1.001 < half.energy_joules
    assert half.relative_gap <= 1e-9


@pytest.mark.parametrize(
    ("changes", "problem_text"),
    [
        ({"participants": 7}, "participants must be a whole number from 1 to 6, got 7"),
        ({"participants": 3, "weight": -1.0}, "participation weight must be a finite number at least 0, got -1.0"),
        (
            {"participants": 3, "law_participation": 0.0},
            "participation of the rounds law must be a finite number",
        ),
    ],
)
def test_participants_that_no_fleet_has_are_refused(changes, problem_text):
    with pytest.raises(fj.InvalidInputError) as refused:
        with_participants(problem(), **changes)
    assert str(refused.value).startswith(problem_text)


# A plan knows how many take part, and is trained with as many.


def trained(plan=None, **changes):
    given = {"clients": made_up_clients([4] * N, 4, 3, 1), "learning_rate": 0.1, "rounds": 2, "device": "cpu"}
    return fj.train(nn.Linear(4, 3), plan=plan, **given | changes)


def small(participants):
    return fj.solve(with_participants(problem(parameters=15, sparsity=(1.0, 5.0)), participants))


@pytest.mark.parametrize("participants", [1, 2, N])
def test_a_plan_brings_how_many_take_part_through_its_file_and_its_recipe_too(participants, tmp_path):
    plan = small(participants)
    plan.save(tmp_path / "plan.json")
    recipe = fj.Recipe("own", {"learning_rate": 0.1}, plan=plan)
    runs = [trained(plan), trained(fj.Plan.load(tmp_path / "plan.json"))]
    runs += [trained(recipe=recipe), trained(plan, participation=min(1.0, participants / N + 0.01))]
    for run in runs:
        assert np.bincount(run.ledger["round"]).tolist() == [0, participants, participants]


@pytest.mark.parametrize(("planned", "participation", "got"), [(2, 1.0, 6), (N, 0.67, 4), (1, 0.34, 2)])
def test_another_participation_than_that_of_the_plan_is_refused(planned, participation, got):
    says = f"^participation must be that of the plan, {planned} of 6 devices in each round, got {got} of 6$"
    with pytest.raises(fj.InvalidInputError, match=says):
        trained(small(planned), participation=participation)
    recipe = fj.Recipe("own", {"learning_rate": 0.1}, plan=small(planned))
    with pytest.raises(fj.InvalidInputError, match=says):
        trained(recipe=recipe, learning_rate=None, participation=participation)


def test_in_a_comparison_every_scheme_has_the_participation_of_the_problem():
    data = made_up_clients([4] * N, 4, 3, 1)
    given = {"clients": data, "test": data[0], "target": {"loss": 1e-9}, "learning_rate": 0.1, "rounds": 2}
    part = with_participants(problem(parameters=15, sparsity=(1.0, 5.0)), 2)
    found = fj.compare(
        nn.Linear(4, 3), problem=part, fleet=fj.Fleet(**COSTS), schemes=["flexible", "stc"], device="cpu", **given
    )
    assert {name for name, _ in found.runs} == {"flexible", "stc"}
    for run in found.runs.values():
        assert np.bincount(run.ledger["round"]).tolist() == [0, 2, 2]


def test_the_plan_of_a_scenario_has_its_participants():
    scenario = Scenario.from_text(trained_with("participation = 0.5"), "test", None)
    assert fj.solve(scenario.problem()).participants == scenario.participants == 2
    assert planned(SCENARIO).participants == 4
