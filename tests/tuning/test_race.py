"""What is tried where no step size helps, or one far below the first does, of plain SGD and of Adam."""

import math

import pytest

from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import PLAIN
from fewjoules.tuning.race import MOST_HARMFUL, SHORTEST_HEAT, STEP, Race
from tests.tuning.curves import result_of, spec_of

START_LOSS = 1.0


def race_of(loss_after):
    """A race whose arms end a heat with ``loss_after(step size, local steps)``, of which it keeps all trainings."""
    trained = []

    def loss_of(arm, steps):
        trained.append((arm.rate, steps))
        return loss_after(arm.rate, steps)

    return race_with(loss_of), trained


def race_with(loss_of, accuracy_of=None):
    """A race to a loss or an accuracy, whose arms end a heat with ``loss_of(arm, local steps)``."""

    def follow(arms, steps):
        found = []
        for arm in arms:
            spec = spec_of(options={"learning_rate": arm.rate}, local_steps=1, steps=steps)
            loss = loss_of(arm, steps)
            metrics = None if accuracy_of is None else [accuracy_of(arm)]
            found.append(result_of([steps], [loss], metrics, spec=spec, diverged=not loss < 10.0))
        return found

    aim, start = (Aim("loss", 0.2), START_LOSS) if accuracy_of is None else (Aim("accuracy", 0.9), 0.1)
    return Race(follow, aim, start, START_LOSS, SHORTEST_HEAT)


def loss_of_a_transformer(arm, steps):
    """Adam learns at step sizes about 0.001 only, and stands still at larger ones."""
    if arm.optimiser.name == "client Adam" and not 0.0005 < arm.rate <= 0.0025:
        return 0.9
    return {"client Adam": 0.2, "SGD": 0.6}.get(arm.optimiser.name, 0.8)


def rates_of_adam(race):
    return {arm.rate for arm in race.results if arm.optimiser.name == "client Adam"}


@pytest.mark.parametrize("most", [2, 3, 4])
def test_where_every_step_size_raises_the_loss_few_are_tried_and_no_long_heats_are_held(most):
    race, trained = race_of(lambda rate, steps: START_LOSS + rate * steps / 100.0)
    race.run_plain(0.1, most)
    assert len(trained) <= 2 * MOST_HARMFUL
    assert min(rate for rate, _ in trained) > 1e-4
    assert max(steps for _, steps in trained) <= 16 * SHORTEST_HEAT


@pytest.mark.parametrize("best", [1e-3, 3e-4])
def test_a_step_size_far_below_the_first_is_found_where_larger_ones_raise_the_loss(best):
    def loss_after(rate, steps):
        return (
            0.1 + 0.9 * math.exp(-steps / 200.0)
            if 0.5 < rate / best <= 2.0
            else START_LOSS + 0.1 * math.log(1.0 + rate)
        )

    race, _ = race_of(loss_after)
    race.run_plain(100.0 * best / 2.0, 4)
    assert 0.5 < race.ranked()[0].rate / best <= 2.0
    assert race.ranked()[0].optimiser == PLAIN


@pytest.mark.parametrize("longer", [False, True])
def test_adam_that_plain_sgd_leaves_behind_tries_a_quarter_of_its_step_size(longer):
    race = race_with(loss_of_a_transformer)
    race.run_plain(0.1, 4)
    race.run_others(4, longer=longer)
    assert len(rates_of_adam(race)) == 2
    assert max(rates_of_adam(race)) == STEP**2 * min(rates_of_adam(race))
    assert race.ranked()[0].optimiser.name == "client Adam"


def test_adam_with_a_larger_loss_and_a_better_accuracy_than_plain_sgd_is_not_left_behind():
    race = race_with(loss_of_a_transformer, lambda arm: 0.6 if arm.optimiser.name == "client Adam" else 0.5)
    race.run_plain(0.1, 4)
    race.run_others(4, longer=True)
    assert len(rates_of_adam(race)) == 1
