"""Fits of the law of a message: known laws are found, few observations suffice, and plans can use what comes out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.codec.values import KINDS
from fewjoules.physics.message_fit import ANY_PLAN, VALUE_KINDS, MessageObservation, fit_message_size
from fewjoules.physics.message_size import MessageSize, least_entry_bits

D = 55_210
TRUTH = {
    "float32": MessageSize(fixed_bits=250.0, scale=0.85, entry_bits=31.0),
    "int8": MessageSize(fixed_bits=120.0, scale=1.25, entry_bits=6.2),
    "two-bit": MessageSize(fixed_bits=260.0, scale=1.1, entry_bits=2.9),
    "ternary": MessageSize(fixed_bits=220.0, scale=1.05, entry_bits=2.0),
}


def seen(kind, *sparsities, weight=1.0):
    return [MessageObservation(kind, x, float(TRUTH[kind].bits(D, x)), weight) for x in sparsities]


def off(law, kind, sparsity):
    return abs(float(law.bits(D, sparsity) / TRUTH[kind].bits(D, sparsity)) - 1.0)


def test_every_kind_of_the_codec_has_a_prior():
    assert set(VALUE_KINDS) == set(KINDS)


def test_laws_that_made_the_messages_are_found():
    observations = [one for kind in TRUTH for one in seen(kind, 2.0, 5.0, 20.0, 100.0, 500.0)]
    fit = fit_message_size(D, observations, least=least_entry_bits(2.0))
    assert set(fit.laws) == set(TRUTH)
    assert fit.rms_relative_residual < 0.003
    for kind, law in fit.laws.items():
        assert max(off(law, kind, x) for x in np.geomspace(2.0, 1000.0, 30)) < 0.015


@pytest.mark.parametrize("kind", TRUTH)
def test_one_observation_is_met_and_its_neighbours_are_near(kind):
    law = fit_message_size(D, seen(kind, 40.0), least=least_entry_bits(2.0)).laws[kind]
    assert off(law, kind, 40.0) < 0.003
    assert max(off(law, kind, x) for x in (20.0, 80.0)) < 0.03


def test_observations_of_one_kind_inform_the_others():
    """Positions that are clustered more than usual make every kind shorter."""
    clustered = {
        "float32": MessageSize(fixed_bits=310.0, scale=0.53, entry_bits=50.0),
        "ternary": MessageSize(fixed_bits=260.0, scale=0.8, entry_bits=1.9),
    }

    def sent(kind, sparsity):
        return MessageObservation(kind, sparsity, float(clustered[kind].bits(D, sparsity)))

    one, others = [sent("ternary", 40.0)], [sent("float32", x) for x in (2.0, 5.0, 20.0, 100.0, 500.0)]
    errors = [
        abs(float(fit_message_size(D, known, least=0.0).laws["ternary"].bits(D, 5.0)) / sent("ternary", 5.0).bits - 1.0)
        for known in (one, one + others)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_heavier_observations_are_followed_more_closely():
    """Two messages of one sparsity that differ by 10 %."""
    light = MessageObservation("float32", 20.0, 100_000.0)
    heavy = MessageObservation("float32", 20.0, 110_000.0, weight=9.0)
    law = fit_message_size(D, [light, heavy]).laws["float32"]
    assert float(law.bits(D, 20.0)) == pytest.approx(108_800.0, rel=0.01)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(VALUE_KINDS), st.floats(2.0, 1e4), st.floats(1.0, 40.0), st.floats(0.1, 1e4)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([ANY_PLAN, least_entry_bits(2.0), least_entry_bits(4.0, 0.5, batteries=False)]),
)
def test_every_fit_gives_laws_that_plans_can_use(drawn, least):
    observations = [
        MessageObservation(kind, x, per_entry * D / x + 8.0, weight) for kind, x, per_entry, weight in drawn
    ]
    for law in fit_message_size(D, observations, least=least).laws.values():
        assert law.entry_bits >= least * (1.0 - 1e-12)
        assert math.isfinite(float(law.bits(D, 2.0)))


def test_a_law_that_plans_could_not_use_is_replaced_by_a_near_one():
    observations = seen("ternary", 20.0, 50.0, 200.0)
    free, usable = (fit_message_size(D, observations, least=least).laws["ternary"] for least in (0.0, ANY_PLAN))
    assert free.entry_bits < ANY_PLAN <= usable.entry_bits
    assert max(off(usable, "ternary", x) for x in (20.0, 50.0, 200.0)) < 0.03
    problem = {"rounds": fj.PaperRounds(alpha=1e-4, beta=100.0), "parameters": D, "sparsity": (1.0, 400.0)}
    fleet = fj.Fleet(joules_per_bit=[1e-8, 1e-7], joules_per_step=1e-3)
    plan = fj.solve(fj.ControlProblem(fleet=fleet, local_steps=range(1, 9), message=usable, **problem))
    assert plan.relative_gap <= 1e-9


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: MessageObservation("int8", 1.0, 1e5),
            "sparsity of int8 messages to fit must be a finite number at least 2",
        ),
        (lambda: MessageObservation("int4", 5.0, 1e5), "values must be one of float32, float16"),
        (lambda: MessageObservation("int8", 5.0, 0.0), "bits of a message must be a finite number above 0, got 0.0"),
        (lambda: MessageObservation("int8", 5.0, 9.0, weight=-1.0), "weight of an observation must be"),
        (lambda: fit_message_size(D, []), "a fit needs at least 1 observation, got none"),
        (lambda: fit_message_size(0, seen("int8", 5.0)), "parameters must be a whole number from 1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(make, says):
    with pytest.raises(fj.InvalidInputError) as caught:
        make()
    assert says in str(caught.value)
