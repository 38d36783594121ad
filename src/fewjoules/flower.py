"""FewJoules on Flower, with the names to import: ``from fewjoules.flower import FewJoulesStrategy, fewjoules_mod``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewjoules.integrations.flower.backend import RoundRules
    from fewjoules.integrations.flower.client import client_app
    from fewjoules.integrations.flower.mod import fewjoules_mod
    from fewjoules.integrations.flower.screening import Screening
    from fewjoules.integrations.flower.strategy import FewJoulesStrategy

__all__ = ["FewJoulesStrategy", "RoundRules", "Screening", "client_app", "fewjoules_mod"]

_HOMES = {
    "FewJoulesStrategy": "strategy",
    "RoundRules": "backend",
    "Screening": "screening",
    "client_app": "client",
    "fewjoules_mod": "mod",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: a node that only passes messages to its worker needs no PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fewjoules.flower' has no attribute {name!r}")
    from importlib import import_module

    from fewjoules.extras import extras_explained, require_extra

    require_extra("flower", "fewjoules.flower", "flwr")
    with extras_explained(f"fewjoules.flower.{name}"):
        return getattr(import_module(f"fewjoules.integrations.flower.{_HOMES[name]}"), name)
