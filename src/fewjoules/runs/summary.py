"""What a run came to, as run.json tells it. docs/ledger.md describes the file."""

import math
from typing import Any

import numpy as np

from fewjoules import __version__
from fewjoules.ledger.schema import RowArray
from fewjoules.ledger.target import OWN, USUAL
from fewjoules.runs.files import RUN_VERSION
from fewjoules.runs.training import Training


def summary_of(training: Training) -> dict[str, Any]:
    """Return the outcome of a run that is over."""
    loop, simulator = training.loop, training.simulator
    options, totals = simulator.options, loop.totals
    metrics = loop.metrics.rows()
    target = options.target
    at = None if target is None else target.first_row(metrics)
    planned = totals.planned_uplink_joules
    return {
        "version": RUN_VERSION,
        "finished": True,
        "fewjoules_version": __version__,
        "stop_reason": training.reason,
        **{name: getattr(options, name) for name in USUAL},
        **({OWN: options.target_metric} if options.target_metric is not None else {}),
        "target_reached": None if target is None else at is not None,
        "rounds": simulator.state.round,
        "returns": list(simulator.state.returns),
        "learning_rate": float(options.learning_rate) * 0.5 ** len(simulator.state.returns),
        "rounds_to_target": None if at is None else int(metrics["round"][at]),
        "joules": _known(totals.joules),
        "joules_to_target": _at(metrics, "total_joules", at),
        "radio_joules": _known(totals.radio_joules),
        "compute_joules": _known(totals.compute_joules),
        "seconds": _known(totals.seconds),
        "seconds_to_target": _at(metrics, "total_seconds", at),
        "payload_bytes": totals.payload_bytes,
        "realised_over_planned_radio": _known(totals.uplink_joules / planned) if planned > 0.0 else None,
        "test_accuracy": _known(loop.last_test[1]),
        "test_loss": _known(loop.last_test[0]),
        **({"test_metrics": {name: _known(one) for name, one in loop.own_metrics.items()}} if loop.own_metrics else {}),
        "local_steps": options.local_steps,
        "sparsity": np.asarray(options.sparsity).tolist(),
        "parameters": simulator.parameters.size,
        "clients": options.clients,
        "seed": options.seed,
        "precision": options.precision,
        "execution": simulator.execution.name,
    }


def _at(metrics: RowArray, column: str, row: int | None) -> float | None:
    return None if row is None else _known(float(metrics[column][row]))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
