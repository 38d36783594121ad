"""Clients on the processor."""
