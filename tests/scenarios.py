"""A scenario that several tests plan."""

from pathlib import Path

import fewjoules as fj

RADIO_GROUPS = """version = 1

[model]
architecture = "cnn"

[rounds]
kind = "power-law"
tau = 164.3
c = 0.0221
a = 0.568
q = 0.564
intervals = {tau = [151.2, 178.6], c = [0.00939, 0.0520], a = [0.455, 0.681], q = [0.465, 0.684]}
correlations = [-0.85268, 0.54149, 0.75659, -0.70740, -0.94445, 0.48680]

[limits]
sparsity = {min = 1.0, max = 400.0}
local_steps = {min = 1, max = 20}

[training]
data = "digits"
learning_rate = 0.1
batch_size = 16
target_accuracy = 0.95
channel = "drawn"

[[device]]
name = "group-1"
count = 3
joules_per_step = 0.001
seconds_per_step = 0.0005
[device.radio]
power_watts = 0.2
bandwidth_hertz = 0.7e6
mean_snr_db = 10.0

[[device]]
name = "group-2"
count = 3
joules_per_step = 0.001
seconds_per_step = 0.0005
[device.radio]
power_watts = 0.2
bandwidth_hertz = 0.9e6
mean_snr_db = 10.0

[[device]]
name = "group-3"
count = 3
joules_per_step = 0.001
seconds_per_step = 0.0005
[device.radio]
power_watts = 0.2
bandwidth_hertz = 1.1e6
mean_snr_db = 10.0

[[device]]
name = "group-4"
count = 3
joules_per_step = 0.001
seconds_per_step = 0.0005
[device.radio]
power_watts = 0.2
bandwidth_hertz = 1.3e6
mean_snr_db = 10.0
"""


def without_tails() -> fj.Scenario:
    """Twelve phones in four groups whose radios have no tail and whose downlink is free: their plans differ."""
    return fj.Scenario.from_text(RADIO_GROUPS, "without tails", Path())
