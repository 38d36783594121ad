"""Clients on a GPU."""
