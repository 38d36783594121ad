"""Plans with downlink, tails and operating points against brute force on a literal objective."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import optimize

import fewjoules as fj
from fewjoules import Downlink, OperatingPoints
from fewjoules.physics.message_size import MessageSize
from fewjoules.planner.partial import with_participants
from fewjoules.planner.schemes import SCHEMES
from fewjoules.tuning.planning import MESSAGES, FleetPlanning
from tests import strategies
from tests.reference import planning as reference


def bits(parameters, delta, sender):
    fixed, scale, kappa = reference.message_law(sender)
    return fixed + scale * parameters / delta * (math.log2(delta) + kappa)


def tail(fleet, m, gap, download):
    """The radio's power over one round, event by event."""
    watts, seconds, wake = float(fleet.tail_watts[m]), float(fleet.tail_seconds[m]), float(fleet.promotion_joules[m])
    joules, up_until = 0.0, -math.inf
    for time in ([0.0] if download else []) + [gap]:
        joules += wake if time >= up_until else -watts * (up_until - time)
        joules, up_until = joules + watts * seconds, time + seconds
    return joules


def after_absences(sparsity, participation):
    """Mean sparsity of what a device lacks: its absences are geometric, and each round changes random entries."""
    entries, chance, gap = 0.0, participation, 1
    while chance * (gap + 1.0 / participation) > 1e-17:
        entries += chance * (1.0 - (1.0 - 1.0 / sparsity) ** gap)
        chance, gap = chance * (1.0 - participation), gap + 1
    return max(1.0, 1.0 / entries)


def step_costs(fleet, m, point):
    if fleet.operating_points is None:
        seconds = 0.0 if fleet.seconds_per_step is None else float(fleet.seconds_per_step[m])
        return float(fleet.joules_per_step[m]), seconds
    points = fleet.operating_points
    return float(points.joules_per_step[point, m]), float(points.seconds_per_step[point, m])


def round_of(problem, H, sparsity, server, chosen):
    """Joules and seconds of each device in a round, written out."""
    fleet, d = problem.fleet, problem.parameters
    joules, seconds = [], []
    for m, delta in enumerate(sparsity):
        per_step, time = step_costs(fleet, m, chosen[m])
        spent = float(fleet.joules_per_bit[m]) * bits(d, delta, problem) + float(fleet.message_joules[m])
        spent += H * per_step + tail(fleet, m, H * time, server is not None)
        takes = H * time + float(fleet.message_seconds[m])
        takes += 0.0 if fleet.seconds_per_bit is None else float(fleet.seconds_per_bit[m]) * bits(d, delta, problem)
        if server is not None:
            held = after_absences(server, problem.server.participation)
            received = bits(d, held, problem.server)
            spent += float(fleet.downlink_joules_per_bit[m]) * received + float(fleet.downlink_message_joules[m])
            if fleet.downlink_seconds_per_bit is not None:
                takes += float(fleet.downlink_seconds_per_bit[m]) * received + float(fleet.downlink_message_seconds[m])
        if fleet.codec_joules_per_parameter is not None:
            entries = d / delta + (0.0 if server is None else d / held)
            spent += float(fleet.codec_joules_per_parameter[m]) * d
            spent += float(fleet.codec_joules_per_entry[m]) * entries
            takes += float(fleet.codec_seconds_per_entry[m]) * entries
        joules.append(spent)
        seconds.append(takes)
    return joules, seconds


def energy(problem, H, sparsity, server, chosen):
    """Rounds times joules of a round, and whether the deadline is kept."""
    q = reference.power(problem.rounds)
    power = reference.mean_power(problem.rounds, sparsity)
    if server is not None:
        power += problem.server.weight * (server**q - 1.0)
    joules, seconds = round_of(problem, H, sparsity, server, chosen)
    in_time = problem.round_seconds is None or max(seconds) <= problem.round_seconds * (1 + 1e-9)
    return reference.rounds_at(problem.rounds, power, H, len(sparsity)) * math.fsum(joules), in_time


def best_by_hand(problem, starts=3):
    """The least energy found by a general-purpose solver from several starts, for every H and choice of points."""
    low, high = (math.log(x) for x in problem.sparsity)
    bounds = [(low, high)] * problem.devices
    if problem.server is not None:
        bounds.append(tuple(math.log(x) for x in problem.server.sparsity))
    points = problem.fleet.operating_points
    options = [[None]] * problem.devices
    if points is not None:
        options = [np.flatnonzero(np.isfinite(column)).tolist() for column in points.joules_per_step.T]
    rng, best = np.random.default_rng(0), math.inf
    for H, chosen in itertools.product(problem.step_choices.tolist(), itertools.product(*options)):

        def value(x, H=H, chosen=chosen):
            server = math.exp(x[-1]) if problem.server is not None else None
            found, in_time = energy(problem, H, [math.exp(one) for one in x[: problem.devices]], server, chosen)
            return math.log(found) if in_time else 50.0 + math.log(found)

        for start in range(starts):
            share = np.full(len(bounds), 0.99) if start == 0 else rng.random(len(bounds))
            x0 = [low + s * (high - low) for s, (low, high) in zip(share, bounds, strict=True)]
            method = "L-BFGS-B" if problem.round_seconds is None else "Nelder-Mead"
            found = optimize.minimize(
                value,
                x0,
                bounds=bounds,
                method=method,
                options={} if method == "L-BFGS-B" else {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000},
            )
            best = min(best, math.exp(found.fun) if found.fun < 49.0 else math.inf)
    return best


def fleet_of(rng, devices, *, points=0, tails=True, downlink=True, times=True):
    def some(low, high):
        return 10.0 ** rng.uniform(low, high, devices)

    costs = {
        "joules_per_bit": some(-7, -4),
        "joules_per_step": some(-4, -1),
        "message_joules": some(-3, -1),
        "seconds_per_step": some(-3, 0),
        "message_seconds": some(-3, -1),
        "seconds_per_bit": some(-8, -6) if times else None,
        "codec_joules_per_parameter": some(-9, -7),
        "codec_joules_per_entry": some(-7, -4),
        "codec_seconds_per_entry": some(-8, -6),
    }
    if downlink:
        costs |= {"downlink_joules_per_bit": some(-8, -5), "downlink_message_joules": some(-3, -1)}
        costs |= {"downlink_seconds_per_bit": some(-9, -7), "downlink_message_seconds": some(-3, -2)}
    if tails:
        costs |= {"tail_watts": some(-2, 0), "tail_seconds": some(-1, 1), "promotion_joules": some(-2, 0)}
    if points:
        joules = costs["joules_per_step"] * rng.uniform(0.5, 3.0, (points, devices))
        seconds = costs["seconds_per_step"] * np.median(joules, axis=0) / joules * rng.uniform(0.8, 1.2, joules.shape)
        found = OperatingPoints.of(joules, seconds)
        costs |= {"operating_points": found} | found.at(found.cheapest())
    return fj.Fleet(**costs)


LAW = fj.PowerLawRounds(tau=164.3, c=0.0221, a=0.568, q=0.564)


def problem_of(rng, devices, *, steps=(1, 3, 10, 30), round_seconds=None, weight=1.0, laws=(None, None), **kinds):
    fleet = fleet_of(rng, devices, **kinds)
    downlink = None
    if fleet.has_downlink:
        downlink = Downlink(sparsity=(1.0, 400.0), weight=weight, message=laws[1])
    return fj.ControlProblem(
        fleet=fleet,
        rounds=LAW,
        parameters=13_706,
        sparsity=(1.0, 400.0),
        local_steps=steps,
        round_seconds=round_seconds,
        downlink=downlink,
        message=laws[0],
    )


laws = st.none() | strategies.message_sizes()


@pytest.mark.parametrize("values", MESSAGES)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.sampled_from(tuple(MESSAGES)))
def test_every_kind_of_values_from_the_server_is_planned_to_the_certified_optimum(values, seed, message):
    planning = FleetPlanning(problem_of(np.random.default_rng(seed), 2)).at_downlink(values)
    problem, plan = planning.problem_of(LAW, message), planning.plan(LAW, message)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.relative_gap <= 1e-9
    assert plan.energy_joules <= best_by_hand(problem) * (1 + 1e-9)


def chosen_of(plan):
    return [None] * plan.sparsity.size if plan.operating_points is None else plan.operating_points.tolist()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(1, 3), st.floats(0.05, 5.0), st.tuples(laws, laws))
def test_downlink_and_tails_are_planned_to_the_certified_optimum(seed, devices, weight, laws):
    problem = problem_of(np.random.default_rng(seed), devices, weight=weight, laws=laws)
    plan = fj.solve(problem)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.relative_gap <= 1e-9
    assert plan.energy_joules <= best_by_hand(problem) * (1 + 1e-9)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(2, 3), st.sampled_from([0.05, 1.0, 5.0]), laws, st.data())
def test_what_devices_miss_while_they_are_away_is_planned_to_the_certified_optimum(seed, devices, weight, law, data):
    whole = problem_of(np.random.default_rng(seed), devices, weight=weight, laws=(None, law), steps=(1, 10))
    participants = data.draw(st.integers(1, devices - 1))
    problem = with_participants(whole, participants, law_participation=participants / devices)
    plan = fj.solve(problem)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.relative_gap <= 1e-9
    assert plan.energy_joules <= best_by_hand(problem, starts=2) * (1 + 1e-9)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(1, 2), st.booleans())
def test_operating_points_without_a_deadline_are_proved(seed, devices, tails):
    problem = problem_of(np.random.default_rng(seed), devices, points=3, tails=tails, steps=(1, 5, 25))
    plan = fj.solve(problem)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.relative_gap <= 2e-9
    assert plan.energy_joules <= best_by_hand(problem, starts=2) * (1 + 1e-8)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.floats(0.2, 0.9), laws)
def test_points_sparsity_and_h_are_chosen_together_under_a_deadline(seed, share, law):
    rng = np.random.default_rng(seed)
    free = problem_of(rng, 2, points=3, downlink=False, steps=(2, 10), laws=(law, None))
    slowest = free.device_seconds(2, 20.0).max()
    problem = replace(free, round_seconds=float(slowest * (1.0 + share)))
    plan = fj.solve(problem)
    literal, in_time = energy(problem, plan.local_steps, plan.sparsity, None, chosen_of(plan))
    assert in_time
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.relative_gap <= 1e-8, "two devices with three points are solved point by point"
    assert plan.energy_joules <= best_by_hand(problem, starts=2) * (1 + 1e-5)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.none() | st.just(MessageSize(fixed_bits=900.0, scale=5.0, entry_bits=9.0)))
def test_many_devices_with_points_have_a_bound_that_holds_and_a_small_gap(seed, law):
    """14 devices with 3 points have 4.8 million choices of points; random ones never beat the bound or the plan."""
    rng = np.random.default_rng(seed)
    free = problem_of(rng, 14, points=3, downlink=False, steps=(2, 10), laws=(law, None))
    problem = replace(free, round_seconds=float(free.device_seconds(2, 20.0).max() * 1.3))
    plan = fj.solve(problem)
    _, in_time = energy(problem, plan.local_steps, plan.sparsity, None, chosen_of(plan))
    assert in_time
    assert plan.lower_bound_joules <= plan.energy_joules
    assert plan.relative_gap <= 0.02
    from fewjoules.planner.choosing_points import at_points

    for _ in range(20):
        chosen = rng.integers(0, 3, 14)
        try:
            other = fj.solve(at_points(problem, chosen))
        except fj.InfeasiblePlanError:
            continue
        assert other.energy_joules >= plan.lower_bound_joules
        assert other.energy_joules >= plan.energy_joules * (1 - 1e-9)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.floats(0.3, 1.5), st.tuples(laws, laws))
def test_a_deadline_is_shared_with_the_download(seed, share, laws):
    free = problem_of(np.random.default_rng(seed), 2, steps=(2, 10), laws=laws)
    quickest = free.device_seconds(2, 400.0, 400.0).max()
    problem = replace(free, round_seconds=float(quickest * (1.0 + share)))
    plan = fj.solve(problem)
    literal, in_time = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert in_time
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    by_hand = best_by_hand(problem, starts=4)
    assert plan.lower_bound_joules <= by_hand * (1 + 1e-9)
    assert plan.energy_joules <= by_hand * 1.001, "the search over the server's sparsity comes close"


def test_batteries_pay_for_tails_and_the_downlink():
    law = MessageSize(fixed_bits=2000.0, scale=0.9, entry_bits=3.0)
    problem = problem_of(np.random.default_rng(3), 4, laws=(law, law))
    plan = fj.solve(problem)
    spent = plan.rounds * problem.round_joules(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    columns = {name: getattr(problem.fleet, name) for name in fj.Fleet.__slots__}
    tight = np.full(4, np.inf)
    tight[0] = 0.99 * spent[0]
    limited = replace(problem, fleet=fj.Fleet(**columns | {"battery_joules": tight}))
    within = fj.solve(limited)
    joules, _ = round_of(limited, within.local_steps, within.sparsity, within.downlink_sparsity, chosen_of(within))
    assert within.rounds * joules[0] <= tight[0] * (1 + 1e-9)
    assert within.lower_bound_joules <= within.energy_joules
    assert within.energy_joules >= plan.lower_bound_joules


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_charged_for_everything(scheme):
    laws = MessageSize(fixed_bits=250.0, scale=1.1, entry_bits=3.0), MessageSize(fixed_bits=99.0, entry_bits=9.0)
    problem = problem_of(np.random.default_rng(5), 3, laws=laws)
    plan = SCHEMES[scheme](problem)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    told = sum(value for split in plan.joules.values() for value in split.values())
    assert told == pytest.approx(plan.energy_joules, rel=1e-12)
    assert set(plan.joules) == {"uplink", "downlink", "tail", "compute", "codec"}


def test_algorithm_2_knows_no_downlink_but_is_charged_for_it():
    law = MessageSize(fixed_bits=2000.0, scale=0.9, entry_bits=3.0)
    problem = problem_of(np.random.default_rng(7), 3, laws=(law, law))
    plan, best = SCHEMES["flexible"](problem, solver="benders"), fj.solve(problem)
    literal, _ = energy(problem, plan.local_steps, plan.sparsity, plan.downlink_sparsity, chosen_of(plan))
    assert plan.energy_joules == pytest.approx(literal, rel=1e-12)
    assert plan.energy_joules >= best.lower_bound_joules


def test_without_its_costs_the_downlink_is_free_and_the_plan_the_old_one():
    problem = problem_of(np.random.default_rng(9), 3, downlink=False, tails=False)
    assert problem.server is None
    assert fj.solve(problem).downlink_sparsity is None


def test_a_server_whose_sparsity_delays_nothing_sends_the_least():
    problem = problem_of(np.random.default_rng(11), 3, weight=0.0)
    assert fj.solve(problem).downlink_sparsity == 400.0


def test_a_heavier_server_sends_more():
    chosen = [fj.solve(problem_of(np.random.default_rng(13), 3, weight=w)).downlink_sparsity for w in (0.05, 0.5, 5.0)]
    assert 400.0 > chosen[0] > chosen[1] > chosen[2] > 1.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"downlink": "cheap"}, "downlink must be 'free' or a Downlink, got 'cheap'"),
        ({"downlink": Downlink(sparsity=(20_000.0, 30_000.0))}, "number of parameters 13706, got 20000"),
    ],
)
def test_a_downlink_that_cannot_be_is_refused(changes, says):
    with pytest.raises(fj.InvalidInputError, match=says):
        replace(problem_of(np.random.default_rng(0), 2), **changes)


def test_limits_of_a_downlink_must_be_two():
    with pytest.raises(fj.InvalidInputError, match=r"downlink sparsity must be a pair \(min, max\), got 5"):
        Downlink(sparsity=5)


def test_points_of_another_shape_are_refused():
    with pytest.raises(fj.InvalidInputError, match=r"shape \(points, devices\)"):
        OperatingPoints.of([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(fj.InvalidInputError, match="got none of device 1"):
        OperatingPoints.of([[1.0, np.inf]], [[1.0, 1.0]])
    points = OperatingPoints.of([[1.0, 2.0]], [[1.0, 1.0]])
    with pytest.raises(fj.InvalidInputError, match="must have 3 entries"):
        fj.Fleet(joules_per_bit=[1.0] * 3, joules_per_step=1.0, operating_points=points)


def test_a_plan_counts_the_samples_of_a_batch():
    fleet = fj.Fleet(
        joules_per_bit=[1e-7, 2e-7],
        joules_per_step=[0.1, 0.2],
        joules_per_sample=[0.01, 0.02],
        seconds_per_step=1.0,
        seconds_per_sample=0.5,
    )
    with pytest.warns(fj.FewJoulesWarning, match="leaves out joules_per_sample"):
        fj.ControlProblem(fleet=fleet, rounds=LAW, parameters=100, sparsity=(1, 10), local_steps=[1])
    batch = fleet.with_batch(16)
    np.testing.assert_allclose(batch.joules_per_step, [0.26, 0.52])
    np.testing.assert_allclose(batch.seconds_per_step, [9.0, 9.0])
    assert batch.joules_per_sample is None


def test_entries_of_a_device_whose_bits_take_no_time_still_take_theirs():
    fleet = fj.Fleet(
        joules_per_bit=1e-6,
        joules_per_step=0.1,
        seconds_per_bit=0.0,
        seconds_per_step=0.1,
        codec_seconds_per_entry=1e-3,
    )
    free = fj.ControlProblem(fleet=fleet, rounds=LAW, parameters=10_000, sparsity=(1.0, 400.0), local_steps=[1])
    problem = replace(free, round_seconds=0.6)
    plan = fj.solve(problem)
    assert problem.device_seconds(1, plan.sparsity).max() <= 0.6 * (1 + 1e-9)
    assert plan.sparsity[0] >= 20.0 * (1 - 1e-9)


def test_a_server_without_weight_may_be_given_limits_above_the_parameters():
    problem = problem_of(np.random.default_rng(0), 2)
    wide = replace(problem, downlink=Downlink(sparsity=(1.0, 1e6), weight=0.0))
    assert wide.server.sparsity == (13_706.0, 13_706.0)
