from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.message_fit import MessageObservation, usual_bits
from fewjoules.tuning.belief import Belief, Choice, Observation
from fewjoules.tuning.planning import COARSE_SPARSITY, MESSAGES, FleetPlanning
from tests.tuning.curves import result_of

LAW = fj.PowerLawRounds(tau=2000.0, c=0.03, a=0.5, q=0.5)
PARAMETERS = 20_000


def problem_of(sparsity=(1.0, 500.0), fleet=None, **fields):
    devices = fj.Fleet(joules_per_bit=[1e-8, 4e-8, 1e-7], joules_per_step=[2e-3, 1e-3, 3e-3], message_joules=0.01)
    return fj.ControlProblem(
        fleet=fleet or devices,
        rounds=LAW,
        parameters=PARAMETERS,
        sparsity=sparsity,
        local_steps=range(1, 80),
        **fields,
    )


def with_server(limits=(1.0, 300.0), **fields):
    fleet = fj.Fleet(joules_per_bit=[1e-8, 4e-8], joules_per_step=1e-3, downlink_joules_per_bit=[1e-8, 2e-8])
    return problem_of(fleet=fleet, downlink=fj.Downlink(sparsity=limits, weight=0.6, **fields))


def with_points(round_seconds=None):
    fleet = fj.Fleet(
        joules_per_bit=[1e-8, 4e-8],
        joules_per_step=1e-3,
        seconds_per_bit=1e-6,
        seconds_per_step=0.1,
        operating_points=fj.OperatingPoints.of([[4e-3, 9e-3], [1e-3, 2e-3]], [[0.02, 0.03], [0.1, 0.2]]),
    )
    return problem_of(fleet=fleet, round_seconds=round_seconds)


PROBLEMS = {
    "plain": problem_of,
    "server": with_server,
    "points": with_points,
    "deadline": lambda: with_points(round_seconds=0.5),
}


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_joules_of_rounds_add_up_to_those_of_the_plan(problem, message):
    planning = FleetPlanning(PROBLEMS[problem]())
    for law in (LAW, fj.PowerLawRounds(tau=500.0, c=0.3, a=0.7, q=0.3)):
        plan = planning.plan(law, message)
        round_joules = planning.round_joules(message, plan.local_steps, plan.sparsity, plan.downlink_sparsity)
        assert plan.rounds * round_joules == pytest.approx(plan.energy_joules, rel=1e-9)


@settings(deadline=None)
@given(st.integers(1, 79), st.lists(st.floats(4.0, 500.0), min_size=3, max_size=3), st.sampled_from(list(MESSAGES)))
def test_the_joules_of_a_round_are_those_of_the_control_problem(local_steps, sparsity, message):
    planning = FleetPlanning(problem_of())
    problem = replace(problem_of(sparsity=(4.0, 500.0)), message=planning.sizes[message])
    expected = problem.costs(local_steps, sparsity).energy_joules / problem.predicted_rounds(local_steps, sparsity)
    assert planning.round_joules(message, local_steps, sparsity, None) == pytest.approx(expected)


def test_a_plan_is_the_flexible_plan_of_the_problem_with_the_sizes_of_its_messages():
    planning = FleetPlanning(problem_of())
    expected = fj.schemes.flexible(replace(problem_of(), message=planning.sizes["int8"]))
    assert planning.plan(LAW, "int8").chooses_like(expected)
    assert planning.plan(LAW, "int8", 7).local_steps == 7
    assert planning.plan(LAW, "int8", 7).energy_joules >= planning.plan(LAW, "int8").energy_joules


@pytest.mark.parametrize(("limits", "least"), [((1.0, 500.0), 4.0), ((10.0, 500.0), 10.0), ((1.0, 3.0), 3.0)])
def test_coarse_messages_are_planned_from_a_higher_sparsity_on(limits, least):
    planning = FleetPlanning(problem_of(sparsity=limits))
    assert COARSE_SPARSITY == 4.0
    assert planning.problem_of(LAW, "ternary").sparsity == (least, limits[1])
    assert planning.plan(LAW, "ternary").sparsity.min() >= least
    for fine in ("float32", "int8"):
        assert planning.problem_of(LAW, fine).sparsity == limits


def test_messages_begin_at_their_usual_sizes():
    planning = FleetPlanning(problem_of())
    for kind in MESSAGES:
        for sparsity in (8.0, 100.0):
            usual = usual_bits(PARAMETERS, kind, sparsity)
            assert float(planning.sizes[kind].bits(PARAMETERS, sparsity)) == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("parameters", [1, 3, 10])
def test_a_tiny_model_can_be_planned(parameters):
    problem = replace(problem_of(sparsity=(1.0, 1.0)), parameters=parameters)
    planning = FleetPlanning(problem)
    assert all(planning.plan(LAW, kind).energy_joules > 0.0 for kind in MESSAGES)


@pytest.mark.parametrize("kind", MESSAGES)
def test_sizes_are_learned_from_what_pilots_sent(kind):
    planning = FleetPlanning(problem_of())
    before = dict(planning.sizes)
    sent = [
        MessageObservation(kind, sparsity, 1.25 * usual_bits(PARAMETERS, kind, sparsity), 50.0)
        for sparsity in (10.0, 40.0, 200.0)
    ]
    planning.learn_sizes([result_of([10], [1.0], messages=tuple(sent[:1])), result_of([10], [1.0], messages=sent[1:])])
    for one in sent:
        assert float(planning.sizes[kind].bits(PARAMETERS, one.sparsity)) == pytest.approx(one.bits, rel=0.03)
    assert all(planning.sizes[other] == before[other] for other in MESSAGES if other != kind)


def test_pilots_without_messages_teach_nothing():
    planning = FleetPlanning(problem_of())
    before = dict(planning.sizes)
    planning.learn_sizes([])
    planning.learn_sizes([result_of([10], [1.0])])
    assert planning.sizes == before


@pytest.mark.parametrize("values", MESSAGES)
def test_the_server_has_the_law_of_the_values_that_it_sends(values):
    planning = FleetPlanning(with_server()).at_downlink(values)
    assert planning.at_downlink(values) is planning
    for message in MESSAGES:
        server = planning.problem_of(LAW, message).server
        assert server == replace(planning.problem.server, message=server.message, sparsity=server.sparsity)
        for sparsity in (8.0, 100.0):
            usual = usual_bits(PARAMETERS, values, sparsity)
            assert float(server.message.bits(PARAMETERS, sparsity)) == pytest.approx(usual, rel=0.05)
        assert message_options(planning, message) == dict(MESSAGES[message].options) | {"downlink_values": values}
        assert planning.messages()[message][1] == MESSAGES[message].delay * MESSAGES[values].delay


def message_options(planning, message):
    return dict(planning.messages()[message][0])


@pytest.mark.parametrize(("limits", "least"), [((1.0, 300.0), 4.0), ((10.0, 300.0), 10.0), ((2.0, 2.0), 2.0)])
def test_coarse_values_of_the_server_are_planned_from_a_higher_sparsity_on(limits, least):
    planning = FleetPlanning(with_server(limits))
    assert planning.at_downlink("ternary").problem_of(LAW, "int8").server.sparsity == (least, limits[1])
    assert planning.at_downlink("int8").problem_of(LAW, "ternary").server.sparsity == limits
    assert planning.at_downlink("ternary").plan(LAW, "int8").downlink_sparsity >= least


@pytest.mark.parametrize("problem", [problem_of(), with_server(participation=0.5)], ids=["free", "away"])
def test_the_server_sends_float32_where_it_is_free_and_where_devices_stay_away(problem):
    """What devices receive after an absence has float32 values whatever the kind."""
    planning = FleetPlanning(problem)
    assert tuple(planning.downlink_kinds) == ("float32",)
    expected = {} if problem.server is None else {"downlink_values": "float32"}
    assert message_options(planning, "int8") == dict(MESSAGES["int8"].options) | expected


def test_the_joules_of_a_round_charge_what_the_server_sends():
    planning, sparsity = FleetPlanning(with_server()), [20.0, 20.0]
    joules = {
        values: planning.at_downlink(values).round_joules("int8", 5, sparsity, 16.0)
        for values in planning.downlink_kinds
    }
    per_bit = float(planning.problem.fleet.downlink_joules_per_bit.sum())
    for values, found in joules.items():
        bits = usual_bits(PARAMETERS, values, 16.0) - usual_bits(PARAMETERS, "float32", 16.0)
        assert found - joules["float32"] == pytest.approx(per_bit * bits, rel=0.05)


@pytest.mark.parametrize("values", MESSAGES)
def test_sizes_of_the_server_are_learned_from_what_it_sent_to_pilots(values):
    planning = FleetPlanning(with_server())
    before, uplink = dict(planning.downlink_sizes), dict(planning.sizes)
    sent = MessageObservation(values, 40.0, 1.15 * usual_bits(PARAMETERS, values, 40.0), 50.0)
    planning.at_downlink(values).learn_sizes([result_of([10], [1.0], broadcasts=(sent,))])
    learned = planning.downlink_sizes[values]
    assert float(learned.bits(PARAMETERS, 40.0)) == pytest.approx(sent.bits, rel=0.03)
    assert planning.sizes == uplink
    assert planning.downlink_sizes == before | {values: learned}


def test_every_law_that_a_belief_may_hold_can_be_planned():
    planning = FleetPlanning(problem_of(fleet=fj.Fleet(joules_per_bit=1e-8, joules_per_step=1e-3, battery_joules=1e9)))
    belief = Belief.prior(np.random.default_rng(0), particles=4000)
    belief = belief.after(Observation(Choice(5, (20.0,)), 1000.0, 0.1))
    steepest = [int(place(belief.theta[:, column])) for column in range(3) for place in (np.argmin, np.argmax)]
    for particle in steepest:
        for kind in MESSAGES:
            assert planning.plan(belief.law_of(particle), kind).energy_joules > 0.0


def test_the_weight_of_the_server_is_that_of_the_problem():
    assert FleetPlanning(problem_of()).downlink_weight == 0.0
    assert FleetPlanning(with_server()).downlink_weight == 0.6


def test_messages_name_options_and_delays():
    planning = FleetPlanning(problem_of(), kinds=("float32", "ternary"))
    assert list(planning.messages()) == ["float32", "ternary"]
    options, delay = planning.messages()["ternary"]
    assert options["compressor"] == "ternary"
    assert delay > planning.messages()["float32"][1] == 1.0
