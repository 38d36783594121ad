"""Runs from start to finish: their tasks, their folders, and what is read back from them."""
