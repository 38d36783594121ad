"""Carry out a training of ``fewjoules.train`` or ``fewjoules.resume``, in memory or in a results folder."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.ranks import Ranks
from fewjoules.engine.report import Report
from fewjoules.errors import FewJoulesWarning
from fewjoules.metering.survey import open_all
from fewjoules.planner.plan import Plan
from fewjoules.runs.callbacks import Callback
from fewjoules.runs.device import device_name, gpu_uuid
from fewjoules.runs.folder import Job, RunSettings, beginning, require_new_folder, train_in_folder
from fewjoules.runs.interrupt import CTRL_C, CTRL_C_OR_KILL, stop_on_signal
from fewjoules.runs.lock import locked
from fewjoules.runs.memory import store_place
from fewjoules.runs.metered import Metered, MeterLog
from fewjoules.runs.own_identity import identity_of_own
from fewjoules.runs.own_settings import save_own_settings
from fewjoules.runs.own_task import CONTINUE
from fewjoules.runs.ranks import joined_ranks, model_of_first, require_alone
from fewjoules.runs.results import rows_of
from fewjoules.runs.run import Run
from fewjoules.runs.training import Task, Training, train_task
from fewjoules.torchrun import is_of_torchrun


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """A training of a user's own model, and how it is carried out."""

    task: Task
    options: TrainingOptions
    plan: Plan | None = None
    name: str = "train"
    folder: Path | None = None
    resume: bool = False
    checkpoint_seconds: float | None = None
    on_round: Callable[[Report], None] | None = None
    callbacks: Sequence[Callback] = ()
    meter: bool = False
    memory_gib: float | None = None
    store_dir: Path | None = None

    def carry_out(self) -> Run:
        """Train until there is a reason to stop; Ctrl-C is one."""
        with joined_ranks() as ranks:
            if self.meter:
                require_alone("a training with meters")
            task = replace(self.task, model=model_of_first(ranks, self.task.model))
            return replace(self, task=task)._carried_out(ranks)

    def _carried_out(self, ranks: Ranks) -> Run:
        with contextlib.ExitStack() as held:
            meters = open_all(gpu_uuid(self.task.federation.device)) if self.meter else ()
            log = held.enter_context(contextlib.closing(MeterLog(meters)))
            signals = CTRL_C_OR_KILL if is_of_torchrun() else CTRL_C  # torchrun ends its processes by SIGTERM
            say = self._say_stopping if ranks.is_first else lambda: None
            should_stop = held.enter_context(stop_on_signal(say, signals))
            if self.folder is None:
                training = train_task(
                    self.task,
                    self.options,
                    on_round=self.on_round,
                    should_stop=should_stop,
                    callbacks=self.callbacks,
                    ranks=ranks,
                    place=store_place(self.memory_gib, self.store_dir),
                    rescue=self._attach,
                )
                training.tell_end()
            else:
                training = self._train_in(self.folder, held, should_stop, log, ranks)
            metered = log.total() if self.meter else None
        return self._run_of(training, metered)

    def _attach(self, training: Training, error: Exception) -> None:
        """Give an error what was trained before it, which nothing else keeps."""
        error.run = self._run_of(training)  # type: ignore[attr-defined]
        error.add_note(f"error.run of this exception is the run up to round {training.rounds}, the last complete one")

    def _run_of(self, training: Training, metered: Metered | None = None) -> Run:
        return Run(
            trained=training.trained_model(self.task.model),
            metrics=rows_of(training.loop.metrics, self.folder),
            ledger=rows_of(training.loop.ledger, self.folder),
            stop_reason=training.reason,
            execution=training.simulator.execution.name,
            metered=metered,
            returns=training.simulator.state.returns,
            folder=self.folder,
        )

    def _train_in(
        self, folder: Path, held: contextlib.ExitStack, should_stop: Callable[[], bool], log: MeterLog, ranks: Ranks
    ) -> Training:
        def begin() -> None:
            if self.resume:
                return  # whoever resumes has locked the folder before reading it
            held.enter_context(locked(folder))
            require_new_folder(folder, CONTINUE)
            used = self.task.federation.device
            device = str(used) if ranks.size == 1 else used.type  # each rank then takes its own GPU
            with beginning(folder):
                save_own_settings(folder, self.options, self.plan, name=self.name, device=device, meter=self.meter)

        settings = RunSettings(
            checkpoint_seconds=self.checkpoint_seconds,
            begin=begin,
            on_round=self.on_round,
            should_stop=should_stop,
            meter=log if self.meter else None,
            callbacks=self.callbacks,
            ranks=ranks,
            memory_gib=self.memory_gib,
        )
        return train_in_folder(self._job(), folder, settings, resume=self.resume)[0]

    def _job(self) -> Job:
        task, clients = self.task, self.options.clients
        names = None if task.fleet is None else task.fleet.names
        facts = {
            "scenario": "fewjoules.train",
            "scheme": self.name,
            "devices": {"names": list(names or (f"client {number}" for number in range(clients)))},
            "data": None,
            "partition": None,
            "architecture": type(task.model).__qualname__,
            "device": device_name(task.federation.device),
        }
        identity = identity_of_own(task, self.options)
        return Job(task=task, options=self.options, identity=identity, facts=facts, plan=self.plan, saved_at_start=True)

    def _say_stopping(self) -> None:
        kept = "is returned" if self.folder is None else "is kept, and fewjoules.resume goes on"
        warnings.warn(
            f"stopping after this round; what was trained {kept}, and a second Ctrl-C stops at once",
            FewJoulesWarning,
            stacklevel=2,
        )
