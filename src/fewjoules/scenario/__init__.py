"""Scenario files: their meaning (``Scenario``) and their form (``schema``)."""

from fewjoules.scenario.scenario import Scenario

__all__ = ["Scenario"]
