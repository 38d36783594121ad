"""Modules that need Triton, for tests that are marked ``gpu``: such a test is collected without Triton, too."""

import importlib


class Late:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        return getattr(importlib.import_module(self._name), name)
