"""A Flower strategy: each node gets its own k, H and batch by a plan, sends a sparse update, and is charged for it."""

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fewjoules import __version__
from fewjoules.arrays import Floats, IntArray
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.loop import TrainingLoop
from fewjoules.engine.models.layout import Layout, ModelParts
from fewjoules.engine.report import Report
from fewjoules.errors import FewJoulesError, InvalidInputError, require_integer
from fewjoules.integrations.flower.arrays import BUFFERS, CONSTANT, WEIGHTS, FlatModel
from fewjoules.integrations.flower.backend import USUAL_RULES, USUAL_SCREENING, FlowerBackend, RoundRules
from fewjoules.integrations.flower.deployment import Deployment
from fewjoules.integrations.flower.models import arrays_of
from fewjoules.integrations.flower.planning import planned, with_reports
from fewjoules.integrations.flower.polling import SYSTEM_CLOCK, Clock
from fewjoules.integrations.flower.records import array_record, named_arrays
from fewjoules.integrations.flower.roster import Roster
from fewjoules.integrations.flower.screening import Screening
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.runs.files import CHECKPOINT, LEDGER_TABLE, METRICS_TABLE, PLAN
from fewjoules.runs.interval import CheckpointInterval
from fewjoules.runs.lock import locked
from fewjoules.runs.saver import Checkpoints, require_every_round
from fewjoules.runs.task import identity_of_fleet, planned_options
from fewjoules.scenario import Scenario

EVERY_ROUND = 0.0  # seconds between checkpoints: nodes forget an upload once the next order says that it was accepted
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
_log = getLogger("flwr.fewjoules")


class FewJoulesStrategy(Strategy):
    """Trains with FT-LSGD-DB on the nodes of a Flower deployment or simulation.

    Give either ``options``, or a ``scenario``, which is planned once the nodes have told their costs.

    Args:
        options: Options of the training, with a sparsity for each client.
        scenario: A scenario or its file.
        scheme: How to plan it; by default "fewest" where it has a [recipe], else "flexible".
        clients: Number of nodes that must be online to begin; by default those of the options or the scenario.
        fleet: Costs of the nodes, for the ledger; a scenario has its own.
        folder: Every round is saved here, and a server that is started again goes on after the last complete round.
        rules: When a round ends.
        screening: What uploads are accepted.
        wait_seconds: How long to wait for the nodes at the start.
        buffers: Names of arrays that are averaged instead of trained.
        clock: Tells the time and sleeps; for tests.

    Raises:
        InvalidInputError: Both or neither of ``options`` and ``scenario`` are given, or an argument is refused.

    Examples:
        >>> strategy = FewJoulesStrategy(scenario="devices.toml", folder="run1")
        >>> strategy.start(grid, model, num_rounds=100)
    """

    options: TrainingOptions | None
    scheme: str | None
    fleet: Fleet | None
    scenario: Scenario | None
    clients: int
    folder: Path | None
    rules: RoundRules
    screening: Screening
    wait_seconds: float
    clock: Clock

    def __init__(
        self,
        options: TrainingOptions | None = None,
        *,
        scenario: Scenario | str | Path | None = None,
        scheme: str | None = None,
        clients: int | None = None,
        fleet: Fleet | None = None,
        folder: str | Path | None = None,
        rules: RoundRules = USUAL_RULES,
        screening: Screening = USUAL_SCREENING,
        wait_seconds: float = 600.0,
        buffers: Collection[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check the arguments; nothing is sent yet."""
        if (options is None) == (scenario is None):
            raise InvalidInputError("FewJoulesStrategy needs exactly one of options and scenario")
        self.options, self.scheme, self.fleet = options, scheme, fleet
        self.scenario = Scenario.from_toml(scenario) if isinstance(scenario, str | Path) else scenario
        known = options.clients if options is not None else len(_fleet_of(self.scenario))
        self.clients = known if clients is None else require_integer("clients", clients, low=1, high=2**31 - 1)
        if options is not None and self.clients != options.clients:
            raise InvalidInputError(f"clients must be {options.clients} as in the options, got {self.clients}")
        self.folder = None if folder is None else Path(folder)
        self.rules, self.screening, self.wait_seconds, self.clock = rules, screening, wait_seconds, clock
        self.buffers = None if buffers is None else frozenset(buffers)
        self.plan: Plan | None = None
        self.loop: TrainingLoop | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | nn.Module,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train; the arguments are those of Flower's strategies, and ``timeout`` is the deadline of a round.

        Nodes with ``client_app`` take a module in place of arrays, so that its buffers are known.
        """
        if isinstance(initial_arrays, nn.Module):
            self.buffers = frozenset(name for name, _ in initial_arrays.named_buffers())
            initial_arrays = arrays_of(initial_arrays)
        model = FlatModel.of(named_arrays(initial_arrays), self.buffers)
        if timeout is not None:
            self.rules = replace(self.rules, deadline_seconds=timeout)
        with ExitStack() as stack:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder))
            deployment, roster = self._deployed(grid)
            options, fleet = self._options(deployment, model, num_rounds)
            config = {} if train_config is None else dict(train_config)
            backend = FlowerBackend(
                grid,
                roster,
                deployment.names,
                deployment.run,
                model.layout,
                rules=self.rules,
                screening=self.screening,
                config=config,
                clock=self.clock,
            )
            coordinator = _coordinator(options, deployment, model, fleet, backend)
            return self._train(coordinator, deployment, fleet, model, evaluate_fn)

    def summary(self) -> None:
        """Log what is trained and how."""
        what = "a plan" if self.scenario is not None else "given options"
        _log.info("FewJoules: %s clients, by %s; deadline %g s", self.clients, what, self.rules.deadline_seconds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: a strategy around this one would see payloads, not updates."""
        _refuse_wrapping()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse: a strategy around this one would see payloads, not updates."""
        _refuse_wrapping()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask no node to evaluate: the whole model would travel to each of them."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """There is nothing to aggregate."""
        return None

    def _deployed(self, grid: Grid) -> tuple[Deployment, Roster]:
        """Wait for the clients; those of a run that was begun before keep their numbers."""
        begun = None if self.folder is None else Deployment.load(self.folder)
        if begun is not None and len(begun.clients) != self.clients:
            raise InvalidInputError(
                f"{self.folder}: the run was begun with {len(begun.clients)} clients, got {self.clients}"
            )
        if begun is None and self.folder is not None and (self.folder / CHECKPOINT).exists():
            raise InvalidInputError(
                f"{self.folder}: must be empty or the folder of a deployment, got that of another run"
            )
        known = {} if begun is None else {name: bytes.fromhex(key) for name, key in begun.keys.items()}
        roster = Roster(known, self.clock)
        if begun is not None:
            _log.info("going on with run %s of %s clients", begun.run, len(begun.clients))
            return begun, roster
        roster.gather(grid, self.clients, self.wait_seconds)
        told = [member.told for member in roster.members.values()][: self.clients]
        deployment = Deployment.new(told, roster.keys)
        if self.folder is not None:
            deployment.save(self.folder)
        return deployment, roster

    def _options(
        self, deployment: Deployment, model: FlatModel, num_rounds: int | None
    ) -> tuple[TrainingOptions, Fleet | None]:
        options, fleet = self.options, self.fleet
        if self.scenario is not None:
            scenario = with_reports(self.scenario, deployment.clients)
            self.plan = planned(scenario, self.scheme)
            options = planned_options(scenario, self.plan, model.weights.size)
            fleet = self.plan.fleet_at_points(scenario.fleet)
            _log_plan(self.plan, deployment.names)
        assert options is not None
        if options.kept_values != "float32":
            raise InvalidInputError(
                f"kept_values must be 'float32' where devices are remote, got {options.kept_values!r}: what they "
                "keep is theirs to store"
            )
        if options.guard:
            raise InvalidInputError(
                "guard must be false or left out where devices are remote, got true: what they keep cannot be sent back"
            )
        if options.availability is not None:
            raise InvalidInputError(
                "availability must be left out where devices are remote: they are available when they are online"
            )
        return options if num_rounds is None else replace(options, rounds=num_rounds), fleet

    def _train(
        self,
        coordinator: Coordinator,
        deployment: Deployment,
        fleet: Fleet | None,
        model: FlatModel,
        evaluate_fn: EvaluateFn | None,
    ) -> Result:
        loop, saver = self._opened(coordinator, deployment, fleet)
        if self.plan is not None and self.folder is not None:
            self.plan.save(self.folder / PLAN)
        self.loop, result = loop, Result()
        loop.saver = saver

        def arrays(weights: torch.Tensor, buffers: torch.Tensor) -> ArrayRecord:
            return array_record(replace(model, weights=weights.numpy(), buffers=buffers.numpy()).arrays())

        def evaluate(weights: torch.Tensor, buffers: torch.Tensor) -> tuple[float, float]:
            assert evaluate_fn is not None
            number = coordinator.state.round
            found = evaluate_fn(number, arrays(weights, buffers)) or MetricRecord()
            result.evaluate_metrics_serverapp[number] = found
            loop.knows_test_loss = "loss" in found or "test_loss" in found
            return _metric(found, "loss"), _metric(found, "accuracy")

        def on_round(report: Report) -> None:
            result.train_metrics_clientapp[report.round] = MetricRecord(_told(report))
            _log.info("%s", _line(report))

        loop.evaluator = None if evaluate_fn is None else evaluate
        loop.on_round = on_round
        reason = loop.run()
        _log.info("finished after round %s: %s", coordinator.state.round, reason)
        result.arrays = arrays(*coordinator.state.result)
        if self.folder is not None:
            require_every_round(self.folder, loop)
            loop.ledger.finish(self.folder / LEDGER_TABLE, keep_parts=True)
            loop.metrics.finish(self.folder / METRICS_TABLE, keep_parts=True)
        return result

    def _opened(
        self, coordinator: Coordinator, deployment: Deployment, fleet: Fleet | None
    ) -> tuple[TrainingLoop, Checkpoints | None]:
        """Return a loop at the first round, or at the round after the last complete one."""
        if self.folder is None:
            return TrainingLoop(coordinator, RowLog(None, LEDGER), RowLog(None, METRICS)), None
        identity = {
            "fewjoules version": __version__,
            "run": deployment.run,
            "clients": deployment.names,
            **({} if fleet is None else identity_of_fleet(fleet)),
            "training": coordinator.options.to_dict(),
            "parameters": coordinator.parameters.size,
        }
        saver = Checkpoints(self.folder, coordinator, identity, CheckpointInterval(EVERY_ROUND))
        if not saver.path.exists():
            return saver.new_loop(fresh=False), saver
        loop = saver.resumed_loop(saver.load())
        _log.info("going on after round %s", coordinator.state.round)
        return loop, saver


def _coordinator(
    options: TrainingOptions, deployment: Deployment, model: FlatModel, fleet: Fleet | None, backend: FlowerBackend
) -> Coordinator:
    unknown = options.batch_size or 1  # a client that does not tell its samples is taken to have a batch of them
    sizes: IntArray = np.array([client.samples or unknown for client in deployment.clients], dtype=np.int64)
    state = ServerState.initial(
        _tensor(model.weights),
        _tensor(model.buffers),
        options.clients,
        keeps_residual=options.compresses_downlink,
        notes_changes=backend.sends_changes,
    )
    return Coordinator(options, sizes, Accounts(fleet, options, model.weights.size), backend, state, _parts(model))


def _parts(model: FlatModel) -> ModelParts:
    arrays = model.arrays()
    of_role = {
        role: {one["name"]: torch.from_numpy(arrays[one["name"]].copy()) for one in model.layout if one["role"] == role}
        for role in (WEIGHTS, BUFFERS, CONSTANT)
    }
    return ModelParts(Layout(of_role[WEIGHTS]), Layout(of_role[BUFFERS]), of_role[CONSTANT], {})


def _tensor(vector: Floats) -> torch.Tensor:
    return torch.from_numpy(vector.copy())


def _fleet_of(scenario: Scenario | None) -> Fleet:
    assert scenario is not None
    return scenario.fleet


def _metric(record: MetricRecord, name: str) -> float:
    value: Any = record.get(name, record.get(f"test_{name}", float("nan")))
    return float(value)


def _told(report: Report) -> dict[str, int | float | list[int] | list[float]]:
    totals = report.totals
    return {"train_loss": report.train_loss, "total_joules": totals.joules, "total_payload_bytes": totals.payload_bytes}


def _line(report: Report) -> str:
    totals = report.totals
    tested = "" if np.isnan(report.test_accuracy) else f", accuracy {report.test_accuracy:.2%}"
    spent = "" if np.isnan(totals.joules) else f", {totals.joules:.4g} J so far"
    return (
        f"round {report.round}: train loss {report.train_loss:.4f}{tested}, "
        f"{totals.payload_bytes / 1000:.1f} kB of uploads so far{spent}"
    )


def _log_plan(plan: Plan, names: list[str]) -> None:
    _log.info(
        "plan %s: H = %s, %.0f rounds, %.4g J, %s",
        plan.scheme,
        plan.local_steps,
        plan.rounds,
        plan.energy_joules,
        "nothing proved" if plan.relative_gap is None else f"proved within {plan.relative_gap:.1e} of the least",
    )
    for name, sparsity in zip(names, plan.sparsity, strict=True):
        _log.info("  client %s: sparsity %.4g", name, sparsity)


def _refuse_wrapping() -> NoReturn:
    raise FewJoulesError(
        "FewJoulesStrategy cannot be wrapped by another strategy, such as Flower's differential privacy: its replies "
        "are sparse payloads. Add noise at the clients: ClientApp(mods=[fewjoules_mod, LocalDpMod(...)])"
    )
