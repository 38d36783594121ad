"""What plain SGD tries where no step size helps, and where one far below the first does."""

import math

import pytest

from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import PLAIN
from fewjoules.tuning.race import MOST_HARMFUL, SHORTEST_HEAT, Race
from tests.tuning.curves import result_of, spec_of

START_LOSS = 1.0


def race_of(loss_after):
    """A race whose arms end a heat with ``loss_after(step size, local steps)``, of which it keeps all trainings."""
    trained = []

    def follow(arms, steps):
        trained.extend((arm.rate, steps) for arm in arms)
        specs = [spec_of(options={"learning_rate": arm.rate}, local_steps=1, steps=steps) for arm in arms]
        losses = [loss_after(arm.rate, steps) for arm in arms]
        return [
            result_of([steps], [loss], spec=spec, diverged=not loss < 10.0)
            for spec, loss in zip(specs, losses, strict=True)
        ]

    aim = Aim("loss", 0.2)
    return Race(follow, aim, START_LOSS, START_LOSS, SHORTEST_HEAT), trained


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
