"""Which pilot to run next, and whether it is worth its price.

A decision is a plan. Under each particle of the belief a plan costs so many joules; the best decision is the one with
the least expected joules. The expected regret of a decision is what knowing the law would save. A pilot at some plan
would show steps that scatter as the belief says; each outcome changes the belief and with it the decision. The expected
fall of the least expected joules is what the pilot is worth for one training. The scale of the law must be known from a
pilot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewjoules.arrays import FloatArray
from fewjoules.tuning.belief import Belief, Choice

OUTCOMES = 48  # simulated outcomes of a pilot


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan to choose: what it sends, and the joules of one of its rounds."""

    choice: Choice
    round_joules: float


@dataclass(frozen=True, slots=True)
class Worth:
    """A pilot to run: which decision it tries, and the joules it is expected to save in each later training."""

    decision: int
    saves_joules: float


def joules_table(belief: Belief, decisions: Sequence[Decision]) -> FloatArray:
    """Return the joules of a training by each decision under each particle, (particles, decisions)."""
    spread = 0.5 * belief.tau_variance  # of the mean of a log-normal tau
    columns = [
        np.exp(belief.log_steps(one.choice) + spread) / one.choice.local_steps * one.round_joules for one in decisions
    ]
    return np.stack(columns, axis=1)


def best_decision(belief: Belief, decisions: Sequence[Decision]) -> int:
    """Return the number of the decision with the least expected joules."""
    return int(np.argmin(belief.weights @ joules_table(belief, decisions)))


def expected_regret(belief: Belief, chosen: Decision, others: Sequence[Decision]) -> float:
    """Return the joules that a decision is expected to cost above the cheapest one under the true law."""
    table = joules_table(belief, [chosen, *others])
    return float(belief.weights @ (table[:, 0] - table.min(axis=1)))


def most_useful_pilot(
    belief: Belief, decisions: Sequence[Decision], deviation: float, rng: np.random.Generator
) -> Worth:
    """Return the decision whose pilot, with noise of this deviation, is expected to save the most joules."""
    values = [_expected_saving(belief, decisions, one.choice, deviation, rng) for one in decisions]
    best = int(np.argmax(values))
    return Worth(best, values[best])


def _expected_saving(
    belief: Belief, decisions: Sequence[Decision], tried: Choice, deviation: float, rng: np.random.Generator
) -> float:
    """Return the expected fall of the least expected joules after a pilot at ``tried``."""
    table = joules_table(belief, decisions)
    stays = int(np.argmin(belief.weights @ table))
    means = belief.log_steps(tried)
    variance = deviation**2 + belief.tau_variance
    truths = rng.choice(len(means), size=OUTCOMES, p=belief.weights)
    outcomes = means[truths] + np.sqrt(variance) * rng.standard_normal(OUTCOMES)
    surprise = outcomes[:, None] - means[None, :]
    likelihood = np.exp(-0.5 * surprise**2 / variance) * belief.weights
    posterior = likelihood / np.maximum(likelihood.sum(axis=1, keepdims=True), 1e-300)
    gain = belief.tau_variance / variance  # by which an outcome moves ln tau of a particle
    moved = np.exp(gain * (surprise - 0.5 * belief.tau_variance))
    expected = (posterior * moved) @ table
    return float(np.mean(expected[:, stays] - expected.min(axis=1)))
