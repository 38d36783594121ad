"""Dense local SGD whose H follows the resources that are left, after [WANG19]."""

import dataclasses
from collections.abc import Callable

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.loss import cross_entropy
from fewjoules.engine.simulator.loop import TrainingLoop
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import DivergedError
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.runs.task import Task
from fewjoules_reproduction.estimates import ClientGradients, adaptive_local_steps, estimate_drift

ADAPTATION_STEPS = 40  # local steps between two choices of H
ESTIMATE_BATCH = 128
LARGEST_STEPS = 50
DIVERGED = "diverged"


def finished(loop: TrainingLoop) -> str:
    """Run the loop; why it ended."""
    try:
        return loop.run()
    except DivergedError:
        return DIVERGED


def train_adaptively(
    task: Task, options: TrainingOptions, new_simulator: Callable[[Task, TrainingOptions], Simulator]
) -> tuple[TrainingLoop, str]:
    """As many local steps as ``options`` have rounds, for at most the joules of as many dense rounds with H = 1."""
    fleet, rate = task.scenario.problem().fleet, options.learning_rate
    gradients = ClientGradients(task.model, cross_entropy, task.federation, seed=options.seed)
    step = float(fleet.joules_per_step.sum())
    upload = float((32.0 * task.scenario.parameters * fleet.joules_per_bit + fleet.message_joules).sum())
    budget, left, local_steps = options.rounds * (step + upload), options.rounds, 1
    loop: TrainingLoop | None = None
    while True:
        before = 0 if loop is None else loop.simulator.state.round
        rounds = max(1, min(ADAPTATION_STEPS, left) // local_steps)
        part = dataclasses.replace(
            options, local_steps=local_steps, rounds=before + rounds, evaluate_every=before + rounds
        )
        loop, reason = _go_on(loop, task, new_simulator(task, part))
        left -= rounds * local_steps
        if reason == DIVERGED or left == 0:
            return loop, reason
        weights = loop.simulator.state.weights
        chosen = adaptive_local_steps(
            estimate_drift(gradients, weights, rate, batch=ESTIMATE_BATCH, draw=before),
            learning_rate=rate,
            step_joules=step,
            round_joules=upload,
            budget_joules=budget - loop.totals.joules,
            last=local_steps,
            largest=LARGEST_STEPS,
        )
        local_steps = min(chosen, left)


def _go_on(loop: TrainingLoop | None, task: Task, simulator: Simulator) -> tuple[TrainingLoop, str]:
    """The next rounds with a simulator of another H, from the state in which the last one ended."""
    try:
        evaluator = simulator.evaluator(task.model, cross_entropy, task.test)
        if loop is None:
            loop = TrainingLoop(simulator, evaluator, RowLog(None, LEDGER), RowLog(None, METRICS))
        else:
            simulator.state = loop.simulator.state
            loop.simulator, loop.evaluator = simulator, evaluator
        return loop, finished(loop)
    finally:
        simulator.close()
