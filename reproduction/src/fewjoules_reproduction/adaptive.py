"""Dense local SGD whose H follows the resources that are left, after [WANG19]."""

import dataclasses
from collections.abc import Callable
from typing import Any

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.report import Report
from fewjoules.runs.task import ScenarioTask
from fewjoules.runs.training import DIVERGED, Training, continued, in_memory, train_task
from fewjoules_reproduction.estimates import ClientGradients, adaptive_local_steps, estimate_drift

ADAPTATION_STEPS = 40  # local steps between two choices of H
ESTIMATE_BATCH = 128
LARGEST_STEPS = 50


def train_adaptively(
    task: ScenarioTask,
    options: TrainingOptions,
    graphs: dict[Any, Any],
    on_round: Callable[[Report], None] | None = None,
) -> Training:
    """As many local steps as ``options`` have rounds, for at most the joules of as many dense rounds with H = 1."""
    fleet, rate = task.scenario.problem().fleet, float(options.learning_rate)
    gradients = ClientGradients(task.model, task.loss, task.federation, seed=options.seed)
    step = float(fleet.joules_per_step.sum())
    upload = float((32.0 * task.scenario.parameters * fleet.joules_per_bit + fleet.message_joules).sum())
    budget, left, local_steps = options.rounds * (step + upload), options.rounds, 1
    training: Training | None = None
    while True:
        before = 0 if training is None else training.rounds
        rounds = max(1, min(ADAPTATION_STEPS, left) // local_steps)
        part = dataclasses.replace(
            options, local_steps=local_steps, rounds=before + rounds, evaluate_every=before + rounds
        )
        opened = in_memory if training is None else continued(training)
        training = train_task(task, part, opened=opened, graphs=graphs, keep_diverged=True, on_round=on_round)
        left -= rounds * local_steps
        if training.reason == DIVERGED or left == 0:
            return training
        weights = training.simulator.state.weights
        chosen = adaptive_local_steps(
            estimate_drift(gradients, weights, rate, batch=ESTIMATE_BATCH, draw=before),
            learning_rate=rate,
            step_joules=step,
            round_joules=upload,
            budget_joules=budget - training.loop.totals.joules,
            last=local_steps,
            largest=LARGEST_STEPS,
        )
        local_steps = min(chosen, left)
