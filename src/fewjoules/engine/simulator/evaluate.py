"""Loss and accuracy of the global model on a test set."""

import copy
import math

import torch
from torch import nn

from fewjoules.engine.models.layout import Layout
from fewjoules.engine.models.loss import Loss, right_answers
from fewjoules.engine.simulator.cpu.single import channels_last
from fewjoules.engine.simulator.cpu.workers import Workers
from fewjoules.engine.simulator.cuda.precision import arithmetic
from fewjoules.engine.simulator.federation import Samples

_BATCH = {"cpu": 256, "cuda": 4096}


class Evaluator:
    """Evaluates the model on a test set; on the processor, threads share the test set."""

    def __init__(self, model: nn.Module, loss: Loss, test: Samples, workers: Workers) -> None:
        """Copy the model."""
        self.net = channels_last(copy.deepcopy(model).to(test.inputs.device).eval())
        self.loss, self.test, self._workers = loss, test, workers
        self._parameters = Layout({n: p for n, p in self.net.named_parameters() if p.requires_grad})
        self._buffers = Layout({n: b for n, b in self.net.named_buffers() if b.dtype == torch.float32})

    @torch.no_grad()
    def __call__(self, weights: torch.Tensor, buffers: torch.Tensor) -> tuple[float, float]:
        """Return the mean loss and the accuracy (NaN where outputs are not class scores)."""
        self._parameters.load(self.net, weights)
        self._buffers.load(self.net, buffers)
        size = len(self.test.targets)
        batch = _BATCH[self.test.inputs.device.type]
        parts = [slice(start, min(start + batch, size)) for start in range(0, size, batch)]
        on_processor = self.test.inputs.device.type == "cpu"
        with arithmetic("float32"):
            sums = self._workers.map(self._sums, parts) if on_processor else [self._sums(part) for part in parts]
        return math.fsum(loss for loss, _ in sums) / size, math.fsum(right for _, right in sums) / size

    @torch.no_grad()
    def knows_accuracy(self) -> bool:
        """Tell whether outputs are class scores, whose right answers can be counted."""
        return right_answers(self.net(self.test.inputs[:1]), self.test.targets[:1]) is not None

    @torch.no_grad()
    def _sums(self, part: slice) -> tuple[float, float]:
        targets = self.test.targets[part]
        outputs = self.net(self.test.inputs[part]).float()
        losses = self.loss(outputs, targets)
        right = right_answers(outputs, targets)
        total = losses * len(targets) if losses.ndim == 0 else losses.double().sum()
        return float(total), math.nan if right is None else float(right.sum())
