import pytest

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.tuning.arms import ADAM_RATES, AVERAGING, DENSE, MANY_STEPS, PLAIN, optimisers
from fewjoules.tuning.planning import MESSAGES

ALL = [PLAIN, *optimisers(1, 1.0), *optimisers(1, 100.0)]


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("optimiser", ALL, ids=lambda one: one.name)
def test_training_accepts_every_optimiser_with_every_kind_of_messages(optimiser, kind):
    given = dict(optimiser.options) | dict(MESSAGES[kind].options) | {"learning_rate": optimiser.first_rate(0.1)}
    options = TrainingOptions.of(**given, local_steps=5, sparsity=8.0, rounds=3, seed=0)
    assert all(getattr(options, name) == value for name, value in given.items())


def test_momentum_is_kept_where_messages_would_clear_most_of_it():
    states = {
        sparsity: [one.options["momentum_state"] for one in optimisers(1, sparsity) if "momentum_state" in one.options]
        for sparsity in (1.0, 0.99 * DENSE, DENSE, 100.0)
    }
    assert list(states.values()) == [["kept"], ["kept"], ["cleared"], ["cleared"]]


def test_names_tell_optimisers_apart():
    for sparsity in (1.0, 100.0):
        names = [one.name for one in (PLAIN, *optimisers(1, sparsity))]
        assert len(set(names)) == len(names)


def test_adam_begins_at_a_step_size_of_its_own_and_others_below_plain_sgd():
    for local_steps, own in ((1, 0), (MANY_STEPS - 1, 0), (MANY_STEPS, 1)):
        rates = {one.name: one.first_rate(0.3) for one in optimisers(local_steps, 100.0)}
        assert rates.pop("client Adam") == ADAM_RATES[own]
        assert all(0.0 < rate < 0.3 for rate in rates.values())
    assert PLAIN.first_rate(0.3) == 0.3


def test_all_but_plain_sgd_hand_out_the_mean_of_recent_models():
    averaging = {one.name: one.options_for(3)["averaging"] for one in ALL}
    assert averaging.pop(PLAIN.name) == 0.0
    assert set(averaging.values()) == {AVERAGING}
