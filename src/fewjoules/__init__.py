"""FewJoules: federated learning for the fewest joules.

Plan how sparse each device's updates should be and how many local steps to take, with a proof of optimality.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fewjoules import codec
from fewjoules.codec.update import SparseUpdate
from fewjoules.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds, RoundsModel
from fewjoules.errors import (
    CorruptPayloadError,
    DivergedError,
    FewJoulesError,
    FewJoulesWarning,
    InfeasiblePlanError,
    InvalidInputError,
    TargetOutOfReachError,
)
from fewjoules.extras import require_extra
from fewjoules.physics.availability import Availability
from fewjoules.physics.fleet import Fleet
from fewjoules.physics.message_size import MessageSize
from fewjoules.physics.points import OperatingPoints
from fewjoules.planner import schemes
from fewjoules.planner.downlink import Downlink
from fewjoules.planner.plan import Plan
from fewjoules.planner.problem import ControlProblem
from fewjoules.planner.recipe import Recipe
from fewjoules.planner.schemes import solve

if TYPE_CHECKING:
    from fewjoules import loggers
    from fewjoules.comparing.compare import compare
    from fewjoules.comparing.result import Comparison
    from fewjoules.runs.callbacks import Callback, EarlyStopping, OngoingRun
    from fewjoules.runs.resume import resume
    from fewjoules.runs.run import Run
    from fewjoules.runs.sources import ClientSlices
    from fewjoules.runs.train import train
    from fewjoules.runs.tune import tune
    from fewjoules.scenario import Scenario

__version__ = "0.2.0"

__all__ = [
    "Availability",
    "BoundRounds",
    "Callback",
    "ClientSlices",
    "Comparison",
    "ControlProblem",
    "CorruptPayloadError",
    "DivergedError",
    "Downlink",
    "EarlyStopping",
    "FewJoulesError",
    "FewJoulesWarning",
    "Fleet",
    "InfeasiblePlanError",
    "InvalidInputError",
    "MessageSize",
    "OngoingRun",
    "OperatingPoints",
    "PaperRounds",
    "Plan",
    "PowerLawRounds",
    "Recipe",
    "RoundsModel",
    "Run",
    "Scenario",
    "SparseUpdate",
    "TargetOutOfReachError",
    "codec",
    "compare",
    "loggers",
    "resume",
    "schemes",
    "solve",
    "train",
    "tune",
]


# module of each name that is loaded on first use: pydantic and PyTorch are slow to import, and PyTorch is an extra
_LATE = {
    "Callback": "runs.callbacks",
    "ClientSlices": "runs.sources",
    "Comparison": "comparing.result",
    "compare": "comparing.compare",
    "EarlyStopping": "runs.callbacks",
    "OngoingRun": "runs.callbacks",
    "Run": "runs.run",
    "Scenario": "scenario",
    "resume": "runs.resume",
    "train": "runs.train",
    "tune": "runs.tune",
}


def __getattr__(name: str) -> Any:
    if name == "loggers":
        return importlib.import_module("fewjoules.loggers")
    if name not in _LATE:
        raise AttributeError(f"module 'fewjoules' has no attribute {name!r}")
    module = _LATE[name]
    if module != "scenario":
        require_extra("train", f"fewjoules.{name}")
    return getattr(importlib.import_module(f"fewjoules.{module}"), name)
