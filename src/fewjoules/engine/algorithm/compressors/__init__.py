"""Compressors by name, one per module: every module here that defines a ``COMPRESSOR`` is registered."""

import importlib
import pkgutil

from fewjoules.engine.algorithm.compressors.base import Compressor

_MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
COMPRESSORS: dict[str, Compressor] = {
    module.COMPRESSOR.name: module.COMPRESSOR for module in _MODULES if hasattr(module, "COMPRESSOR")
}
