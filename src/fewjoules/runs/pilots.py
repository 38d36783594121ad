"""Pilot runs in the simulator: short trainings that are judged by data kept aside."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.report import Report
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError
from fewjoules.ledger.target import AT_LEAST, AT_MOST, Target
from fewjoules.ledger.target import OPTIONS as TARGETS
from fewjoules.physics.message_fit import MessageObservation
from fewjoules.runs.holdout import hold_out
from fewjoules.runs.message_sizes import mean_broadcast, observed_broadcast, observed_messages
from fewjoules.runs.training import DIVERGED, Task, Training, in_memory, train_task
from fewjoules.tuning.aim import Aim
from fewjoules.tuning.pilot import PilotResult, PilotSpec, has_blown_up

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import Graphs

HELD_ASIDE = 0.1
SMALL, MORE_ASIDE = 10_000, 0.2  # with fewer samples in all, a larger part is kept aside
EVALUATE_STEPS = 10
MOST_EVALUATIONS = 80
_NOT_OF_PILOTS = (
    *(*TARGETS, "energy_budget_joules", "time_budget_seconds"),
    *("availability", "sampling"),  # pilots spend nothing and take no time: they draw uniformly
)


class Pilots:
    """Trains pilots of one task, one after the other."""

    def __init__(
        self,
        task: Task,
        options: Mapping[str, Any],
        aim: Aim,
        *,
        seed: int,
        model_of: Callable[[int], nn.Module] | None = None,
    ) -> None:
        """Keep data aside; ``options`` are those of ``TrainingOptions`` that the recipe leaves alone.

        ``model_of`` makes the model with the initial weights of another seed, for pilots from another start. Without it
        all begin with the weights of the task, as its trainings do.
        """
        total = sum(part.size for part in task.federation.parts)
        self._task = replace(hold_out(task, MORE_ASIDE if total < SMALL else HELD_ASIDE, seed), fleet=None)
        own = {name: value for name, value in options.items() if name not in _NOT_OF_PILOTS}
        if own.get("schedule") == "cosine":  # whose length would be that of a pilot
            own["schedule"] = "constant"
        self._options, self._aim, self._seed = own, aim, seed
        self._graphs: Graphs = {}
        self._start: tuple[float, ...] | None = None
        self._model_of = model_of

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self._task.federation.parts)

    def start(self) -> tuple[float, ...]:
        """Return loss, accuracy and, if the target is about it, the user's own metric of the untrained model.

        All are measured on the data kept aside.
        """
        if self._start is None:
            options = self._training_options(
                PilotSpec(options={"learning_rate": 1e-6}, local_steps=1, sparsity=(1.0,) * self.clients, steps=1)
            )
            simulator = Simulator(self._task.model, self._task.federation, options, loss=self._task.loss)
            try:
                evaluate = self._evaluator(simulator)
                loss, accuracy, *own = evaluate(simulator.state.weights, simulator.state.buffers)
                known = dict(zip(evaluate.names, own, strict=True))
                self._start = (loss, accuracy, *([known[self._aim.metric]] if self._aim.metric in known else []))
            finally:
                simulator.close()
            if not math.isfinite(self._aim.of(*self._start)):
                raise InvalidInputError(
                    f"the {self._aim.metric} of the untrained model on the data kept aside must be finite, got "
                    f"{self._aim.of(*self._start)}"
                )
        return self._start

    def run(self, specs: Sequence[PilotSpec]) -> list[PilotResult]:
        """Train pilots and return their results in order."""
        return [self.train(spec) for spec in specs]

    def train(self, spec: PilotSpec) -> PilotResult:
        """Train one pilot until it ends."""
        watch = _Watch(self._aim, spec, self.start())
        training = train_task(
            self._task_from(spec.start),
            self._training_options(spec),
            opened=watch.opened,
            on_round=watch.note,
            should_stop=watch.has_blown_up,
            graphs=self._graphs,
            keep_diverged=True,
        )
        return watch.result(training)

    def _training_options(self, spec: PilotSpec) -> TrainingOptions:
        every = max(EVALUATE_STEPS, spec.steps / MOST_EVALUATIONS)
        given: dict[str, Any] = {
            "local_steps": spec.local_steps,
            "sparsity": np.array(spec.sparsity),
            "rounds": spec.rounds,
            "seed": self._seed_of(spec.start),
            "evaluate_every": max(1, round(every / spec.local_steps)),
            "downlink": "free",
            "channel": "average",
            "guard": False,
        }
        if spec.level is not None:
            given["target_loss"] = spec.level
        elif spec.to_target:
            given |= target_of(self._aim).option
        if spec.downlink_sparsity is not None:
            given["downlink_sparsity"] = spec.downlink_sparsity
        return TrainingOptions.of(**overridden(self._options, spec.options) | given)

    def _task_from(self, start: int) -> Task:
        """Return the task with the initial weights of a start."""
        if start == 0 or self._model_of is None:
            return self._task
        return replace(self._task, model=self._model_of(self._seed_of(start)))

    def _seed_of(self, start: int) -> int:
        return (self._seed + start) % 2**63

    def _evaluator(self, simulator: Simulator) -> Evaluator:
        assert self._task.test is not None
        return simulator.evaluator(self._task.model, self._task.loss, self._task.test, self._task.metrics)


def target_of(aim: Aim) -> Target:
    """Return the target of a training that has an aim."""
    direction = None if aim.upwards is None else AT_LEAST if aim.upwards else AT_MOST
    return Target(aim.metric, aim.target, direction)


class _Watch:
    """Follows a pilot: keeps its curve, and stops it where its loss blows up."""

    def __init__(self, aim: Aim, spec: PilotSpec, start: tuple[float, ...]) -> None:
        self._aim, self._spec = aim, spec
        self._steps, self._losses, self._metrics = [0], [start[0]], [aim.of(*start)]
        self._broadcasts: list[MessageObservation] = []
        self._diverged = self._reached = False
        self._loop: TrainingLoop | None = None

    def opened(self, simulator: Simulator) -> TrainingLoop:
        """Open the loop of the pilot and keep it."""
        self._loop = in_memory(simulator)
        return self._loop

    def note(self, report: Report) -> None:
        """Add an evaluation to the curve."""
        tested = (report.test_loss, report.test_accuracy, report.metrics.get(self._aim.metric, math.nan))
        if report.round % self._every and report.round != self._spec.rounds:
            return
        value = self._aim.of(*tested)
        metric = value if math.isfinite(value) else math.nan
        if has_blown_up(report.test_loss, self._losses[0]):
            self._diverged = True
            return
        self._steps.append(report.round * self._spec.local_steps)
        self._losses.append(report.test_loss)
        self._metrics.append(metric)
        self._reached |= self._aim.reached(metric)
        self._note_broadcast()

    def _note_broadcast(self) -> None:
        """Note what the server's change takes, where it is charged."""
        assert self._loop is not None
        if self._spec.downlink_sparsity is not None:
            found = observed_broadcast(self._loop.simulator.state, self._loop.simulator.options)
            self._broadcasts += [] if found is None else [found]

    @property
    def _every(self) -> int:
        assert self._loop is not None
        return self._loop.simulator.options.evaluation_rounds

    def has_blown_up(self) -> bool:
        """Whether the loss is beyond hope."""
        return self._diverged

    def result(self, training: Training) -> PilotResult:
        """Return the curve, without the untrained model."""
        diverged = self._diverged or training.reason == DIVERGED
        return PilotResult(
            spec=self._spec,
            rounds=max(1, training.rounds),
            steps=tuple(self._steps[1:]) or (self._spec.local_steps,),
            losses=tuple(self._losses[1:] or self._losses),
            metrics=tuple(self._metrics[1:] or self._metrics),
            reached=self._reached,
            diverged=diverged,
            messages=() if diverged else tuple(observed_messages(training)),
            broadcasts=() if diverged else mean_broadcast(self._broadcasts),
        )
