"""Meters of energy: NVML, RAPL, power rails and batteries, and how to measure with them. docs/measuring.md."""
