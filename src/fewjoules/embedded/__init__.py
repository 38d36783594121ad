"""Scenarios that ship with FewJoules."""
