"""Architectures by name: every module here that defines ``ARCHITECTURES`` is registered."""

import importlib
import pkgutil

from fewjoules.engine.models.architectures.base import Architecture, Images, Shape, Text

__all__ = ["ARCHITECTURES", "Architecture", "Images", "Shape", "Text"]

_MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
ARCHITECTURES: dict[str, Architecture] = {
    one.name: one for module in _MODULES for one in getattr(module, "ARCHITECTURES", ())
}
