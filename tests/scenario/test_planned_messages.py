"""What a plan says a message costs, beside what training then spends on it."""

import numpy as np
import pytest
import torch

import fewjoules as fj
from fewjoules.engine.models.networks import build
from tests.test_bad_input import run, write

SCENARIO = """
version = 1
[model]
architecture = "{architecture}"
[rounds]
kind = "power-law"
tau = 1300.0
c = 0.01
a = 0.5
q = 0.5
[limits]
sparsity = {{min = 1.0, max = 1000.0}}
local_steps = {{min = 1, max = 50}}
[training]
data = "digits"
learning_rate = 0.1
batch_size = 4
[[device]]
count = 2
joules_per_step = 0.001
joules_per_bit = 1e-6
seconds_per_bit = 1e-6
seconds_per_step = 0.01
"""


@pytest.mark.parametrize("architecture", ["resnet20", "resnet20-gn"])
@pytest.mark.parametrize("sparsity", [4.5, 100.0, 1000.0])
def test_a_message_costs_about_what_was_planned(architecture, sparsity, tmp_path):
    scenario = fj.Scenario.from_text(SCENARIO.format(architecture=architecture), "scenario", tmp_path)
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 8, 1, 8, 8))).float()
    run = fj.train(
        build(architecture, channels=1, height=8, width=8, classes=10, seed=0),
        clients=[(device, torch.arange(8) % 10) for device in images],
        fleet=scenario.fleet,
        sparsity=sparsity,
        local_steps=1,
        rounds=2,
        learning_rate=0.1,
        batch_size=4,
        device="cpu",
    )
    planned = float(scenario.problem().round_costs.message_joules(sparsity)[0])
    # (25) has 33 bits for a value, of which the codec saves up to a quarter
    assert 0.7 * planned < run.ledger["uplink_joules"].mean() < 1.05 * planned
    seconds = scenario.problem().device_seconds(1, sparsity)
    assert seconds[0] == pytest.approx(planned + 0.01, rel=1e-12)


@pytest.mark.parametrize(
    ("architecture", "says"),
    [
        ("resnet20", ", 269,434 parameters and 1,376 statistics, sent whole limits:"),
        ("cnn", ", 13,706 parameters limits:"),
    ],
)
def test_a_plan_says_what_is_sent_beside_the_parameters(architecture, says, tmp_path):
    done = run("plan", write(tmp_path, SCENARIO.format(architecture=architecture)))
    assert done.exit_code == 0, done.stderr
    assert says in " ".join(done.stdout.split())
