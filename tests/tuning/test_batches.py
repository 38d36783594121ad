"""The batch is chosen where a sample has a price: the belief of the noise scale, and the search that uses it."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.planner.problem import ControlProblem
from fewjoules.runs.tuning import tune_task
from fewjoules.tuning.batches import PRIOR_SCALE, NoiseScale, first_batches, rate_factor
from fewjoules.tuning.books import Budget
from fewjoules.tuning.planning import Batches, FleetPlanning
from fewjoules.tuning.tuner import Tuner
from tests.tuning.worlds import SyntheticLaboratory, World, name_of

USUAL = 32
SIZES = (4, 8, 16, 32, 64, 128, 256)


def batches_of(world, *, joules_per_sample, joules_per_step=0.0, largest=1000):
    """Batches of a world whose devices pay for samples."""

    def problem_at(size):
        fleet = fj.Fleet(
            joules_per_bit=world.problem.fleet.joules_per_bit,
            joules_per_step=np.full(world.problem.devices, joules_per_step + joules_per_sample * size),
        )
        return replace(world.problem, fleet=fleet)

    return Batches(USUAL, largest, problem_at)


def noisy(world, scale):
    """The world's steps with any batch: S (1 + B / b), with its own S at the usual batch."""

    class Laboratory(SyntheticLaboratory):
        def train(self, spec):
            batch = spec.options.get("batch_size", USUAL)
            delay = (1.0 + scale * USUAL / batch) / (1.0 + scale)
            found = replace(self.world, optimisers={name: slower(one, delay) for name, one in kept.items()})
            return SyntheticLaboratory(found).train(spec)

    kept = world.optimisers
    return Laboratory(world)


def slower(optimiser, delay):
    return replace(optimiser, law=replace(optimiser.law, tau=delay * optimiser.law.tau))


def tuned(world, batches, scale, **options):
    planning = FleetPlanning(batches.problem_at(USUAL), batches=batches)
    tuner = Tuner(noisy(world, scale), planning, world.aim, 0.1, budget=Budget(trainings=8.0), **options)
    return tuner.tune(), tuner


def true_joules(world, batches, scale, found):
    """What the found recipe really takes, its batch included."""
    batch = found.optimiser_options["batch_size"]
    delay = (1.0 + scale * USUAL / batch) / (1.0 + scale)
    at_batch = replace(
        world,
        problem=batches.problem_at(batch),
        optimisers={name: slower(one, delay) for name, one in world.optimisers.items()},
    )
    return at_batch.joules_of(found)


@given(st.floats(0.05, 20.0), st.sampled_from(SIZES), st.sampled_from(SIZES))
def test_one_exact_observation_of_a_far_batch_tells_the_noise_scale(scale, at, other):
    truth = lambda batch: (1.0 + scale * USUAL / batch) / (1.0 + scale * USUAL / at)  # noqa: E731
    belief = NoiseScale(USUAL, at=at)
    assert belief.delay(at) == pytest.approx(1.0)
    seen = belief
    for _ in range(50):  # so often that the prior no longer matters
        seen = seen.after(other, truth(other))
    if other != at:
        assert math.log(seen.delay(other)) == pytest.approx(math.log(truth(other)), abs=0.25)


@given(st.sampled_from(SIZES), st.lists(st.tuples(st.sampled_from(SIZES), st.floats(0.2, 5.0)), max_size=3))
def test_a_larger_batch_never_seems_to_take_more_steps(at, observed):
    belief = NoiseScale(USUAL, at=at)
    for batch, ratio in observed:
        belief = belief.after(batch, ratio)
    delays = [belief.delay(size) for size in SIZES]
    assert all(small >= large for small, large in pairwise(delays))
    samples = [size * delay for size, delay in zip(SIZES, delays, strict=True)]
    assert all(small <= large for small, large in pairwise(samples))


def test_before_any_pilot_the_prior_is_its_mean_by_brute_force():
    normal = np.random.default_rng(0).standard_normal(200_000)
    scales = PRIOR_SCALE * np.exp(normal)
    expected = np.mean((1.0 + scales * 4.0) / (1.0 + scales))
    assert NoiseScale(USUAL, at=USUAL).delay(USUAL // 4) == pytest.approx(expected, rel=0.01)


def test_batches_are_powers_of_two_times_the_usual_one_within_what_clients_have():
    problem_at = lambda size: size  # noqa: E731
    assert Batches(32, 100, problem_at).sizes == (4, 8, 16, 32, 64)
    assert Batches(3, 100, problem_at).sizes == (3, 6, 12, 24)
    assert Batches(32, 10, problem_at).sizes == (4, 8, 32)
    assert set(first_batches(Batches(32, 1000, problem_at))) == {8, 16, 32, 64, 128}
    assert first_batches(None) == {}


def test_a_step_size_goes_with_the_square_root_of_the_batch():
    assert rate_factor(8, 32) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", [0, 3])
def test_where_samples_are_dear_a_small_batch_is_chosen_and_where_steps_are_a_large_one(seed):
    world = World.random(seed, "cheap bits")
    dear_samples = batches_of(world, joules_per_sample=1e-3)
    dear_steps = batches_of(world, joules_per_sample=1e-6, joules_per_step=0.05)
    small, _ = tuned(world, dear_samples, scale=0.4)
    large, _ = tuned(world, dear_steps, scale=2.0)
    assert small.optimiser_options["batch_size"] < USUAL < large.optimiser_options["batch_size"]


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_chosen_batch_is_near_the_best_one(scale):
    world = World.random(1, "cheap bits")
    batches = batches_of(world, joules_per_sample=3e-4, joules_per_step=2e-3)
    found, tuner = tuned(world, batches, scale)
    assert tuner.search.planning.batch_size == found.optimiser_options["batch_size"]
    best = min(
        (1.0 + scale * USUAL / size)
        * tuner.planning.at_batch(size).plan(found.belief.law(), found.message).energy_joules
        for size in batches.sizes
    )
    own = found.optimiser_options["batch_size"]
    chosen = tuner.planning.at_batch(own).plan(found.belief.law(), found.message).energy_joules
    assert (1.0 + scale * USUAL / own) * chosen <= 1.35 * best


def test_another_batch_is_tried_where_many_trainings_can_pay_for_it():
    world = World.random(1, "cheap bits")
    batches = batches_of(world, joules_per_sample=3e-4, joules_per_step=2e-3)
    few, _ = tuned(world, batches, scale=3.0, trainings=1)
    many, _ = tuned(world, batches, scale=3.0, trainings=100)
    assert {one.spec.options["batch_size"] for one in few.pilots} == {8}  # the best one by the prior
    assert true_joules(world, batches, 3.0, many) < 0.95 * true_joules(world, batches, 3.0, few)


def test_the_step_size_of_plain_sgd_is_told_for_the_usual_batch():
    world = World.random(1, "cheap bits")
    found, _ = tuned(world, batches_of(world, joules_per_sample=3e-4, joules_per_step=2e-3), scale=3.0)
    plain = {one.spec.learning_rate for one in found.pilots if name_of(one.spec.options) == "SGD"}
    assert {one.spec.options["batch_size"] for one in found.pilots} == {8}
    assert min(abs(found.plain_rate * rate_factor(8, USUAL) / rate - 1.0) for rate in plain) < 1e-9


def test_pilots_are_booked_with_the_batch_that_they_trained_with():
    world = World.random(1, "cheap bits")
    batches = batches_of(world, joules_per_sample=3e-4, joules_per_step=2e-3)
    found, tuner = tuned(world, batches, scale=3.0, trainings=100)
    rounds, joules = {}, 0.0
    for pilot in found.pilots:
        key = pilot.spec.training_key
        new = max(0, pilot.rounds - rounds.get(key, 0))
        rounds[key] = rounds.get(key, 0) + new
        problem = tuner.planning.at_batch(pilot.spec.options["batch_size"])
        spec = pilot.spec
        joules += new * problem.round_joules(found.message, spec.local_steps, spec.sparsity, spec.downlink_sparsity)
    assert len({one.spec.options["batch_size"] for one in found.pilots}) > 1
    assert found.joules == pytest.approx(joules, rel=0.05)  # sizes of messages are learned on the way


def test_without_a_price_of_a_sample_the_batch_is_left_alone():
    world = World.random(1, "cheap bits")
    assert isinstance(world.problem, ControlProblem)
    found = Tuner(SyntheticLaboratory(world), FleetPlanning(world.problem), world.aim, 0.1).tune()
    assert "batch_size" not in found.optimiser_options
    assert all("batch_size" not in one.spec.options for one in found.pilots)


def where_plain_sgd_wins(seed):
    """A world without noise in which every other optimiser takes six times the steps that it usually takes."""
    world = World.random(seed, "cheap bits")
    slow = {name: one if name == "SGD" else slower(one, 6.0) for name, one in world.optimisers.items()}
    return replace(world, optimisers=slow, seed_deviation=0.0, evaluation_deviation=0.0)


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_where_plain_sgd_wins_another_batch_is_no_faster_plain_sgd(seed):
    world = where_plain_sgd_wins(seed)
    batches = batches_of(world, joules_per_sample=3e-4, joules_per_step=2e-3)
    found = tune_task(noisy(world, 3.0), batches.problem_at(USUAL), world.aim, 0.1, batches=batches, trainings=100)
    spec = found.tuned.pilots[0].spec
    raced = spec.local_steps, spec.sparsity, spec.options["batch_size"]
    same = lambda one: (one.local_steps, one.sparsity, one.options["batch_size"]) == raced  # noqa: E731
    reached = [(one.spec, found.aim.steps_to_target(one)) for one in found.tuned.pilots if one.reached]
    own = min(steps for one, steps in reached if same(one))
    assert found.tuned.optimiser == "SGD"
    assert min(steps for one, steps in reached if not same(one)) < own  # with larger batches
    prices = FleetPlanning(batches.problem_at(raced[2]), sizes=world.true_planning.sizes)
    round_joules = prices.round_joules(found.tuned.message, spec.local_steps, spec.sparsity, None)
    assert found.untuned_joules == pytest.approx(own / spec.local_steps * round_joules, rel=0.02)
    law = found.plain_law
    steps = law.tau * (1.0 + law.c * spec.local_steps**law.a * np.mean(np.array(spec.sparsity) ** law.q))
    assert steps * NoiseScale(USUAL, at=USUAL).delay(raced[2]) == pytest.approx(own, rel=1e-6)
    assert found.saving_joules > 0.0


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_where_plain_sgd_wins_as_planned_its_rounding_is_no_saving(seed):
    world = where_plain_sgd_wins(seed)
    found = tune_task(SyntheticLaboratory(world), world.problem, world.aim, 0.1, trainings=1)
    assert found.tuned.optimiser == "SGD"
    assert found.untuned_joules == pytest.approx(found.tuned.plan.energy_joules, rel=1e-3)
    assert found.saving_joules == 0.0
    assert found.trainings_to_pay is None
