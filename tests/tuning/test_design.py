from dataclasses import replace

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.tuning import design
from fewjoules.tuning.belief import Belief, Choice, Observation
from fewjoules.tuning.design import Decision, best_decision, expected_regret, joules_table, most_useful_pilot

DECISIONS = (
    Decision(Choice(2, (5.0,)), 1.0),
    Decision(Choice(10, (40.0,)), 1.5),
    Decision(Choice(40, (300.0,)), 3.5),
)
REFERENCE = Observation(Choice(10, (40.0,)), 1000.0, 0.12)


def belief_with(particles=300, *, seed=0):
    return Belief.prior(np.random.default_rng(seed), particles).after(REFERENCE)


def least_expected(belief, decisions):
    return float(np.min(belief.weights @ joules_table(belief, decisions)))


def saving_by_simulation(belief, decisions, tried, deviation, rng, outcomes):
    """What a pilot saves: draw a law and its tau, let it run, learn, and choose again."""
    stays = int(np.argmin(belief.weights @ joules_table(belief, decisions)))
    saved = []
    for _ in range(outcomes):
        truth = rng.choice(belief.weights.size, p=belief.weights)
        log_tau = belief.log_tau[truth] + np.sqrt(belief.tau_variance) * rng.standard_normal()
        log_steps = log_tau + belief.log_factor(tried)[truth] + deviation * rng.standard_normal()
        learned = belief.after(Observation(tried, float(np.exp(log_steps)), deviation))
        expected = learned.weights @ joules_table(learned, decisions)
        saved.append(expected[stays] - expected.min())
    return float(np.mean(saved)), float(np.std(saved) / np.sqrt(outcomes))


@pytest.mark.parametrize(("tried", "deviation"), [(0, 0.05), (0, 0.2), (1, 0.05), (2, 0.05), (2, 0.2)])
def test_the_worth_of_a_pilot_agrees_with_simulated_pilots(monkeypatch, tried, deviation):
    monkeypatch.setattr(design, "OUTCOMES", 4000)
    belief = belief_with().after(Observation(Choice(2, (5.0,)), 800.0, 0.2))
    rng = np.random.default_rng(1)
    choice = DECISIONS[tried].choice
    fast = design._expected_saving(belief, DECISIONS, choice, deviation, rng)
    slow, error = saving_by_simulation(belief, DECISIONS, choice, deviation, rng, 3000)
    assert error > 0.0
    assert fast == pytest.approx(slow, abs=5.0 * error)


def test_the_worth_of_a_pilot_is_never_negative_nor_above_the_regret():
    for seed in range(20):
        belief, rng = belief_with(seed=seed), np.random.default_rng(seed)
        worth = most_useful_pilot(belief, DECISIONS, 0.2, rng)
        regret = expected_regret(belief, DECISIONS[best_decision(belief, DECISIONS)], DECISIONS)
        assert 0.0 <= worth.saves_joules <= 2.0 * regret  # outcomes are sampled


def test_a_pilot_is_worth_nothing_where_all_decisions_are_the_same():
    same = [DECISIONS[0]] * 3
    assert most_useful_pilot(belief_with(), same, 0.2, np.random.default_rng(2)).saves_joules == 0.0
    assert best_decision(belief_with(), same) == 0
    assert expected_regret(belief_with(), same[0], same) == pytest.approx(0.0, abs=1e-9)


def test_a_pilot_is_worth_nothing_where_the_law_is_known():
    sure = Belief(np.array([[np.log(0.02), 0.5, 0.5]]), (REFERENCE,))
    assert most_useful_pilot(sure, DECISIONS, 0.2, np.random.default_rng(3)).saves_joules == 0.0
    assert expected_regret(sure, DECISIONS[best_decision(sure, DECISIONS)], DECISIONS) == pytest.approx(0.0, abs=1e-9)


def test_the_only_pilot_run_again_is_worth_nothing():
    saving = design._expected_saving(belief_with(), DECISIONS, REFERENCE.choice, 0.2, np.random.default_rng(6))
    assert saving == pytest.approx(0.0, abs=1e-9)


def test_a_pilot_of_noise_is_worth_nothing():
    worth = most_useful_pilot(belief_with(), DECISIONS, 1e6, np.random.default_rng(4))
    assert worth.saves_joules == pytest.approx(0.0, abs=1e-4 * least_expected(belief_with(), DECISIONS))


def test_the_pilot_that_tells_most_is_far_from_the_one_that_ran():
    decisions = [DECISIONS[1], DECISIONS[2]]
    worth = most_useful_pilot(belief_with(2000), decisions, 0.05, np.random.default_rng(5))
    assert worth.decision == 1
    assert worth.saves_joules > 0.0


def test_the_regret_is_what_the_chosen_decision_costs_above_the_best_of_each_law():
    belief = belief_with()
    table = np.array(
        [
            [
                float(belief.law_of(one).rounds(decision.choice.powers(belief.theta[one, 2:])[0], steps, 1))
                * np.exp(0.5 * belief.tau_variance)
                * decision.round_joules
                for decision in DECISIONS
                for steps in [decision.choice.local_steps]
            ]
            for one in range(belief.weights.size)
        ]
    )
    best = best_decision(belief, DECISIONS)
    assert best == int(np.argmin(belief.weights @ table))
    for number, chosen in enumerate(DECISIONS):
        others = [one for one in DECISIONS if one is not chosen]
        regret = expected_regret(belief, chosen, others)
        assert regret == pytest.approx(float(belief.weights @ (table[:, number] - table.min(axis=1))))
        assert regret >= expected_regret(belief, DECISIONS[best], DECISIONS) > 0.0


def test_the_joules_of_decisions_are_those_of_the_control_problem():
    fleet = fj.Fleet(
        joules_per_bit=[1e-8, 3e-8], joules_per_step=[1e-3, 2e-3], message_joules=0.01, downlink_joules_per_bit=1e-9
    )
    problem = fj.ControlProblem(
        fleet=fleet,
        rounds=fj.PowerLawRounds(tau=1.0, c=0.03, a=0.6, q=0.4),
        parameters=50_000,
        sparsity=(1.0, 500.0),
        local_steps=range(1, 60),
        downlink=fj.Downlink(sparsity=(1.0, 500.0), weight=0.7),
    )
    sure = Belief(np.array([[np.log(0.03), 0.6, 0.4]]), (replace(REFERENCE, deviation=1e-6),))
    law = sure.law_of(0)
    for local_steps, sparsity, server in ((1, (1.0, 1.0), 1.0), (7, (20.0, 90.0), 30.0), (59, (500.0, 3.0), 2.0)):
        choice = Choice(local_steps, sparsity, (0.5, 0.5), server, 0.7)
        decision = Decision(choice, float(np.sum(problem.round_joules(local_steps, sparsity, server))))
        costs = replace(problem, rounds=law).costs(local_steps, np.array(sparsity), server)
        assert joules_table(sure, [decision])[0, 0] == pytest.approx(costs.energy_joules, rel=1e-9)
