"""Costs of an operation become costs of a sample by the operations of the model."""

import subprocess
import sys

import pytest

import fewjoules as fj
from tests.scenario.test_own_architecture import NETWORKS, SCENARIO
from tests.test_bad_input import assert_refused, run, write

OWN_FLOPS = 6 * (64 * 12 + 12 * 10)
BY_STEP = "joules_per_step = 1e-3"
BY_OPERATION = "joules_per_flop = 2e-10"
GPU = "[device.gpu]\nstatic_watts = 1.0\nmemory_watts_per_hertz = 0.0\ncore_watts_per_volt2_hertz = 0.0\n\
static_seconds = 1.0\nmemory_cycles = 0.0\ncore_cycles = 0.0\ncore_volts = 1.0\ncore_hertz = 1.0\nmemory_hertz = 1.0\n"


def scenario(compute=BY_OPERATION, model='architecture = "cnn"'):
    """The scenario of own networks with another way of computing and another model."""
    assert BY_STEP in SCENARIO
    return SCENARIO.replace('architecture = "my_networks:small"', model).replace(BY_STEP, compute)


def fleet_of(folder, **changes):
    return fj.Scenario.from_toml(write(folder, scenario(**changes))).fleet


@pytest.mark.parametrize(
    ("model", "flops"),
    [
        ('architecture = "softmax"', 6 * 640),
        ('architecture = "my_networks:small"', OWN_FLOPS),
        ("parameters = 1000\nflops_per_sample = 5e6", 5e6),
        ('architecture = "softmax"\nflops_per_sample = 5000', 5000),
    ],
)
def test_a_sample_costs_its_operations(tmp_path, monkeypatch, model, flops):
    write(tmp_path, NETWORKS, "my_networks.py")
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    fleet = fleet_of(tmp_path, model=model, compute=f"{BY_OPERATION}\nseconds_per_flop = 1e-11")
    assert fleet.joules_per_sample == pytest.approx([2e-10 * flops] * 3)
    assert fleet.seconds_per_sample == pytest.approx([1e-11 * flops] * 3)
    assert fleet.joules_per_step == pytest.approx([0.0] * 3)


def test_a_step_may_have_a_fixed_part_beside_its_operations(tmp_path):
    compute = f"{BY_OPERATION}\nseconds_per_flop = 1e-11\njoules_per_step = 0.25\nseconds_per_step = 0.5"
    fleet = fleet_of(tmp_path, compute=compute)
    assert (fleet.joules_per_step[0], fleet.seconds_per_step[0]) == (0.25, 0.5)
    assert fleet.joules_per_sample[0] > 0.0


def test_operations_without_seconds_leave_the_time_unknown(tmp_path):
    assert fleet_of(tmp_path).seconds_per_step is None
    refusal = run("plan", write(tmp_path, scenario().replace("[limits]", "[limits]\nround_seconds = 1.0")))
    assert_refused(refusal, "seconds_per_")


def test_parameters_alone_do_not_tell_the_operations(tmp_path):
    refusal = run("plan", write(tmp_path, scenario(model="parameters = 1000")))
    assert_refused(refusal, "model.flops_per_sample is missing", "joules_per_flop")


def test_operations_of_a_network_and_data_of_ones_own_are_asked_for_with_how_to_get_them(tmp_path):
    write(tmp_path, "from torch import nn\n\ndef net():\n    return nn.Linear(6, 2)\n", "net_for_own_data.py")
    text = scenario(model='architecture = "net_for_own_data:net"')
    refusal = run("plan", write(tmp_path, text.replace('data = "digits"', 'data = "my_data:clients"')))
    assert_refused(refusal, "model.flops_per_sample is missing", "your own", "six for each multiply-add")


def test_operations_of_a_network_that_cannot_be_counted_are_asked_for(tmp_path, monkeypatch):
    networks = NETWORKS.replace("nn.Sequential(nn.Flatten(), *layers)", "nn.Sequential(*layers)")
    write(tmp_path, networks, "my_networks.py")
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    refusal = run("plan", write(tmp_path, scenario(model='architecture = "my_networks:small"')))
    assert_refused(refusal, "model.flops_per_sample is missing", "my_networks:small")


@pytest.mark.parametrize(
    ("compute", "says"),
    [
        ("", ["joules_per_step", "joules_per_flop", "[device.gpu]", "none"]),
        (f"{BY_OPERATION}\n{{gpu}}", ["joules_per_flop and [device.gpu]"]),
        (f"{BY_OPERATION}\njoules_per_sample = 1.0", ["joules_per_sample must be absent"]),
        (f"{BY_OPERATION}\nseconds_per_sample = 1.0", ["seconds_per_sample must be absent"]),
        (f"{BY_STEP}\nseconds_per_flop = 1.0", ["joules_per_flop is missing"]),
        (f"{BY_OPERATION}\nseconds_per_step = 1.0", ["seconds_per_flop is missing"]),
        ("joules_per_flop = -1.0", ["joules_per_flop must be at least 0, got -1"]),
    ],
)
def test_computing_takes_one_form(tmp_path, compute, says):
    text = scenario(compute=compute.replace("{gpu}", ""))
    if "{gpu}" in compute:
        text = text.replace("[training]", f"{GPU}[training]")
    assert_refused(run("plan", write(tmp_path, text)), "device-1", *says)


@pytest.mark.parametrize("flops", ["0", "-1", "inf", '"1e6"'])
def test_operations_out_of_range_are_refused(tmp_path, flops):
    refusal = run("plan", write(tmp_path, scenario(model=f"parameters = 1000\nflops_per_sample = {flops}")))
    assert_refused(refusal, "model.flops_per_sample")


def test_planning_by_operations_loads_no_pytorch(tmp_path):
    path = write(tmp_path, scenario())
    code = (
        f"import sys, fewjoules; fewjoules.Scenario.from_toml({str(path)!r}).problem(); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
