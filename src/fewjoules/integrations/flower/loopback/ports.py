"""A free port on 127.0.0.1."""

import socket

from fewjoules.integrations.flower.loopback.credentials import HOST

PORT_TAKEN = "address already in use"  # in the log of a program of Flower
PORT_TRIES = 5


def free_port() -> int:
    """Return a port that is free now; another process may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
