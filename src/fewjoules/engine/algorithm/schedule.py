"""Step sizes of a run: constant, falling as a cosine or in steps, after a warm-up, or by a function."""

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.engine.algorithm.options import LARGEST_RATE, TrainingOptions
from fewjoules.engine.algorithm.step_sizes import StepSizes


def learning_rates(options: TrainingOptions, number: int) -> FloatArray:
    """Return the step sizes of the H local steps of round ``number`` (from 1)."""
    if isinstance(options.learning_rate, StepSizes):
        return options.learning_rate.of_round(number)
    rates = _scheduled(options, options.learning_rate, number)
    if number < options.warmup_rounds:
        rates = rates * (number / options.warmup_rounds)
    return rates


def _scheduled(options: TrainingOptions, rate: float, number: int) -> FloatArray:
    first_step = (number - 1) * options.local_steps
    if options.schedule == "cosine":
        steps = np.arange(first_step, first_step + options.local_steps)
        return rate * 0.5 * (1.0 + np.cos(np.pi * steps / (options.rounds * options.local_steps)))
    for last in options.decay_rounds:
        if number > last:
            rate = min(rate * options.decay_factor, LARGEST_RATE)
    return np.full(options.local_steps, rate)
