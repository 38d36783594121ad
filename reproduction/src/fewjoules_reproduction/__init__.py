"""Reproduction of the paper's evaluation: its figures, its trainings and a verdict on each of its claims."""
