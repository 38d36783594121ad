"""Plans with a law of the bits of a message: equivalent problems, optimality up to its condition, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.message_size import MessageSize, least_entry_bits
from tests import strategies
from tests.reference import planning as reference

CERTIFIED = 1e-9
few = settings(deadline=None, max_examples=25, derandomize=True)


def timed_fleet(**changes):
    costs = {
        "joules_per_bit": [1e-9, 2e-8],
        "joules_per_step": [1e-3, 2e-3],
        "message_joules": 1e-5,
        "seconds_per_bit": [1e-8, 2e-7],
        "seconds_per_step": 0.01,
        "message_seconds": 0.001,
        "downlink_joules_per_bit": [3e-10, 4e-9],
        "downlink_seconds_per_bit": 1e-9,
    }
    return fj.Fleet(**costs | changes)


def timed_problem(**changes):
    settings_ = {
        "fleet": timed_fleet(),
        "rounds": fj.PowerLawRounds(tau=138.8, c=0.0471, a=0.494, q=0.463),
        "parameters": 13_706,
        "sparsity": (2.0, 400.0),
        "local_steps": (1, 5, 20),
    }
    return fj.ControlProblem(**settings_ | changes)


def server(law):
    return fj.Downlink(sparsity=(2.0, 400.0), message=law)


def assert_same(first, second):
    """The same plan to rounding."""
    assert second.local_steps == first.local_steps
    np.testing.assert_allclose(second.sparsity, first.sparsity, rtol=1e-6)
    assert second.downlink_sparsity == pytest.approx(first.downlink_sparsity, rel=1e-6)
    for name in ("energy_joules", "lower_bound_joules", "seconds"):
        assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-9)


def formula_25(value_bits):
    return MessageSize(fixed_bits=0.0, scale=1.0, entry_bits=value_bits + 1.0)


@few
@given(strategies.problems())
def test_the_constants_of_formula_25_give_its_plans(problem):
    usual, given_ = (fj.solve(replace(problem, message=law)) for law in (None, formula_25(problem.value_bits)))
    assert given_.local_steps == usual.local_steps
    assert np.array_equal(given_.sparsity, usual.sparsity)
    assert given_.energy_joules == usual.energy_joules
    assert given_.lower_bound_joules == usual.lower_bound_joules


@few
@given(strategies.problems(), st.sampled_from([0.0, 1e-3, 0.1]), st.floats(0.3, 3.0))
def test_laws_at_the_edge_of_the_condition_are_planned_and_proved(problem, more, scale):
    """Below 2.886 bits of an entry where the least sparsity or the exponent allows it."""
    least = least_entry_bits(problem.sparsity[0], problem.rounds.exponent, batteries=False)
    edge = replace(problem, message=MessageSize(fixed_bits=300.0, scale=scale, entry_bits=least + more))
    plan, found = fj.solve(edge), reference.best(edge)
    assert plan.energy_joules == pytest.approx(found.energy_joules, rel=CERTIFIED)
    assert plan.lower_bound_joules <= found.energy_joules * (1 + 1e-12)
    assert plan.relative_gap <= CERTIFIED


@pytest.mark.parametrize("round_seconds", [None, 0.06])
@pytest.mark.parametrize("law", [MessageSize(entry_bits=9.0), MessageSize(fixed_bits=500.0, scale=0.8, entry_bits=4.0)])
def test_a_scale_is_a_price_of_bits(law, round_seconds):
    scaled = replace(law, scale=3.0 * law.scale)
    fleet = timed_fleet()
    dearer = fleet.changed(
        joules_per_bit=3.0 * fleet.joules_per_bit,
        seconds_per_bit=3.0 * fleet.seconds_per_bit,
        downlink_joules_per_bit=3.0 * fleet.downlink_joules_per_bit,
        downlink_seconds_per_bit=3.0 * fleet.downlink_seconds_per_bit,
    )
    third = replace(law, fixed_bits=law.fixed_bits / 3.0)
    assert_same(
        fj.solve(timed_problem(message=scaled, downlink=server(scaled), round_seconds=round_seconds)),
        fj.solve(timed_problem(fleet=dearer, message=third, downlink=server(third), round_seconds=round_seconds)),
    )


def fleet_with_points(devices=6, points=3):
    """More choices of points than are solved one by one."""
    rng = np.random.default_rng(4)
    joules = 10.0 ** rng.uniform(-4, -3, (points, devices))
    found = fj.OperatingPoints.of(joules, 1e-6 / joules)
    bits = {
        "joules_per_bit": 10.0 ** rng.uniform(-8, -6, devices),
        "seconds_per_bit": 10.0 ** rng.uniform(-8, -6, devices),
    }
    return fj.Fleet(**bits, **found.at(found.cheapest()), operating_points=found)


def fleet_with_battery():
    fleet = timed_fleet(joules_per_bit=[1e-7, 1e-6], downlink_joules_per_bit=None, downlink_seconds_per_bit=None)
    free = timed_problem(fleet=fleet, message=MessageSize(scale=4.0, entry_bits=8.0))
    plan = fj.solve(free)
    spent = plan.rounds * free.round_joules(plan.local_steps, plan.sparsity)
    return fleet.changed(battery_joules=[np.inf, 0.98 * spent[1]])


@pytest.mark.parametrize(
    ("fleet", "round_seconds"), [(fleet_with_points(), 0.05), (fleet_with_battery(), None)], ids=["points", "battery"]
)
def test_a_scale_is_a_price_of_bits_to_the_last_tangent(fleet, round_seconds):
    """A scale of 4 changes no digit of the arithmetic, so that the searches take the same way too."""
    dearer = fleet.changed(joules_per_bit=4.0 * fleet.joules_per_bit, seconds_per_bit=4.0 * fleet.seconds_per_bit)
    scaled = timed_problem(
        fleet=fleet, message=MessageSize(scale=4.0, entry_bits=8.0), round_seconds=round_seconds, local_steps=[5, 20]
    )
    plan, same = fj.solve(scaled), fj.solve(replace(scaled, fleet=dearer, message=MessageSize(entry_bits=8.0)))
    assert np.any((plan.sparsity > 2.0) & (plan.sparsity < 400.0))
    assert plan.lower_bound_joules == same.lower_bound_joules
    assert plan.energy_joules == same.energy_joules
    assert plan.effort == same.effort


@pytest.mark.parametrize("round_seconds", [None, 0.06])
@pytest.mark.parametrize("share", [None, 0.98])
def test_fixed_bits_are_costs_of_a_message(round_seconds, share):
    """Also within a battery that holds a share of what the second device would spend without it."""
    law = MessageSize(scale=0.9, entry_bits=8.0)
    fixed = replace(law, fixed_bits=700.0)
    fleet = timed_fleet(joules_per_bit=[1e-7, 1e-6])
    if share is not None:
        free = timed_problem(fleet=fleet, message=fixed, downlink=server(fixed), round_seconds=round_seconds)
        plan = fj.solve(free)
        spent = plan.rounds * free.round_joules(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
        fleet = fleet.changed(battery_joules=[np.inf, share * spent[1]])
    longer = fleet.with_message_bits(700.0)
    with_bits = timed_problem(fleet=fleet, message=fixed, downlink=server(fixed), round_seconds=round_seconds)
    without = timed_problem(fleet=longer, message=law, downlink=server(law), round_seconds=round_seconds)
    assert_same(fj.solve(with_bits), fj.solve(without))


def test_joules_of_a_round_are_those_of_its_kinds():
    law = MessageSize(fixed_bits=5000.0, scale=0.9, entry_bits=8.0)
    problem = timed_problem(message=law, downlink=server(replace(law, fixed_bits=900.0)))
    kinds = problem.round_costs.joules_by_kind(5, 20.0, 30.0)
    np.testing.assert_allclose(sum(kinds.values()), problem.round_joules(5, 20.0, 30.0), rtol=1e-12)
    bits = reference.message_bits(problem, 20.0)
    np.testing.assert_allclose(kinds["uplink"], problem.fleet.joules_per_bit * bits + 1e-5, rtol=1e-12)


def test_the_server_has_a_law_of_its_own():
    cheap, dear = MessageSize(entry_bits=3.0), MessageSize(entry_bits=40.0)
    plans = [fj.solve(timed_problem(message=dear, downlink=server(law))) for law in (cheap, dear)]
    assert plans[0].downlink_sparsity < plans[1].downlink_sparsity
    assert timed_problem(message=cheap).server.message_size == formula_25(32)


def test_cheaper_entries_are_sent_more_often():
    fleet = timed_fleet(joules_per_bit=[2e-7, 4e-7])
    problem = timed_problem(fleet=fleet, local_steps=[5])
    plans = [fj.solve(replace(problem, message=MessageSize(entry_bits=bits))) for bits in (3.0, 33.0)]
    assert np.all(plans[0].sparsity < plans[1].sparsity)
    assert plans[0].energy_joules < plans[1].energy_joules


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sparsity": (1.0, 400.0)}, "entry_bits of messages must be at least 2.429 for sparsities from 1 on, got 2.0"),
        ({"fleet": timed_fleet(battery_joules=5.0), "sparsity": (1.5, 400.0)}, "at least 2.301 for sparsities"),
        (
            {"downlink": fj.Downlink(sparsity=(1.0, 9.0), message=MessageSize(entry_bits=1.0))},
            "entry_bits of the server's messages must be at least 2.429 for sparsities from 1 on, got 1.0",
        ),
        ({"message": 33.0}, "message must be a MessageSize or None, got 33.0"),
    ],
)
def test_a_law_whose_plans_could_not_be_proved_is_refused(changes, says):
    law = MessageSize(entry_bits=2.0)
    assert math.isfinite(fj.solve(timed_problem(message=law)).energy_joules), "from sparsity 2 on it is a good law"
    with pytest.raises(fj.InvalidInputError) as caught:
        timed_problem(**{"message": law} | changes)
    assert says in str(caught.value)


@pytest.mark.parametrize("entry_bits", [1.2, 1.6, 2.0])
@pytest.mark.parametrize("changes", [{}, {"battery_joules": 1e3}])
def test_schemes_without_sparsity_need_no_condition(entry_bits, changes):
    law = MessageSize(fixed_bits=300.0, entry_bits=entry_bits)
    downlink = fj.Downlink(sparsity=(4.0, 400.0), message=law)
    problem = timed_problem(fleet=timed_fleet(**changes), message=law, downlink=downlink, sparsity=(4.0, 400.0))
    plan = fj.schemes.fedavg(problem)
    assert plan.sparsity.tolist() == [1.0, 1.0]
    assert plan.downlink_sparsity == 1.0
    energies = [problem.costs(H, 1.0, 1.0).energy_joules for H in problem.local_steps]
    assert plan.energy_joules == pytest.approx(min(energies), rel=1e-12)
    assert plan.lower_bound_joules == pytest.approx(min(energies), rel=1e-9)
