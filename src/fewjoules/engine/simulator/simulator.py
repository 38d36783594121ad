"""The simulator: all clients of a federation on one machine, round by round."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from fewjoules.cores import CORES
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.state import ServerState
from fewjoules.engine.coordinator import Coordinator
from fewjoules.engine.models.layout import ModelParts
from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.networks import parameter_count
from fewjoules.engine.simulator.cpu.backend import CpuBackend
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.execution import Execution, choose_execution, require_labels
from fewjoules.engine.simulator.federation import BatchSource, Federation, Samples
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.errors import InvalidInputError
from fewjoules.physics.fleet import Fleet

if TYPE_CHECKING:
    from fewjoules.engine.simulator.cuda.backend import CudaBackend, Graphs


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
    ) -> None:
        """Check that everything fits together; nothing is trained yet.

        Simulators of one model, loss and precision on the same samples may share ``graphs``, a dict: on a GPU the steps
        are then compiled and recorded once.
        """
        device = federation.samples.inputs.device
        if options.clients != len(federation.parts):
            raise InvalidInputError(
                f"sparsity must have one entry for each of {len(federation.parts)} clients, got {options.clients}"
            )
        if options.precision == "tf32" and device.type != "cuda":
            raise InvalidInputError("precision = 'tf32' needs a GPU; on the processor use float32")
        self.options, self.federation, self.sizes = options, federation, federation.sizes
        accounts = Accounts(fleet, options, parameter_count(model))
        self.execution = self._choose_execution(model, loss, chunk)
        self.workers = Workers(1 if self.execution.seeded else threads)
        self._local = self._new_backend(model, loss, compiled, graphs)
        flat = ClientModel(model, loss, device)
        parts = ModelParts.of(model, flat.parameters, flat.buffers)
        state = ServerState.initial(
            flat.initial_weights,
            flat.initial_buffers,
            options.clients,
            keeps_residual=options.compresses_downlink,
            notes_changes=accounts.charges_downlink,
        )
        super().__init__(options, federation.sizes, accounts, self._local, state, parts)

    def evaluator(self, model: nn.Module, loss: Loss, test: Samples) -> Evaluator:
        """Return an evaluator on a test set; its samples must have the shapes and types of the training set."""
        train = self.federation.samples
        for name, given, like in (("inputs", test.inputs, train.inputs), ("targets", test.targets, train.targets)):
            if given.shape[1:] != like.shape[1:] or given.dtype != like.dtype:
                raise InvalidInputError(
                    f"test {name} must be {like.dtype} of shape {tuple(like.shape[1:])} like the clients', "
                    f"got {given.dtype} of shape {tuple(given.shape[1:])}"
                )
        require_labels(model, test)
        evaluator = Evaluator(model, loss, test, self.workers)
        if self.options.target_accuracy is not None and not evaluator.knows_accuracy():
            raise InvalidInputError(
                "target_accuracy needs a model with one score per class and whole numbers as labels: "
                "the accuracy of this one is never known"
            )
        return evaluator

    def steps_alone(self) -> Callable[[], None]:
        """Return a function that takes the local steps of the first round, on the same batches, and forgets them.

        On a GPU it does not wait for them.
        """
        plan = self._plan(1)
        batches = BatchSource(self.federation, self.options.seed).batches(plan)
        return lambda: self._local.take_steps(self.state, plan, batches)

    def close(self) -> None:
        """Release threads and graphs."""
        self.workers.close()
        super().close()

    def _choose_execution(self, model: nn.Module, loss: Loss, chunk: int | None) -> Execution:
        largest = int(self.sizes.max()) if self.options.batch_size is None else self.options.batch_size
        batch = min(largest, int(self.sizes.max()))
        equal = batch <= int(self.sizes.min()) and self.options.batch_growth == 1.0
        return choose_execution(
            model,
            loss,
            self.federation.samples,
            clients=self.options.clients,
            batch=batch,
            smallest_batch=min(batch, int(self.sizes.min())),
            equal_batches=equal,
            chunk=chunk,
        )

    def _new_backend(
        self, model: nn.Module, loss: Loss, compiled: bool, graphs: "Graphs | None"
    ) -> "CpuBackend | CudaBackend":
        how = self.execution
        if not self.federation.samples.inputs.is_cuda:
            return CpuBackend(
                model,
                loss,
                self.federation,
                self.options,
                chunk=how.chunk,
                workers=self.workers,
                seeded=how.seeded,
            )
        from fewjoules.engine.simulator.cuda.backend import CudaBackend

        return CudaBackend(model, loss, self.federation, self.options, how, compiled=compiled, graphs=graphs)
