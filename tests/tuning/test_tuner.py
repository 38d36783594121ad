"""The whole tuner in made-up worlds: ``python -m tests.tuning.worlds`` prints more of what is bounded here."""

import contextlib
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fewjoules.errors import InfeasiblePlanError, InvalidInputError, TargetOutOfReachError
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.books import Budget
from fewjoules.tuning.design import Decision, joules_table
from fewjoules.tuning.finals import _may_win
from fewjoules.tuning.learning import SAMPLED_LAWS, decisions_of
from fewjoules.tuning.planning import FleetPlanning
from fewjoules.tuning.race import Arm
from fewjoules.tuning.replanning import replan
from tests.tuning.curves import result_of
from tests.tuning.worlds import SyntheticLaboratory, World, name_of, score, scores, stalled, tuner_of

WORLDS = range(60)  # 20 of each kind of fleet
MANY_WORLDS = range(180)  # medians of 60 lie 0.03 about that of many, and rounding on another processor draws anew


@pytest.fixture(scope="module")
def usual():
    return scores(MANY_WORLDS)


@pytest.fixture(scope="module")
def frugal():
    return scores(MANY_WORLDS, budget_part=0.25)


def told(found):
    return [one for one in found if one is not None]


def ratios(found):
    return np.array([one.ratio for one in told(found)])


def test_the_recipe_is_near_the_best_possible(usual):
    assert ratios(usual).min() >= 1.0 - 1e-9
    assert np.median(ratios(usual)) <= 1.15  # 1.10 to 1.12 with six seeds
    assert np.quantile(ratios(usual), 0.9) <= 1.55


def test_step_size_and_plan_are_near_the_best_of_the_chosen_optimiser(usual):
    parts = np.array([(one.rate_ratio, one.plan_ratio) for one in told(usual)])
    assert np.all(np.median(parts, axis=0) <= (1.06, 1.04))
    assert np.all(np.quantile(parts, 0.9, axis=0) <= (1.3, 1.2))


def test_a_target_in_reach_is_seldom_given_up(usual, frugal):
    assert usual.count(None) <= 6
    assert frugal.count(None) <= 6


def test_a_quarter_of_the_budget_makes_the_recipe_little_worse(usual, frugal):
    assert np.median(ratios(frugal)) <= 1.15 * np.median(ratios(usual))


def test_a_quarter_of_the_budget_is_little_more_than_half_as_many_client_steps(usual, frugal):
    spent = [np.median([one.trainings for one in told(found)]) for found in (usual, frugal)]
    assert spent[1] < 0.66 * spent[0]


def test_tuning_takes_about_three_trainings(usual):
    spent = np.array([one.trainings for one in told(usual)])
    allowed = np.array([3.0 + one.longest_steps for one in told(usual)])
    assert np.mean(spent <= allowed) >= 0.8
    assert np.quantile(spent, 0.9) <= 5.5


def test_tuning_stops_after_few_pilots(usual, frugal):
    assert max(one.pilots for one in told(usual)) <= 40
    assert max(one.pilots for one in told(frugal)) <= 25


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_books_have_every_step_of_every_training_once(seed):
    world = World.random(seed)
    tuned = tuner_of(world).tune()
    longest = {}
    for one in tuned.pilots:
        longest[one.spec.training_key] = max(one.local_steps_taken, longest.get(one.spec.training_key, 0))
    assert tuned.client_steps == world.problem.devices * sum(longest.values())
    assert tuned.joules > 0.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_seed_gives_the_same_answer(seed):
    one, other = (tuner_of(World.random(seed), seed=5).tune() for _ in range(2))
    assert one.optimiser_options == other.optimiser_options
    assert one.message == other.message
    assert one.plan.chooses_like(other.plan)
    assert one.plan.energy_joules == other.plan.energy_joules
    assert one.pilots == other.pilots
    assert (one.client_steps, one.joules) == (other.client_steps, other.joules)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", [0.1, 0.25, 0.6, 1.0, 3.0])
def test_a_budget_in_client_steps_or_joules_is_never_exceeded(seed, part):
    world = World.random(seed)
    free = tuner_of(world).tune()
    for budget in (Budget(client_steps=part * free.client_steps), Budget(joules=part * free.joules)):
        tuner = tuner_of(world, budget=budget, trainings=1000)
        with contextlib.suppress(TargetOutOfReachError, InvalidInputError):
            tuner.tune()
        assert tuner.search.books.client_steps <= (budget.client_steps or math.inf)
        assert tuner.search.books.joules <= (budget.joules or math.inf)


@pytest.fixture(scope="module", params=["client_steps", "joules"])
def limited(request):
    """Tunings with parts of what four trainings allow for: the recipe's joules, and the steps that were expected.

    Both are relative to the truth; None where a tuning found no recipe.
    """
    found = {0.1: [], 0.4: [], 1.0: []}
    for seed in range(25):
        world = World.random(seed)
        free = tuner_of(world, budget=Budget(trainings=4.0)).tune()
        for part, results in found.items():
            tuner = tuner_of(world, budget=Budget(**{request.param: part * getattr(free, request.param)}))
            try:
                tuned = tuner.tune()
            except (TargetOutOfReachError, InvalidInputError):
                results.append(None)
                continue
            truth = world.steps_to_target(tuner.search.reference.pilot.spec)
            results.append((world.joules_of(tuned) / world.best_joules(), tuner.search.reference.steps / truth))
    return found


def test_small_budgets_find_recipes(limited):
    assert limited[0.1].count(None) <= 13
    assert limited[0.4].count(None) <= 3
    assert limited[1.0].count(None) <= 1


def test_small_budgets_find_good_recipes(limited):
    for part, most in ((0.4, 1.35), (1.0, 1.2)):
        assert np.median([ratio for ratio, _ in told(limited[part])]) <= most


def test_steps_that_a_small_budget_extrapolates_are_near_the_truth(limited):
    """Of all worlds, so that giving one up is no better than an error."""
    for part, deviation, least in ((0.1, 1.0, 10), (0.4, 0.7, 21), (1.0, 0.3, 23)):
        errors = np.abs(np.log([steps for _, steps in told(limited[part])]))
        assert np.sum(errors <= deviation) >= least


def test_a_budget_for_less_than_the_first_pilots_is_refused_with_what_they_take():
    world = World.random(0)
    laboratory = SyntheticLaboratory(world)
    with pytest.raises(InvalidInputError, match=r"3 pilots, [\d,]+ client-steps or [\d.e+-]+ J, got 5 client-steps"):
        tuner_of(world, laboratory=laboratory, budget=Budget(client_steps=5.0)).tune()
    with pytest.raises(InvalidInputError, match=r"got 1e-09 J"):
        tuner_of(world, laboratory=laboratory, budget=Budget(joules=1e-9)).tune()
    assert not laboratory.specs


def test_step_sizes_that_are_far_too_small_are_left_quickly():
    world = replace(World.random(1), evaluation_deviation=0.0)
    usual, tiny = tuner_of(world), replace(tuner_of(world), rate=1e-9)
    found = tiny.tune()
    assert found.client_steps < 2.0 * usual.tune().client_steps
    plan = tiny.search.race_plan
    assert 0.2 < found.plain_rate / world.optimisers["SGD"].rate_at(plan.local_steps) < 5.0


def test_the_plan_is_that_of_the_law_believed_in_the_end():
    tuner = tuner_of(World.random(0))
    tuned = tuner.tune()
    steps = tuned.plan.rounds * tuned.plan.local_steps
    assert steps == pytest.approx(tuned.belief.predicted_steps(tuner.search.choice(tuned.plan))[0], rel=0.1)
    assert tuned.expected_regret_joules >= 0.0
    assert len(tuned.belief.observations) >= 1


def test_the_regret_is_that_of_the_plan_that_was_chosen(monkeypatch):
    monkeypatch.setattr(
        "fewjoules.tuning.tuner.replan", lambda search, reference, _: (search.plan(100), reference.winner)
    )
    tuner = tuner_of(World.random(0))  # where H = 1 is best
    tuned = tuner.tune()
    search, plans = tuner.search, (tuned.plan, tuner.search.plan())
    decisions = [Decision(search.choice(plan), search.round_joules(plan)) for plan in plans]
    chosen, best = search.belief.weights @ joules_table(search.belief, decisions)
    assert tuned.expected_regret_joules >= chosen - best > 0.1 * best


def searched(seed, local_steps):
    """A tuning of a world with these H."""
    world = World.random(seed, "dear bits")
    tuner = tuner_of(replace(world, problem=replace(world.problem, local_steps=local_steps)))
    tuner.tune()
    return tuner.search


@pytest.mark.parametrize("seed", [0, 22])
@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_a_plan_that_has_moved_has_the_step_size_that_was_found_for_its_h(seed, factor):
    """In world 22 the law then prefers H = 3, which is not worth the search for its step size."""
    search = searched(seed, range(1, 13))
    race = search.raced.plan
    sparser = float(np.mean(race.sparsity)) * 4.0 ** math.copysign(1.0, 1.0 - factor)
    elsewhere = replace(race, sparsity=np.full(race.sparsity.size, min(max(sparser, 1.0), 1000.0)))
    search.observe(elsewhere, search.predicted_steps(elsewhere) * factor, 0.05)
    before = len(search.pilots)
    plan, arm = replan(search, search.raced, 10)
    tried = {(one.spec.local_steps, one.spec.learning_rate) for one in search.pilots[before:]}
    assert (plan.local_steps, arm.rate) in tried | {(race.local_steps, search.raced.winner.rate)}


def test_a_step_size_that_was_found_for_sparser_messages_is_taken(monkeypatch):
    """Of the race's H, whose plan has other sparsities than the race."""
    search = searched(0, (4,))
    found = Arm(search.raced.winner.optimiser, 2.0 * search.raced.winner.rate)
    monkeypatch.setattr("fewjoules.tuning.replanning._best_arm", lambda *_: (found, search.raced.steps))
    monkeypatch.setattr("fewjoules.tuning.replanning._has_moved", lambda *_: True)
    assert replan(search, search.raced, 10)[1] == found


def test_laws_under_which_batteries_do_not_last_are_no_decisions():
    world = World.random(4)
    tuner = tuner_of(world)
    plan, search = tuner.tune().plan, tuner.search
    problem = search.planning.problem_of(search.belief.law(), search.message)
    needed = plan.rounds * problem.round_joules(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    scarce = FleetPlanning(
        replace(world.problem, fleet=world.problem.fleet.changed(battery_joules=0.95 * needed)),
    )

    def lasts(law):
        with contextlib.suppress(InfeasiblePlanError):
            return bool(scarce.plan(law, search.message))
        return False

    laws = [search.belief.law_of(one) for one in search.belief.sampled(SAMPLED_LAWS, np.random.default_rng(0))]
    assert 0 < sum(map(lasts, laws)) < len(laws)
    search.planning = scarce
    plans, decisions = decisions_of(search)
    assert len(plans) == len(decisions) >= 1
    assert all(one.energy_joules <= 0.95 * needed.sum() for one in plans)


def test_a_pilot_that_was_trained_before_is_told_once():
    search = searched(0, (1, 2))
    before = list(search.pilots), search.books.client_steps
    assert search.run([before[0][0].spec]) == [before[0][0]]
    assert (search.pilots, search.books.client_steps) == before


@pytest.mark.parametrize(
    ("losses", "may"),
    [((2.0, 0.9), False), ((0.9, 0.8), True), ((2.0, 1.1), True), ((2.1, 2.0), False)],
    ids=["there later", "there sooner", "on the way", "far behind"],
)
def test_a_later_finalist_is_followed_only_where_it_may_be_the_first(losses, may):
    search = SimpleNamespace(aim=Aim("loss", 1.0))
    assert _may_win(search, result_of([40, 80], losses, reached=losses[-1] <= 1.0), 80.0) is may


@pytest.fixture(scope="module")
def given_up():
    found = []
    for seed in range(15):
        world = World.random(seed).out_of_reach()
        laboratory = SyntheticLaboratory(world)
        tuner = tuner_of(world, laboratory=laboratory)
        with pytest.raises(TargetOutOfReachError) as caught:
            tuner.tune()
        fastest = min(world.steps_to_target(spec) for spec in laboratory.specs)
        found.append((str(caught.value), world, tuner.search.books.client_steps / world.problem.devices / fastest))
    return found


def test_a_target_out_of_reach_is_told_with_how_near_the_pilots_came(given_up):
    for message, world, _ in given_up:
        assert f"target {world.aim.metric} {world.aim.target:g} seems out of reach" in message
        assert "\n" not in message


def test_a_target_out_of_reach_is_told_before_a_hundred_trainings_are_spent(given_up):
    assert np.median([trainings for _, _, trainings in given_up]) <= 100.0


class LuckyStart(SyntheticLaboratory):
    """In a world whose target is out of reach, the first other start reaches it at once."""

    def train(self, spec):
        if spec.start != 1:
            return super().train(spec)
        curve = [(spec.local_steps * spec.rounds, self.world.target_loss, self.world.aim.target)]
        return self._result(spec, spec.rounds, curve, reached=True, diverged=False)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_target_that_only_other_starts_reach_is_told_as_such(seed):
    tuner = tuner_of(world := World.random(seed).out_of_reach(), laboratory=LuckyStart(world))
    with pytest.raises(TargetOutOfReachError) as caught:
        tuner.tune()
    said = re.search(
        r"(\d+) of (\d+) pilots reached the target, but only from some initial weights or batches; the best of the "
        r"others has (\S+) on the data kept aside after \d+ local steps, and ",
        str(caught.value),
    )
    assert said is not None, caught.value
    pilots = tuner.search.pilots
    assert (int(said[1]), int(said[2])) == (sum(one.spec.start == 1 for one in pilots), len(pilots))
    assert not world.aim.reached(float(said[3]))


def test_every_step_size_that_blows_up_is_told():
    world = World.random(0)
    edges = {name: replace(one, edge=1e-9) for name, one in world.optimisers.items()}
    with pytest.raises(TargetOutOfReachError, match=r"every pilot blew up, with step sizes down to .*learning_rate"):
        tuner_of(replace(world, optimisers=edges)).tune()


def test_without_noise_the_steps_of_the_reference_are_those_of_the_world():
    world = replace(World.random(3), seed_deviation=0.0, evaluation_deviation=0.0)
    tuner = tuner_of(world)
    tuned = tuner.tune()
    truth = world.steps_to_target(tuner.search.reference.pilot.spec)
    assert tuned.belief.observations[0].steps == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(("aim", "allowed"), [(Aim("loss", 10.0), "below 2.3"), (Aim("accuracy", 0.05), "above 0.1")])
def test_a_target_that_the_untrained_model_has_is_refused_before_the_first_pilot(aim, allowed):
    world = replace(World.random(0), aim=aim)
    laboratory = SyntheticLaboratory(world)
    with pytest.raises(InvalidInputError, match=f"target {aim.metric} must be {allowed}, .* got {aim.target:g}"):
        tuner_of(world, laboratory=laboratory).tune()
    assert not laboratory.specs


def with_delay(world, c):
    """The world with a law of another c for every optimiser."""
    laws = {name: replace(one, law=replace(one.law, c=c)) for name, one in world.optimisers.items()}
    return replace(world, optimisers=laws)


def test_pilots_that_learn_a_law_far_from_the_prior_make_plans_better():
    """With many trainings ahead and money for pilots, where sparsities matter most."""
    worlds = [with_delay(World.random(seed, "dear bits"), 0.12) for seed in range(1, 13)]
    plain, learned = (
        [score(world, trainings=trainings, budget=Budget(trainings=20.0)) for world in worlds]
        for trainings in (1, 1000)
    )
    assert min(len(one.tuned.belief.observations) for one in learned) >= 3
    excess = [np.mean([one.plan_ratio - 1.0 for one in found]) for found in (plain, learned)]
    assert excess[1] < 0.5 * excess[0], excess


def test_an_optimiser_that_stalls_before_the_target_does_not_end_a_tuning():
    found = [stalled(seed) for seed in range(12)]
    assert sum(other is not None for _, other in found) >= 8
    assert all(favourite != other for favourite, other in found)


def test_where_the_first_finalist_is_given_up_later_ones_go_little_further():
    compared = 0
    for seed in range(12):
        world, steps = World.random(seed), {}

        def note(news, steps=steps):
            one = news.result
            if news.doing == "training the best optimisers to the target" and not one.spec.start:
                steps[name_of(one.spec.options), one.spec.learning_rate] = one.local_steps_taken

        tuner = tuner_of(world.out_of_reach(1.05))
        tuner.tell = note
        with contextlib.suppress(TargetOutOfReachError):
            tuner.tune()
        first, *later = steps.values()
        assert all(one <= 1.5 * first + tuner.search.race_plan.local_steps for one in later)
        compared += len(later)
    assert compared >= 5
