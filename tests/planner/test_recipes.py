"""The choice among recipes: no search over recipes, H and sparsities finds less, and one bound holds for all."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.planner.recipes import Candidate, choose_recipe
from tests import strategies
from tests.planner.test_constraints import DEADLINE_MARGIN, constrained_problems, timed_fleet, timed_problem
from tests.reference import planning as reference

CERTIFIED = 1e-9
ROUNDING = 1e-12

few = settings(deadline=None, max_examples=20, derandomize=True)
many = settings(deadline=None, max_examples=40, derandomize=True)


def recipe(number):
    return fj.Recipe(f"recipe {number}", {"learning_rate": 0.1 * (number + 1)})


def candidates_of(problems):
    return [Candidate(recipe(number), problem) for number, problem in enumerate(problems)]


@st.composite
def choices(draw, problem):
    """Candidates that share fleet and model: other rounds laws, other values, other H, other limits of sparsity."""
    first = draw(problem)
    low, high = first.sparsity
    problems = [first]
    for _ in range(draw(st.integers(0, 2))):
        pivot, steps = math.sqrt(low * high), draw(st.sampled_from(first.local_steps))
        problems.append(
            strategies.changed(
                first,
                rounds=draw(strategies.rounds_models(first.devices, pivot, steps) | st.just(first.rounds)),
                value_bits=draw(st.sampled_from([2, 8, first.value_bits])),
                local_steps=draw(st.sampled_from([first.local_steps, first.local_steps[:1]])),
                sparsity=draw(st.sampled_from([(low, high), (low, math.sqrt(low * high))])),
            )
        )
    return problems


def grid_points(problem, points=9):
    """Objective (27) at every H and every combination of a few sparsities that meets the limits."""
    axis = np.geomspace(*problem.sparsity, points).clip(*problem.sparsity).tolist()
    for steps in problem.local_steps:
        for sparsity in itertools.product(axis, repeat=problem.devices):
            if reference.meets_limits(problem, steps, sparsity):
                yield reference.energy(problem, steps, sparsity)


@many
@given(choices(strategies.problems(max_devices=2, local_steps=strategies.local_step_sets(max_size=4))))
def test_no_search_over_all_recipes_finds_less_than_the_choice(problems):
    choice = choose_recipe(candidates_of(problems))
    found = [reference.best(problem).energy_joules for problem in problems]
    assert choice.plan.energy_joules == pytest.approx(min(found), rel=CERTIFIED)
    assert choice.lower_bound_joules <= min(found) * (1 + ROUNDING)
    assert choice.lower_bound_joules >= min(found) * (1 - 2 * CERTIFIED)
    best = found[[recipe(number) for number in range(len(found))].index(choice.plan.recipe)]
    assert best == pytest.approx(min(found), rel=CERTIFIED)


@few
@given(choices(strategies.problems(max_devices=2) | strategies.extreme_problems()))
def test_no_point_of_any_grid_lies_below_the_bound(problems):
    assume(problems[0].devices <= 2)
    bound = choose_recipe(candidates_of(problems)).lower_bound_joules
    assert all(bound <= joules * (1 + ROUNDING) for problem in problems for joules in grid_points(problem))


@few
@given(choices(constrained_problems()))
@pytest.mark.filterwarnings("ignore:recipe")
def test_no_search_within_deadlines_and_batteries_finds_less_than_the_choice(problems):
    choice = choose_recipe(candidates_of(problems))
    found = min(reference.best_constrained(problem).energy_joules for problem in problems)
    assert choice.plan.energy_joules <= found * (1 + 1e-6)
    assert choice.lower_bound_joules <= found * (1 + ROUNDING + DEADLINE_MARGIN)
    grid = (joules for problem in problems for joules in grid_points(problem))
    assert all(choice.lower_bound_joules <= joules * (1 + ROUNDING + DEADLINE_MARGIN) for joules in grid)


def test_the_plan_names_its_scheme_and_recipe_and_carries_the_bound_of_all():
    problems = [
        timed_problem(timed_fleet()),
        timed_problem(timed_fleet(), rounds=fj.PaperRounds(alpha=1e-4, beta=60.0)),
    ]
    choice = choose_recipe(candidates_of(problems))
    assert [plan.recipe for plan in choice.plans] == [recipe(0), recipe(1)]
    assert {plan.scheme for plan in choice.plans} == {"fewest"}
    assert choice.plan.recipe == recipe(1)
    assert choice.plan.energy_joules == fj.solve(problems[1]).energy_joules
    assert choice.plan.lower_bound_joules == choice.lower_bound_joules == choice.plans[1].lower_bound_joules


def test_the_first_of_equal_recipes_is_chosen():
    problem = timed_problem(timed_fleet())
    assert choose_recipe(candidates_of([problem, problem])).plan.recipe == recipe(0)


def test_an_infeasible_recipe_is_left_out_and_told():
    late = timed_problem(timed_fleet(), round_seconds=1e-3)
    with pytest.warns(fj.FewJoulesWarning, match="recipe recipe 0 is left out: round_seconds = 0.001"):
        choice = choose_recipe(candidates_of([late, timed_problem(timed_fleet())]))
    assert [plan.recipe for plan in choice.plans] == [recipe(1)]


def test_a_choice_without_a_feasible_recipe_names_the_first_reason():
    problems = [timed_problem(timed_fleet(), round_seconds=seconds) for seconds in (1e-3, 2e-3)]
    with pytest.raises(
        fj.InfeasiblePlanError, match=r"^no recipe is feasible; recipe recipe 0: round_seconds = 0\.001"
    ):
        choose_recipe(candidates_of(problems))


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([], "candidates must have at least 1 recipe, got none"),
        (
            [timed_problem(timed_fleet()), timed_problem(timed_fleet(), parameters=1000)],
            "must have the 100,000 parameters of recipe 'recipe 0', got 1,000 of recipe 'recipe 1'",
        ),
        (
            [timed_problem(timed_fleet()), timed_problem(fj.Fleet(joules_per_bit=[1e-9], joules_per_step=1e-3))],
            "must have the 3 devices of recipe 'recipe 0', got 1 of recipe 'recipe 1'",
        ),
    ],
)
def test_candidates_must_be_of_one_training(problems, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        choose_recipe(candidates_of(problems))
