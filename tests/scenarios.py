"""A scenario that several tests plan."""

import re
from pathlib import Path

import fewjoules as fj


def without_tails() -> fj.Scenario:
    """The embedded scenario with cheap radios, no tail and no charged downlink: its groups differ in their plans."""
    text = fj.Scenario.embedded().text
    for old, new in (
        ('profile = "lte-phone"', "joules_per_step = 0.001\nseconds_per_step = 0.0005"),
        ("power_watts = .*", "power_watts = 0.2"),
        ('downlink = "charged"', ""),
    ):
        text, changed = re.subn(old, new, text)
        assert changed
    return fj.Scenario.from_text(text, "without tails", Path())
