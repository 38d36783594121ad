"""The winner of the race as the measure of pilots at other plans and of other optimisers."""

import dataclasses
from types import SimpleNamespace

import pytest

from fewjoules.tuning.arms import PLAIN, optimisers
from fewjoules.tuning.race import Arm
from fewjoules.tuning.reference import Reference
from tests.tuning.curves import result_of, spec_of

PILOT = result_of([10, 20, 30, 60, 90], [2.0, 1.5, 1.2, 0.8, 0.5])


def reference_of(pilot=PILOT, steps=90.0, optimiser=PLAIN):
    return Reference(Arm(optimiser, 0.4), SimpleNamespace(local_steps=4), pilot, steps)


def test_the_level_is_the_loss_after_a_third_of_the_steps():
    assert reference_of().level == 1.2


def test_the_level_is_the_first_loss_where_a_third_of_the_steps_comes_before_it():
    assert reference_of(steps=12.0).level == 2.0


def test_twice_the_steps_to_the_level_are_twice_the_steps_to_the_target():
    assert reference_of().steps_to_target(60.0) == pytest.approx(180.0)


def test_the_step_size_falls_with_the_root_of_local_steps_but_for_adam():
    adam = next(one for one in optimisers(1, 100.0) if "Adam" in one.name)
    plan = SimpleNamespace(local_steps=16)
    assert reference_of().rate_at(plan) == pytest.approx(0.2)
    assert reference_of(optimiser=adam).rate_at(plan) == pytest.approx(0.4)


def test_a_pilot_that_took_twice_the_steps_to_its_loss_has_half_the_pace():
    slow = result_of([20, 40, 60], [2.0, 1.5, 1.2])
    assert reference_of().pace_of(slow, 2.3) == pytest.approx(2.0)


def test_before_the_first_evaluation_the_loss_falls_by_a_power_from_the_untrained_model():
    start, level = 2.5, (2.5 * 2.0) ** 0.5  # half of the way in the logarithm, so half of the first 10 steps
    assert reference_of().pace_of(result_of([20], [level]), start) == pytest.approx(4.0)


def test_a_loss_below_zero_falls_by_differences():
    winner = result_of([10, 20, 30], [-1.0, -1.5, -2.0])
    for start in (0.5, -0.5):
        half = result_of([20], [(start - 1.0) / 2.0])
        assert reference_of(winner).pace_of(half, start) == pytest.approx(4.0)


def test_the_pace_of_a_pilot_that_learnt_nothing_is_unknown():
    assert reference_of().pace_of(result_of([20], [2.6]), 2.5) is None


def test_a_pilot_whose_loss_falls_below_the_winners_is_judged_where_it_passes_the_winners_least():
    longer = result_of([60, 180, 360], [1.5, 0.5, 0.1])
    assert reference_of().pace_of(longer, 2.5) == pytest.approx(2.0)


def test_sizes_are_told_by_the_longest_pilots_of_the_winners_optimiser():
    own = spec_of(options={**PLAIN.options, "learning_rate": 0.4})
    other = spec_of(options={**optimisers(1, 100.0)[0].options, "learning_rate": 0.4})
    sparser = spec_of(options=own.options, sparsity=(50.0, 50.0))
    short, long, brief, foreign = (
        result_of([steps], [1.0], spec=one) for steps, one in ((20, own), (90, own), (10, sparser), (90, other))
    )
    level = result_of([30], [1.2], spec=sparser)
    diverged = result_of([90], [1.0], spec=spec_of(options=own.options, local_steps=2), diverged=True)
    assert reference_of().telling([short, long, brief, foreign, diverged]) == [long]
    assert reference_of().telling([long, short, level]) == [long, level]


def test_beside_the_winner_are_the_pilots_of_its_plan_batch_and_start():
    own = spec_of(options={"inner": "adamw", "learning_rate": 0.01, "batch_size": 32})
    fields = {"local_steps": 10}, {"sparsity": (8.0, 9.0)}, {"downlink_sparsity": 2.0}, {"start": 1}
    others = [dataclasses.replace(own, **changed) for changed in fields]
    others += [dataclasses.replace(own, options=own.options | {"batch_size": batch}) for batch in (16, None)]
    rival = dataclasses.replace(own, options={"inner": "sgd", "learning_rate": 0.4, "batch_size": 32}, steps=40)
    results = [result_of([10], [2.0], spec=spec) for spec in (*others, rival, own)]
    assert reference_of(results[-1]).beside(results) == results[-2:]
