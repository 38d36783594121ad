"""FedJoule: federated learning for the fewest joules.

Plan how sparse each device's updates should be and how many local steps to take, with a proof of optimality.
"""

from typing import TYPE_CHECKING, Any

from fedjoule import codec
from fedjoule.codec.update import SparseUpdate
from fedjoule.convergence.rounds import BoundRounds, PaperRounds, PowerLawRounds, RoundsModel
from fedjoule.errors import (
    CorruptPayloadError,
    DivergedError,
    FedJouleError,
    FedJouleWarning,
    InfeasiblePlanError,
    InvalidInputError,
)
from fedjoule.physics.fleet import Fleet
from fedjoule.planner import schemes
from fedjoule.planner.plan import Plan
from fedjoule.planner.problem import ControlProblem
from fedjoule.planner.schemes import solve

if TYPE_CHECKING:
    from fedjoule.engine.train import Run, train
    from fedjoule.scenario import Scenario

__version__ = "0.1.0"

__all__ = [
    "BoundRounds",
    "ControlProblem",
    "CorruptPayloadError",
    "DivergedError",
    "FedJouleError",
    "FedJouleWarning",
    "Fleet",
    "InfeasiblePlanError",
    "InvalidInputError",
    "PaperRounds",
    "Plan",
    "PowerLawRounds",
    "RoundsModel",
    "Run",
    "Scenario",
    "SparseUpdate",
    "codec",
    "schemes",
    "solve",
    "train",
]


def __getattr__(name: str) -> Any:
    """pydantic, which reads files, and PyTorch are slow to import: load them only for those who use them."""
    if name == "Scenario":
        from fedjoule.scenario import Scenario

        return Scenario
    if name in ("Run", "train"):
        from fedjoule.engine import train

        return getattr(train, name)
    raise AttributeError(f"module 'fedjoule' has no attribute {name!r}")
