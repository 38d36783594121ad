"""Runs from start to finish: tasks, results folders, and results read back from them."""
