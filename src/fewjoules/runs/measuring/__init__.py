"""Measure what local steps and messages of a scenario cost on this machine."""
