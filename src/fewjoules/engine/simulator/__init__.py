"""Simulation of all clients of a federation on one machine."""
