"""Made-up results of pilots."""

import math

from fewjoules.tuning.pilot import PilotResult, PilotSpec


def spec_of(**fields):
    usual = {"options": {"learning_rate": 0.1}, "local_steps": 5, "sparsity": (8.0, 8.0), "steps": 100}
    return PilotSpec(**usual | fields)


def result_of(steps, losses, metrics=None, *, spec=None, rounds=None, **fields):
    chosen = spec or spec_of()
    return PilotResult(
        spec=chosen,
        rounds=math.ceil(steps[-1] / chosen.local_steps) if rounds is None else rounds,
        steps=tuple(map(int, steps)),
        losses=tuple(map(float, losses)),
        metrics=tuple(map(float, losses if metrics is None else metrics)),
        **{"reached": False, "diverged": False} | fields,
    )
