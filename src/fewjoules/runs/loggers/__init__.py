"""Callbacks that write the progress of a run for other programs."""
