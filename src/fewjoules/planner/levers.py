"""The levers from the paper's plan to fewest: their names in order, and how tables call them."""

from collections.abc import Mapping

from fewjoules.planner.schemes import FEWEST

STEP_SIZE, OPTIMISER, AVERAGING, VALUES = "step-size", "optimiser", "averaging", "values"
LEVERS: Mapping[str, str] = {
    "flexible": "flexible",
    STEP_SIZE: "+ step size",
    OPTIMISER: "+ optimiser",
    AVERAGING: "+ mean of models",
    VALUES: "+ values",
    FEWEST: FEWEST,
}
