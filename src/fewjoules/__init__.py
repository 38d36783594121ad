"""FewJoules: federated learning for the fewest joules.

Plan how sparse each device's updates should be and how many local steps to take, with a proof of optimality.
"""

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
    from fewjoules.runs.train import Run, train
    from fewjoules.runs.tune import tune
    from fewjoules.scenario import Scenario

__version__ = "0.1.0"

__all__ = [
    "BoundRounds",
    "ControlProblem",
    "CorruptPayloadError",
    "DivergedError",
    "Downlink",
    "FewJoulesError",
    "FewJoulesWarning",
    "Fleet",
    "InfeasiblePlanError",
    "InvalidInputError",
    "MessageSize",
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
    "schemes",
    "solve",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Load pydantic and PyTorch on first use: they are slow to import."""
    if name == "Scenario":
        from fewjoules.scenario import Scenario

        return Scenario
    if name in ("Run", "train"):
        from fewjoules.runs import train

        return getattr(train, name)
    if name == "tune":
        from fewjoules.runs import tune

        return tune.tune
    raise AttributeError(f"module 'fewjoules' has no attribute {name!r}")
