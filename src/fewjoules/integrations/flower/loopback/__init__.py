"""A whole Flower deployment on this machine: ``Loopback`` starts it, ``Loopback.run`` runs an app on it."""

from fewjoules.integrations.flower.loopback.app_run import AppRun
from fewjoules.integrations.flower.loopback.deployment import HEARTBEAT_WINDOW_SECONDS, Loopback

__all__ = ["HEARTBEAT_WINDOW_SECONDS", "AppRun", "Loopback"]
