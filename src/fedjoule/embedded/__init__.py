"""Scenarios that ship with FedJoule."""
