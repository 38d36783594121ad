"""What the first message adds to a plan: against the ledger of a training, and against drawn cohorts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fewjoules as fj
from fewjoules.physics.message_size import MessageSize
from fewjoules.planner.first_message import first_message_joules
from fewjoules.planner.partial import with_participants
from fewjoules.planner.schemes import flexible
from fewjoules.runs.task import options_for, prepare
from fewjoules.runs.training import train_task
from fewjoules.scenario import Scenario

DEAR = 300.0  # times the embedded downlink: docs/tuning.md, "The server's values"
MESSAGES = MessageSize(fixed_bits=100.0, scale=0.7, entry_bits=4.0)


def problem_of(**server):
    fleet = fj.Fleet(
        joules_per_bit=1e-7,
        joules_per_step=1e-2,
        downlink_joules_per_bit=np.geomspace(1e-8, 3e-6, 10),
        codec_joules_per_entry=np.geomspace(1e-6, 1e-8, 10),
    )
    return fj.ControlProblem(
        fleet=fleet,
        rounds=fj.PowerLawRounds(tau=60.0, c=0.02, a=0.5, q=0.5),
        parameters=50_000,
        sparsity=(1.0, 1000.0),
        local_steps=range(1, 21),
        downlink=fj.Downlink(message=MESSAGES, **{"sparsity": (1.0, 1000.0)} | server),
    )


def test_it_is_what_the_ledger_has_beyond_the_plan_in_the_first_round():
    embedded = Scenario.embedded()
    price = DEAR * embedded.fleet.downlink_joules_per_bit
    scenario = replace(embedded, fleet=embedded.fleet.changed(downlink_joules_per_bit=price))
    problem = scenario.problem()
    plan = flexible(problem)
    task = prepare(scenario, torch.device("cpu"))
    training = train_task(task, replace(options_for(task, plan), rounds=2, evaluate_every=2))
    rows = training.loop.ledger.rows()
    first = rows[rows["round"] == 1]
    spent = float(first["downlink_joules"].sum() + first["codec_joules"].sum())
    planned = problem.round_costs.joules_by_kind(plan.local_steps, plan.sparsity, plan.downlink_sparsity)
    expected = spent - float(planned["downlink"].sum() + planned["codec"].sum())
    assert first_message_joules(problem, plan) == pytest.approx(expected, rel=0.03)
    assert expected > plan.energy_joules


@pytest.mark.parametrize("participants", [1, 3, 10])
def test_with_some_devices_in_each_round_it_counts_those_that_were_drawn(participants):
    problem = problem_of()
    partial = with_participants(problem, participants, weight=0.0)
    plan = replace(flexible(partial), rounds=8.0)
    received = partial.server.received_sparsity(plan.downlink_sparsity)
    fleet, entries = problem.fleet, problem.parameters / received
    later = fleet.downlink_joules_per_bit * (100.0 + 0.7 * entries * (np.log2(received) + 4.0))
    whole = fleet.downlink_joules_per_bit * (250.0 + 26.85 * problem.parameters)
    more = whole - later + fleet.codec_joules_per_entry * (problem.parameters - entries)
    rng = np.random.default_rng(0)
    drawn = [np.unique([rng.choice(10, participants, replace=False) for _ in range(8)]).tolist() for _ in range(4000)]
    expected = np.mean([more[devices].sum() for devices in drawn])
    assert first_message_joules(partial, plan) == pytest.approx(expected, rel=0.03)


def test_it_is_nothing_where_the_downlink_is_free_or_every_message_is_as_long():
    free = replace(problem_of(), downlink="free")
    assert first_message_joules(free, flexible(free)) == 0.0
    dense = problem_of(sparsity=(1.0, 1.0))
    dense = replace(dense, downlink=replace(dense.server, message=MessageSize.formula_25(32)))
    assert first_message_joules(dense, flexible(dense)) == 0.0
