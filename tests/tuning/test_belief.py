from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.tuning.belief import DEVIATIONS, LEAST_Q, PRIOR_A, PRIOR_C, PRIOR_Q, Belief, Choice, Observation
from tests.reference.belief import posterior_moments
from tests.strategies import magnitudes

# H, sparsities of the devices, steps, deviation of ln(steps)
PILOTS = (
    (5, (8.0, 8.0, 8.0), 900.0, 0.12),
    (1, (4.0, 4.0, 64.0), 700.0, 0.2),
    (40, (100.0, 300.0, 300.0), 4000.0, 0.2),
)


def choice_of(local_steps, sparsity, **server):
    values, counts = np.unique(sparsity, return_counts=True)
    shares = tuple((counts / counts.sum()).tolist())
    return Choice(local_steps, tuple(values.tolist()), shares, **server)


def observed(pilots):
    return [Observation(choice_of(steps, sparsity), taken, deviation) for steps, sparsity, taken, deviation in pilots]


def moments(belief):
    columns = np.column_stack([belief.log_tau, belief.theta])
    mean = belief.weights @ columns
    variance = belief.weights @ (columns - mean) ** 2 + np.array([belief.tau_variance, 0.0, 0.0, 0.0])
    return mean, np.sqrt(variance)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_particles_agree_with_integration_on_a_grid(count):
    belief = Belief.prior(np.random.default_rng(0), particles=400_000).after(*observed(PILOTS[:count]))
    mean, deviation = moments(belief)
    grid_mean, grid_deviation = posterior_moments(PILOTS[:count])
    assert np.all(np.abs(mean - grid_mean) < 0.02 * grid_deviation)
    assert deviation == pytest.approx(grid_deviation, rel=0.02)


def a_law(rng, tau=2000.0):
    """A law drawn from the prior."""
    log_c, a, q = np.array([np.log(PRIOR_C), PRIOR_A, PRIOR_Q]) + np.array(DEVIATIONS) * rng.standard_normal(3)
    return fj.PowerLawRounds(tau=tau, c=float(np.exp(log_c)), a=float(a), q=max(float(q), LEAST_Q))


def pilot_of(law, choice, deviation, rng):
    steps = choice.local_steps * law.rounds(choice.powers(np.array([law.q]))[0], choice.local_steps, 1)
    return Observation(choice, float(steps * np.exp(deviation * rng.standard_normal())), deviation)


def choices(rng, count):
    return [Choice(int(rng.integers(1, 60)), (float(np.exp(rng.uniform(0.0, 6.5))),)) for _ in range(count)]


def test_the_intervals_hold_the_truth_as_often_as_two_standard_deviations_should():
    rng = np.random.default_rng(12)
    held, worlds = dict.fromkeys(("tau", "c", "a", "q"), 0), 300
    for _ in range(worlds):
        law = a_law(rng)
        belief = Belief.prior(rng).after(*(pilot_of(law, one, 0.15, rng) for one in choices(rng, 5)))
        for name, (low, high) in belief.intervals().intervals.items():
            held[name] += low <= getattr(law, name) <= high
    # 95.4 % if the posterior were normal; three standard errors of 300 worlds are 3.6 %
    assert all(0.91 <= count / worlds <= 0.99 for count in held.values()), held


def test_a_belief_contracts_to_the_truth():
    rng = np.random.default_rng(2)
    law = fj.PowerLawRounds(tau=2000.0, c=0.05, a=0.6, q=0.4)
    belief = Belief.prior(rng, particles=100_000)
    before = moments(belief)[1]
    design = [Choice(steps, (sparsity,)) for steps in (1, 8, 60) for sparsity in (1.0, 20.0, 400.0)]
    learned = belief.after(*(pilot_of(law, one, 0.03, rng) for one in design))
    mean, deviation = moments(learned)
    assert np.all(deviation[1:] < before[1:] / 4.0)
    assert np.all(np.abs(mean - [np.log(2000.0), np.log(0.05), 0.6, 0.4]) < 3.0 * deviation)
    found = learned.law()
    assert (found.tau, found.c, found.a, found.q) == pytest.approx((2000.0, 0.05, 0.6, 0.4), rel=0.3)


def test_the_order_of_pilots_and_pilots_in_two_calls_change_nothing():
    belief = Belief.prior(np.random.default_rng(3))
    first, second, third = observed(PILOTS)
    one, other = belief.after(first, second, third), belief.after(third).after(second).after(first)
    assert one.weights == pytest.approx(other.weights)
    assert one.log_tau == pytest.approx(other.log_tau)
    assert one.tau_variance == pytest.approx(other.tau_variance)


@given(magnitudes(-3, 3))
def test_steps_in_another_unit_scale_tau_alone(scale):
    belief = Belief.prior(np.random.default_rng(4), particles=200)
    pilots = observed(PILOTS)
    scaled = [Observation(one.choice, scale * one.steps, one.deviation) for one in pilots]
    law, other = belief.after(*pilots).law(), belief.after(*scaled).law()
    assert other.tau == pytest.approx(scale * law.tau)
    assert (other.c, other.a, other.q) == pytest.approx((law.c, law.a, law.q))


def test_one_pilot_tells_tau_and_nothing_else():
    belief = Belief.prior(np.random.default_rng(5), particles=500)
    learned = belief.after(*observed(PILOTS[:1]))
    assert learned.weights == pytest.approx(belief.weights)
    assert (belief.known, learned.known) == (False, True)
    steps, deviation = learned.predicted_steps(choice_of(*PILOTS[0][:2]))
    assert (steps, deviation) == pytest.approx((900.0, 0.12))


def test_a_prediction_elsewhere_is_less_certain_than_at_the_pilot():
    learned = Belief.prior(np.random.default_rng(6)).after(*observed(PILOTS[:1]))
    here, there = (learned.predicted_steps(one)[1] for one in (choice_of(5, (8.0,)), choice_of(60, (500.0,))))
    assert there > 2.0 * here


@st.composite
def problems_with_a_server(draw):
    devices = draw(st.integers(1, 5))
    return fj.ControlProblem(
        fleet=fj.Fleet(
            joules_per_bit=np.full(devices, 1e-8), joules_per_step=1e-3, downlink_joules_per_bit=np.full(devices, 1e-8)
        ),
        rounds=fj.PowerLawRounds(tau=1000.0, c=0.02, a=0.5, q=0.5),
        parameters=10_000,
        sparsity=(1.0, 1000.0),
        local_steps=range(1, 100),
        downlink=fj.Downlink(sparsity=(1.0, 1000.0), weight=draw(st.floats(0.01, 3.0))),
    )


@settings(deadline=None)
@given(problems_with_a_server(), st.data())
def test_belief_and_planner_predict_the_same_rounds(problem, data):
    sparsity = data.draw(st.lists(st.floats(1.0, 1000.0), min_size=problem.devices, max_size=problem.devices))
    local_steps, server = data.draw(st.integers(1, 99)), data.draw(st.floats(1.0, 1000.0))
    choice = choice_of(local_steps, sparsity, downlink_sparsity=server, downlink_weight=float(problem.server.weight))
    belief = Belief.prior(np.random.default_rng(7), particles=20).after(*observed(PILOTS))
    for particle in (0, 7, 19):
        law = belief.law_of(particle)
        rounds = replace(problem, rounds=law).predicted_rounds(local_steps, sparsity, server)
        assert np.exp(belief.log_steps(choice)[particle]) / local_steps == pytest.approx(rounds, rel=1e-9)


def test_the_law_of_the_belief_predicts_what_the_belief_predicts_where_it_is_sure():
    rng = np.random.default_rng(8)
    law = fj.PowerLawRounds(tau=2000.0, c=0.05, a=0.6, q=0.4)
    learned = Belief.prior(rng, particles=50_000).after(*(pilot_of(law, one, 0.02, rng) for one in choices(rng, 12)))
    for choice in choices(rng, 10):
        power = choice.powers(np.array([learned.law().q]))[0]
        steps = choice.local_steps * float(learned.law().rounds(power, choice.local_steps, 1))
        assert steps == pytest.approx(learned.predicted_steps(choice)[0], rel=0.01)


def test_particles_are_drawn_by_their_weights():
    belief = Belief.prior(np.random.default_rng(9), particles=50).after(*observed(PILOTS))
    likely = int(np.argmax(belief.weights))
    draws = [belief.sampled(1, np.random.default_rng(seed))[0] for seed in range(400)]
    assert draws.count(likely) / 400 == pytest.approx(belief.weights[likely], abs=0.08)


def test_the_prior_needs_only_its_seed():
    one, other = (Belief.prior(np.random.default_rng(10)) for _ in range(2))
    assert np.array_equal(one.theta, other.theta)
    assert one.law() == other.law()
    assert one.law().tau == 1.0


def test_no_exponent_of_the_sparsity_is_below_the_least():
    assert Belief.prior(np.random.default_rng(11), particles=100_000).theta[:, 2].min() == LEAST_Q
