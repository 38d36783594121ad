"""Keys of a scenario for tails, the downlink, samples and operating points, and the plans that follow from them."""

from pathlib import Path

import numpy as np
import pytest

import fewjoules as fj
from fewjoules.provenance import MARKS

TEXT = """
[model]
parameters = 13706
[rounds]
kind = "power-law"
tau = 164.3
c = 0.0221
a = 0.568
q = 0.564
[limits]
sparsity = {min = 1.0, max = 400.0}
local_steps = {min = 1, max = 20}
[training]
batch_size = 16
[[device]]
name = "phone"
count = 3
joules_per_step = 0.001
seconds_per_step = 0.01
joules_per_sample = 0.0002
seconds_per_sample = 0.001
[device.radio]
power_watts = 0.2
bandwidth_hertz = 1e6
mean_snr_db = 10.0
tail_watts = 1.0
tail_seconds = 10.0
promotion_joules = 0.3
downlink_watts = 1.2
downlink_bits_per_second = 1.2e7
[[device]]
name = "board"
count = 2
joules_per_bit = 1e-8
seconds_per_bit = 1e-8
[[device.point]]
core_hertz = 1e9
core_volts = 0.8
joules_per_step = 0.01
seconds_per_step = 0.02
[[device.point]]
joules_per_step = 0.02
seconds_per_step = 0.005
"""


def scenario(text=TEXT):
    return fj.Scenario.from_text(text, "file.toml", Path())


def test_the_radio_states_its_tail_and_its_downlink():
    fleet = scenario().fleet
    assert fleet.tail_watts.tolist() == [1.0] * 3 + [0.0] * 2
    assert fleet.promotion_joules.tolist() == [0.3] * 3 + [0.0] * 2
    np.testing.assert_allclose(fleet.downlink_joules_per_bit, [1e-7] * 3 + [0.0] * 2)
    assert fleet.downlink_seconds_per_bit is None, "the board does not say how long it receives"
    assert [MARKS[code] for code in fleet.provenance["uplink"]] == ["fitted"] * 3 + ["assumed"] * 2


def test_a_plan_counts_samples_and_chooses_points():
    made = scenario()
    plan = fj.solve(made.problem())
    assert plan.downlink_sparsity is not None
    assert plan.operating_points.tolist() == [0] * 5, "without a deadline the cheapest is chosen"
    chosen = plan.fleet_at_points(made.fleet)
    compute = 3 * (0.001 + 16 * 0.0002) + 2 * 0.01
    assert plan.joules["compute"]["assumed"] == pytest.approx(plan.rounds * plan.local_steps * compute)
    assert chosen.joules_per_step.tolist() == [0.001] * 3 + [0.01] * 2


def test_under_a_deadline_the_board_takes_its_faster_point():
    text = TEXT.replace("[training]", "round_seconds = 0.5\n[training]").replace("downlink_watts = 1.2\n", "")
    text = text.replace("downlink_bits_per_second = 1.2e7\n", "").replace(
        "local_steps = {min = 1", "local_steps = {min = 20"
    )
    text = text.replace("seconds_per_step = 0.01\n", "seconds_per_step = 0.001\n")
    text = text.replace("seconds_per_sample = 0.001", "seconds_per_sample = 0.0001").replace(
        "tail_seconds = 10.0", "tail_seconds = 0.0"
    )
    text = text.replace("round_seconds = 0.5", "round_seconds = 0.39")
    plan = fj.solve(scenario(text).problem())
    assert plan.operating_points.tolist() == [0, 0, 0, 1, 1]


def test_the_downlink_may_be_free_fixed_or_weighted():
    free = scenario(TEXT.replace("[training]", '[training]\ndownlink = "free"')).problem()
    assert free.server is None
    fixed = scenario(TEXT.replace("[training]", "downlink_sparsity = 7\n[training]")).problem()
    assert fj.solve(fixed).downlink_sparsity == 7.0
    ranged = scenario(TEXT.replace("[training]", "downlink_sparsity = {min = 2, max = 3}\n[training]")).problem()
    assert ranged.server.sparsity == (2.0, 3.0)
    weighted = scenario(TEXT.replace("q = 0.564", "q = 0.564\ndownlink_weight = 0.25")).problem()
    assert weighted.server.weight == 0.25


def test_a_range_of_clocks_becomes_points_from_the_best_one_up():
    gpu = """
joules_per_bit = 1e-8
[device.gpu]
static_watts = 5.0
memory_watts_per_hertz = 1e-9
core_watts_per_volt2_hertz = 1e-8
static_seconds = 0.001
memory_cycles = 1e6
core_cycles = 1e7
memory_hertz = 1e9
core_volts = {base = 0.5, per_hertz = 3e-10}
core_hertz = {min = 3e8, max = 2e9}
"""
    text = TEXT[: TEXT.index('[[device]]\nname = "board"')] + '[[device]]\nname = "gpu"' + gpu
    points = scenario(text).fleet.operating_points
    joules, seconds = points.joules_per_step[:, -1], points.seconds_per_step[:, -1]
    assert points.count == 8
    assert np.all(np.diff(joules) > 0.0)
    assert np.all(np.diff(seconds) < 0.0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tail_watts = 1.0", "tail_watts = -1.0", "radio.tail_watts must be at least 0, got -1.0"),
        ("downlink_watts = 1.2\n", "", "radio.downlink_watts is missing"),
        ("batch_size = 16", 'batch_size = "all"', "need training.batch_size, a number"),
        ("joules_per_step = 0.001\n", "joules_per_step = 0.001\ntail_watts = 2.0\n", "tail_watts must be absent"),
        ("[training]", "downlink_sparsity = 0.5\n[training]", "limits.downlink_sparsity must be at least 1, got 0.5"),
        ("[training]", "downlink_sparsity = {min = 3, max = 2}\n[training]", "must be at most max = 2, got 3"),
        ("q = 0.564", "q = 0.564\ndownlink_weight = -1", "rounds.downlink_weight must be at least 0, got -1"),
        ("[[device.point]]\ncore_hertz", "joules_per_step = 1.0\n[[device.point]]\ncore_hertz", "needs exactly one of"),
        ("joules_per_step = 0.01\n", "", "point[0].joules_per_step is missing"),
        ("count = 3\n", 'count = 3\nprovenance = "guessed"\n', "provenance must be 'measured', 'fitted'"),
        ("count = 3\n", 'count = 3\nprovenance = {luck = "measured"}\n', "luck is not a known key"),
    ],
)
def test_bad_costs_are_refused_in_one_sentence(old, new, says):
    assert old in TEXT
    with pytest.raises(fj.InvalidInputError) as refusal:
        scenario(TEXT.replace(old, new, 1)).problem()
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
