"""The simulator: all clients of a federation on one machine, round by round."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from fewjoules.cores import CORES
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import participants_per_round
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.models.frozen import sharing, was_written
from fewjoules.engine.models.layout import ModelParts
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.models.objective import Measure, Objective
from fewjoules.engine.models.tree import described, shapes_of
from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.simulator.counted import require_counted_clients, require_counted_test
from fewjoules.engine.simulator.cpu.backend import CpuBackend
from fewjoules.engine.simulator.cpu.workers import Workers, one_thread
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.execution import Execution, choose_execution
from fewjoules.engine.simulator.federation import BatchSource, Federation, SampleSource, first_of
from fewjoules.engine.simulator.probe import probed
from fewjoules.engine.simulator.ranked import RankedBackend
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.engine.store.client_store import ClientStore, ClientTable, StorePlace
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.ledger.schema import METRICS
from fewjoules.ledger.target import require_metric_names
from fewjoules.physics.fleet import Fleet

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import CudaBackend, Graphs

_FEW = 10_000  # clients; how runs of so many are split into chunks stays as it was, and with it their bits


class Simulator(Coordinator):
    """A coordinator whose clients all train on this machine."""

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        options: TrainingOptions,
        *,
        loss: Loss,
        fleet: Fleet | None = None,
        threads: int = CORES,
        chunk: int | None = None,
        compiled: bool = True,
        graphs: "Graphs | None" = None,
        ranks: Ranks = ALONE,
        place: StorePlace | None = None,
    ) -> None:
        """Check that everything fits together; nothing is trained yet.

        Simulators of one model, loss and precision on the same samples may share ``graphs``, a dict: on a GPU the steps
        are then compiled and recorded once. ``place`` says where what clients keep is stored. ``ranks`` are the
        processes that share the clients of each round.
        """
        device = federation.samples.device
        if options.clients != len(federation.parts):
            raise InvalidInputError(
                f"sparsity must have one entry for each of {len(federation.parts)} clients, got {options.clients}"
            )
        if options.precision == "tf32" and device.type != "cuda":
            raise InvalidInputError("precision = 'tf32' needs a GPU; on the processor use float32")
        require_counted_clients(federation, Objective.of(loss).rule)
        self.options, self.federation, self.sizes = options, federation, federation.sizes
        accounts = Accounts(fleet, options, parameter_count(model))
        self._given, self._model = model, sharing(model, device)
        self.execution = self._choose_execution(self._model, loss, chunk)
        if was_written(self._model, model):
            self._model = model
        self.workers = Workers(1 if self.execution.seeded else threads)
        self._local = self._new_backend(self._model, loss, compiled, graphs, place)
        flat = ClientModel(self._model, loss, device)
        parts = ModelParts.of(model, flat.parameters, flat.buffers)
        state = ServerState.initial(
            flat.initial_weights,
            flat.initial_buffers,
            options.clients,
            keeps_residual=options.compresses_downlink,
            notes_changes=accounts.charges_downlink,
        )
        self.ranks = ranks
        self._warn_of_idle_ranks()
        self._ranked = None if ranks.size == 1 else RankedBackend(self._local, ranks, self.execution.chunk)
        super().__init__(options, federation.sizes, accounts, self._ranked or self._local, state, parts)

    def evaluator(
        self, model: nn.Module, loss: Loss, test: SampleSource, metrics: Mapping[str, Any] | None = None
    ) -> Evaluator:
        """Return an evaluator on a test set; its samples must have the shapes and types of the training set.

        ``metrics`` are functions by name; the table of metrics gets a column for each.
        """
        names = require_metric_names(metrics or {})
        measures = [Measure.of(f"metrics[{name!r}]", name, function) for name, function in (metrics or {}).items()]
        pairs = zip(("inputs", "targets"), first_of(test), first_of(self.federation.samples), strict=True)
        for name, given, like in pairs:
            if shapes_of(given) != shapes_of(like):
                raise InvalidInputError(
                    f"test {name} must be {described(like)} like the clients', got {described(given)}"
                )
        model = self._model if model is self._given else model
        with one_thread():
            probed(model, loss, test)
            require_counted_test(test, Objective.of(loss).rule)
            evaluator = Evaluator(model, loss, test, self.workers, measures, self.ranks)
        self.metrics_table = METRICS.with_metrics(names)
        self._require_target(evaluator)
        return evaluator

    def _require_target(self, evaluator: Evaluator) -> None:
        """Refuse a target that is never known."""
        target = self.options.target
        if target is not None and target.direction is not None and target.name not in evaluator.names:
            known = ", ".join(evaluator.names) or "none"
            raise InvalidInputError(
                f"the target is about {target.name!r}, which must be one of the metrics of the training, got {known}"
            )
        if self.options.target_accuracy is not None and not evaluator.knows_accuracy():
            raise InvalidInputError(
                "target_accuracy needs a model with one score per class and whole numbers as labels: "
                "the accuracy of this one is never known"
            )

    def steps_alone(self) -> Callable[[], None]:
        """Return a function that takes the local steps of the first round, on the same batches, and forgets them.

        On a GPU it does not wait for them.
        """
        plan = self._plan(1)
        batches = BatchSource(self.federation, self.options.seed).batches(plan)
        return lambda: self._local.take_steps(self.state, plan, batches)

    @property
    def store(self) -> ClientStore:
        """What clients keep."""
        return self._local.store

    def gathered(self, tables: Sequence[ClientTable]) -> Sequence[ClientTable]:
        """Return the tables with the clients of all ranks, on the first one."""
        begun = self.state.round > 0
        return tables if self._ranked is None or not begun else self._ranked.gathered(tables)

    def own_rows(self, table: ClientTable) -> ClientTable:
        """Return this rank's share of a table in a checkpoint."""
        return table if self._ranked is None else self._ranked.own_rows(table)

    def close(self) -> None:
        """Release threads and graphs."""
        self.workers.close()
        super().close()

    def _warn_of_idle_ranks(self) -> None:
        each = participants_per_round(self.options)
        chunks = -(-each // self.execution.chunk)
        idle = self.ranks.size - chunks
        if idle > 0:
            warnings.warn(
                f"{self.ranks.size} ranks share {each} clients a round, which train {self.execution.chunk} at a time: "
                f"{idle} of them {'has' if idle == 1 else 'have'} nothing to do; clients_at_a_time = "
                f"{max(1, each // self.ranks.size)} gives each some, and may change last bits of the result",
                FewJoulesWarning,
                stacklevel=3,
            )

    def _choose_execution(self, model: nn.Module, loss: Loss, chunk: int | None) -> Execution:
        largest = int(self.sizes.max()) if self.options.batch_size is None else self.options.batch_size
        batch = min(largest, int(self.sizes.max()))
        equal = batch <= int(self.sizes.min()) and self.options.batch_growth == 1.0
        with one_thread():
            return choose_execution(
                model,
                loss,
                self.federation.samples,
                clients=_crowd(self.options),
                batch=batch,
                smallest_batch=min(batch, int(self.sizes.min())),
                equal_batches=equal,
                chunk=chunk or self.options.clients_at_a_time,
            )

    def _new_backend(
        self,
        model: nn.Module,
        loss: Loss,
        compiled: bool,
        graphs: "Graphs | None",
        place: StorePlace | None,
    ) -> "CpuBackend | CudaBackend":
        how = self.execution
        if self.federation.samples.device.type != "cuda":
            return CpuBackend(
                model,
                loss,
                self.federation,
                self.options,
                chunk=how.chunk,
                workers=self.workers,
                seeded=how.seeded,
                place=place,
            )
        from fewjoules.engine.simulator.cuda.backend import CudaBackend

        return CudaBackend(
            model, loss, self.federation, self.options, how, compiled=compiled, graphs=graphs, place=place
        )


def _crowd(options: TrainingOptions) -> int:
    """Return by how many clients chunks are chosen: all, or where they are very many, those of a round."""
    return options.clients if options.clients <= _FEW else participants_per_round(options)
