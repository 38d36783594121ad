"""What ``fewjoules plan`` prints: where the joules go and come from, and the choices of each group and the server."""

import io
import re

import pytest
from rich.console import Console

from fewjoules.planner.first_message import first_message_joules
from fewjoules.planner.schemes import SCHEMES
from fewjoules.reports import tables
from fewjoules.reports.plan_remarks import LEAST_FIRST_MESSAGE, plan_remarks
from fewjoules.reports.split import joules_of_kinds, joules_of_marks, with_shares
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans

MODEL = """\
version = 1
[model]
parameters = 1000
[rounds]
kind = "paper"
alpha = 1e-4
beta = 100.0
[limits]
sparsity = {min = 4.0, max = 100.0}
local_steps = {min = 1, max = 8}
"""
POINTS = """\
[[device]]
name = "phone"
count = 3
joules_per_bit = 2e-7
[[device.point]]
joules_per_step = 2e-3
seconds_per_step = 1e-3
[[device.point]]
joules_per_step = 1e-3
seconds_per_step = 2e-3
[[device]]
name = "gateway"
provenance = "measured"
joules_per_bit = 2e-7
joules_per_step = 1e-3
"""
PLAIN = '[[device]]\nname = "{}"\njoules_per_bit = 2e-7\njoules_per_step = 1e-3\n'


def scenario_of(devices, folder):
    return Scenario.from_text(MODEL + devices, "scenario", folder)


def report(scenario, *schemes):
    planning = ScenarioPlans(scenario)
    plans = [planning.plan(scheme) for scheme in schemes or ("flexible",)]
    output = io.StringIO()
    Console(file=output, width=150, highlight=False).print(tables.plan_report(planning, plans))
    return output.getvalue(), plans


def row(text, name):
    (found,) = re.findall(rf"(?m)^{re.escape(name)} +(.*)$", text)
    return found.split()


def test_the_kinds_and_the_marks_of_the_best_plan_both_sum_to_its_joules():
    text, plans = report(Scenario.embedded(), *SCHEMES)
    best = min(plans, key=lambda plan: plan.energy_joules)
    kinds = re.search(rf"(?m)^{best.scheme} by kind: (.*)$", text)[1]
    total, marks = re.search(r"(?m)^of (\S+) J: (.*)$", text).groups()
    assert re.findall(r"(\w+) \S+ J", kinds) == ["uplink", "downlink", "tail", "compute", "codec"]
    assert float(total) == pytest.approx(best.energy_joules, rel=1e-3)
    assert sum(map(float, re.findall(r"\w+ (\S+) J", kinds))) == pytest.approx(best.energy_joules, rel=1e-2)
    assert re.findall(r"([a-z]+) \S+ \(", marks) == ["fitted", "profile", "assumed"]
    assert sum(map(float, re.findall(r"(\S+) \(", marks))) == pytest.approx(best.energy_joules, rel=1e-2)
    assert sum(map(int, re.findall(r"\((\d+) %\)", marks))) == pytest.approx(100, abs=1)


def test_kinds_and_marks_without_joules_are_left_out():
    split = {"uplink": {"measured": 1.0, "assumed": 2.0}, "tail": {"fitted": 0.0}, "codec": {"assumed": 0.001}}
    assert joules_of_kinds(split) == {"uplink": 3.0, "codec": 0.001}
    assert joules_of_marks(split) == {"measured": 1.0, "assumed": 2.001}


def test_small_shares_are_not_rounded_to_nothing():
    assert with_shares({"profile": 999.0, "assumed": 1.0}) == {"profile": "999 (100 %)", "assumed": "1 (< 1 %)"}
    assert with_shares({}) == {}


def test_the_server_has_a_row_where_its_sparsity_is_planned(tmp_path):
    text, (plan,) = report(Scenario.embedded(), "synchronous")
    assert row(text, "server") == [f"{plan.downlink_sparsity:.4g}", f"{round(13_706 / plan.downlink_sparsity):,}"]
    without, _ = report(scenario_of(PLAIN.format("phone"), tmp_path))
    assert "server" not in without


def test_the_chosen_operating_points_are_shown_by_group(tmp_path):
    text, _ = report(scenario_of(POINTS, tmp_path), "flexible", "dense")
    points = text.partition("operating point of")[2]
    assert row(points, "phone") == ["3", "2", "of", "2", "2", "of", "2"]
    assert row(points, "gateway") == ["1", "1", "of", "1", "1", "of", "1"]
    without, _ = report(scenario_of(PLAIN.format("phone"), tmp_path))
    assert "operating point" not in without


def test_the_last_of_many_groups_share_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_GROUPS_SHOWN", 2)
    devices = "".join(PLAIN.format(f"device-{number}") for number in range(4))
    text, (plan,) = report(scenario_of(devices, tmp_path))
    assert row(text, "device-1")[0] == "1"
    assert "device-2" not in text
    assert row(text, "... 2 more groups")[0:2] == ["2", f"{plan.sparsity[2]:.4g}"]


RECEIVING = (
    PLAIN.format("phone") + "count = 3\n" + "downlink_joules_per_bit = {}\n[[device]]\njoules_per_bit = 2e-7\n"
    "joules_per_step = 1e-3\ncount = 3\ndownlink_joules_per_bit = 1e-9\n"
)


def test_a_dear_first_message_is_told_of_each_scheme_that_it_matters_to(tmp_path):
    scenario = scenario_of(RECEIVING.format(5e-5), tmp_path)
    text, plans = report(scenario, "flexible", "unified", "dense")
    planning = ScenarioPlans(scenario)
    told = re.findall(r"(?m)^(.*): the first message to each device, the whole model, adds (\S+) J to the plan's", text)
    ((schemes, joules),) = told
    assert schemes == "flexible, unified"  # both send as little as they may; those of dense are all as long
    for plan in plans[:2]:
        assert float(joules) == pytest.approx(first_message_joules(planning.problem(plan.scheme), plan), rel=1e-3)
        assert float(joules) > LEAST_FIRST_MESSAGE * plan.energy_joules


def test_a_first_message_that_hardly_costs_is_not_told(tmp_path):
    text, plans = report(scenario_of(RECEIVING.format(1e-10), tmp_path), "flexible")
    assert plans[0].downlink_sparsity > 1.0
    assert "first message" not in text


def test_each_device_of_a_small_fleet_adds_the_first_messages_of_those_that_it_stands_for(tmp_path):
    planning = ScenarioPlans(scenario_of(RECEIVING.format(5e-5), tmp_path))
    plan = planning.plan("flexible")
    alone, many = (
        next(float(re.search(r"adds (\S+) J", one)[1]) for one in plan_remarks(planning, [plan], each) if "adds" in one)
        for each in (1, 100)
    )
    assert many == pytest.approx(100.0 * alone, rel=2e-3)
