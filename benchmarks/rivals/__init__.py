"""Contestants of benchmarks/simulator.py, each run in a process of its own."""
