"""Arms that train from the weights of the race only: found by pilots from other starts, and replaced."""

import math
from dataclasses import replace

import pytest

from fewjoules.tuning.pilot import PilotSpec
from fewjoules.tuning.race import STEP
from tests.tuning.worlds import SyntheticLaboratory, World, name_of, tuner_of


class OneLuckyStart(SyntheticLaboratory):
    """Blows up from every start but 0 above a step size of each optimiser."""

    def __init__(self, world, safe):
        super().__init__(world)
        self.safe = safe

    def train(self, spec):
        if spec.start and spec.learning_rate > self.safe.get(name_of(spec.options), math.inf):
            return self._result(spec, 1, [], reached=False, diverged=True)
        return super().train(spec)


def quiet(seed):
    return replace(World.random(seed, "cheap bits"), edge_deviation=0.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_step_size_that_only_one_start_survives_is_not_chosen(seed):
    world = quiet(seed)
    chosen = tuner_of(world).tune()
    name, rate = name_of(chosen.optimiser_options), chosen.optimiser_options["learning_rate"]
    safe = {other: 0.7 * rate if other == name else math.inf for other in world.optimisers}
    steady = tuner_of(world, laboratory=OneLuckyStart(world, safe)).tune()
    assert steady.optimiser_options["learning_rate"] <= safe[name_of(steady.optimiser_options)]
    assert any("blew up from other weights or batches" in note for note in steady.notes)
    halved = [one.spec for one in steady.pilots if name_of(one.spec.options) == name]
    assert min(one.learning_rate for one in halved) <= rate / STEP * (1.0 + 1e-9)


def test_pilots_from_other_starts_are_short_and_few():
    world = quiet(3)
    tuned = tuner_of(world).tune()
    others = [one for one in tuned.pilots if one.spec.start]
    assert 1 <= len(others) <= 6
    longest = max(one.local_steps_taken for one in tuned.pilots)
    assert all(one.local_steps_taken <= longest for one in others)
    assert {one.spec.start for one in others} <= {1, 2}


def test_another_start_is_another_training():
    spec = PilotSpec(options={"learning_rate": 0.1}, local_steps=1, sparsity=(1.0,), steps=10)
    assert spec.training_key != replace(spec, start=1).training_key
