"""Loss, accuracy and other metrics of the global model on a test set."""

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fewjoules.engine.models.layout import Layout, averaged_buffers
from fewjoules.engine.models.loss import Loss, Value, right_answers, scores, shape_problem, sum_and_weight
from fewjoules.engine.models.objective import Judged, Measure, Objective
from fewjoules.engine.models.tree import Tree, call, floats
from fewjoules.engine.ranks import ALONE, Ranks, known_to_ranks
from fewjoules.engine.simulator.cpu.single import channels_last
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.federation import SampleSource, first_of
from fewjoules.engine.simulator.live_bytes import BytesOfBatch, LiveBytes
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.own_code import first_line

_LARGEST_BATCH = {"cpu": 256, "cuda": 4096}
_BATCH_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}  # that the samples of a batch may add, but for one
_FEW, _MORE = 2, 4  # samples of the batches whose bytes are counted
_Sums = list[tuple[float, float]]  # a sum and its weight of each loss, of the accuracy, and of each metric


class Evaluator:
    """Evaluates the model on a test set, which ranks share; on the processor, so do threads.

    What is measured are means over all samples or tokens of the test set: batches are summed up with their weights.
    ``batch`` is their size; it follows from what the tensors of a sample take, never from a clock or from free memory.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | Objective,
        test: SampleSource,
        workers: Workers,
        metrics: Sequence[Measure] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        """Copy the model, and evaluate it on a few samples; refuse metrics that cannot be taken of it."""
        self._ranks = ranks
        self.net = channels_last(copy.deepcopy(model).to(test.device))
        self.net.eval()
        self.test, self.objective, self._metrics, self._workers = test, Objective.of(loss), tuple(metrics), workers
        self._judged = Judged(self.net, self.objective)
        self._parameters = Layout({n: p for n, p in self.net.named_parameters() if p.requires_grad})
        self._buffers = Layout(averaged_buffers(self.net))
        self._unknown: set[str] = set()
        self._gives_outputs = self.objective.needs_outputs or self._can_be_called()
        self._bytes = self._bytes_of_a_batch()
        self.batch = batch_for(self._bytes.growth, test.device.type)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics beside loss and accuracy."""
        return tuple(metric.name for metric in self._metrics)

    @torch.no_grad()
    def __call__(self, weights: torch.Tensor, buffers: torch.Tensor) -> tuple[float, ...]:
        """Return the mean loss, the accuracy (NaN where outputs are not class scores), and the metrics in order."""
        self._parameters.load(self.net, weights)
        self._buffers.load(self.net, buffers)
        size = len(self.test)
        parts = [slice(start, min(start + self.batch, size)) for start in range(0, size, self.batch)]
        run = self._workers.map if self.test.device.type == "cpu" else map
        with arithmetic("float32"):
            sums = self._ranks.shared_out(parts, lambda own: list(run(self._sums_of_part, own)))
        columns = list(zip(*sums, strict=True))
        self._require_counted(columns[: len(self.objective.terms)])
        means = [_mean(column) for column in columns]
        losses, (accuracy, *metrics) = means[: len(self.objective.terms)], means[len(self.objective.terms) :]
        self._warn_of_unknown(metrics)
        return self._total(losses), accuracy, *metrics

    @property
    def peak_bytes(self) -> int:
        """Bytes that an evaluation on this rank takes at its peak, beside the model."""
        parts = -(-len(self.test) // self.batch)
        at_once = self._workers.threads if self.test.device.type == "cpu" else 1
        together = min(at_once, -(-parts // self._ranks.size))
        samples = min(together * self.batch, len(self.test))
        return math.ceil(together * self._bytes.peak(samples / together))

    @torch.no_grad()
    def knows_accuracy(self) -> bool:
        """Tell whether outputs are class scores, whose right answers can be counted."""
        inputs, targets = first_of(self.test)
        return self._gives_outputs and right_answers(call(self.net, inputs), targets, self._judged.rule) is not None

    def _require_counted(self, losses: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Refuse a test set of which nothing counts in some loss; all ranks see the same sums."""
        for term, sums in zip(self.objective.terms, losses, strict=True):
            if not any(weight for _, weight in sums):
                name = "the loss" if term.name == "loss" else f"the loss {term.name!r}"
                sentence = f"test must have a label that counts in {name}, got none in {len(self.test)} samples"
                raise known_to_ranks(InvalidInputError(sentence))

    def _total(self, losses: list[float]) -> float:
        if self.objective.weights == (1.0,):
            return losses[0]
        return math.fsum(weight * loss for weight, loss in zip(self.objective.weights, losses, strict=True))

    def _sums_of_part(self, part: slice) -> _Sums:
        return self._sums(torch.arange(part.start, part.stop))

    @torch.no_grad()
    def _sums(self, numbers: torch.Tensor) -> _Sums:
        inputs, targets = self.test.take(numbers)
        outputs = self._judged.outputs(inputs) if self._gives_outputs else None
        right = right_answers(outputs, targets, self._judged.rule)
        size = len(numbers)
        measures = (*self.objective.terms, *self._metrics)
        values = self._judged.values(outputs, inputs, targets)
        values += [self._measured(metric, outputs, inputs, targets, size) for metric in self._metrics]
        exact = [None if one.classes is None else one.classes.exact(outputs, targets) for one in measures]
        sums = [known or sum_and_weight(value, size) for known, value in zip(exact, values, strict=True)]
        losses = len(self.objective.terms)
        return [
            *sums[:losses],
            sum_and_weight(torch.tensor(math.nan) if right is None else right, size),
            *sums[losses:],
        ]

    @torch.no_grad()
    def _can_be_called(self) -> bool:
        """Whether the model takes the inputs by themselves, which a loss of (model, batch) need not ask of it."""
        wanted = any(not metric.takes_model for metric in self._metrics)
        inputs, targets = first_of(self.test)
        if targets is None and not wanted:
            return False
        try:
            call(self.net, inputs)
        except Exception as error:
            if wanted:
                raise InvalidInputError(
                    f"metrics of (outputs, targets) need outputs of the model: {first_line(error)}"
                ) from error
            return False
        return True

    @torch.no_grad()
    def _bytes_of_a_batch(self) -> BytesOfBatch:
        """Return the bytes of tensors that come and go in an evaluation; what a first pass leaves behind is not one."""
        few, more = (torch.arange(size) % len(self.test) for size in (_FEW, _MORE))
        device = self.test.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), arithmetic("float32"):
            self._sums(few)
            try:
                return BytesOfBatch.between(self._watched(few), _FEW, self._watched(more), _MORE)
            except Exception:  # a few operations, such as flex_attention, cannot be watched
                return BytesOfBatch.of_scores(self._bytes_of_scores(few) / _FEW)

    def _watched(self, numbers: torch.Tensor) -> LiveBytes:
        """Return the bytes that lived while these samples were evaluated."""
        with LiveBytes() as live:
            self._sums(numbers)
        return live

    def _bytes_of_scores(self, numbers: torch.Tensor) -> int:
        """Return the bytes of the scores of a batch and of their softmax."""
        inputs, _ = self.test.take(numbers)
        found = scores(self._judged.outputs(inputs)) if self._gives_outputs else None
        return 0 if found is None else 2 * found.nbytes

    def _measured(self, metric: Measure, outputs: Any, inputs: Tree, targets: Tree | None, size: int) -> Value:
        """Return what a metric says of a batch of this ``size``; refuse one that fails or has another shape."""
        try:
            value = metric.value(self.net, outputs, inputs, targets, self._judged.rule)
        except Exception as error:
            raise InvalidInputError(f"metrics[{metric.name!r}] fails on the test set: {first_line(error)}") from error
        problem = shape_problem(value, size, whole=True)
        if problem is not None:
            raise InvalidInputError(f"metrics[{metric.name!r}] {problem}")
        found: Value = floats(value)
        return found

    def _warn_of_unknown(self, values: Sequence[float]) -> None:
        """Say once for each metric that it is not a number."""
        for name, value in zip(self.names, values, strict=True):
            if math.isnan(value) and name not in self._unknown:
                self._unknown.add(name)
                warnings.warn(
                    f"the metric {name} is NaN on the test set: it is recorded as unknown and meets no target",
                    FewJoulesWarning,
                    stacklevel=2,
                )


def batch_for(sample_bytes: float, device: str) -> int:
    """Return how many samples, each adding so many bytes of tensors, are evaluated at once on a kind of device."""
    batch = _LARGEST_BATCH[device]
    while batch > 1 and batch * sample_bytes > _BATCH_BYTES[device]:
        batch //= 2
    return batch


def _mean(column: Sequence[tuple[float, float]]) -> float:
    total, weight = (math.fsum(part) for part in zip(*column, strict=True))
    return total / weight if weight else math.nan
