"""The ClientApp: all training happens in a long-lived worker of the node."""

from fewjoules.flower import client_app

app = client_app("fewjoules_rounds.node:node")
