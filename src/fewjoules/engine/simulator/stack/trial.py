"""A step on trial: whether clients with this model and loss may train as one stack, and if not, why."""

import warnings
from collections.abc import Sequence

import torch
from torch import nn

from fewjoules.engine.models.loss import Loss
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.models.tree import Tree, leaves, map_tree
from fewjoules.engine.simulator.federation import Batch
from fewjoules.engine.simulator.stack.comparison import Comparison
from fewjoules.engine.simulator.stack.model import ClientModel
from fewjoules.engine.simulator.stack.replacement import Replacement

TRIAL_SAMPLES = 4  # two that count, and two to fill up a batch with
_ROUNDING = 1e-4  # of the largest number of a tensor
_NOISE = 1e-5  # of the largest number of all gradients: one that would be zero is rounding and nothing else
_ROUNDING_OF_SIZES = 1e-3  # of a loss: batches of another size are computed in another order


class Trial:
    """Steps of two equal clients on a few samples."""

    def __init__(self, model: nn.Module, loss: Loss | Objective, samples: Batch) -> None:
        """Copy the model; ``samples`` are up to ``TRIAL_SAMPLES``."""
        self._given, self._samples = model, samples
        first = leaves(samples[0])[0]
        self._count, self._device = len(first), first.device
        self._model = ClientModel(model, loss, self._device)

    def problem(self, written: Sequence[str]) -> str | None:
        """Return why vmap cannot train this model, which has ``written`` to these buffers, or None if it can."""
        net = self._model.net
        if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules()):
            return "it has batch normalisation with a cumulative average or hooks"
        cells = {name: one for name, one in net.named_modules() if isinstance(one, nn.RNNCellBase)}
        for name, cell in cells.items():  # vmap refuses some; others it calls for each client, slower than without it
            return f"vmap cannot run {name} of the model ({type(cell).__name__}) for several clients at once"
        try:
            self._step(range(min(2, self._count)))
        except Exception as error:
            return self._failure(error)
        own = [name for name in written if name.rpartition(".")[0] not in self._model.norms]
        return "the model writes to its buffers" if own else None

    def difference(self, *, seeded: bool) -> str | None:
        """Return why a stack would train another model than this, or None if it would not."""
        try:
            found = Comparison(self._model, self._samples, seeded=seeded).difference(self._given)
        except Exception as error:
            return self._failure(error)
        return None if found is None else f"a stack computes another {found} than the model by itself"

    def mixes_samples(self, *, seeded: bool) -> bool:
        """Tell whether samples of weight 0, which fill up shorter batches, change what the others give.

        What they hold must not matter, nor, unless the model draws random numbers, that they are there.
        """
        last = max(0, self._count - 2), self._count - 1
        repeated, others = (self._step((0, 1, *filling), counted=2) for filling in ((0, 0), last))
        noise = _NOISE * max(map(_largest, repeated[1:]))
        if not all(_close(one, other, _ROUNDING, noise) for one, other in zip(repeated, others, strict=True)):
            return True
        if seeded:
            return False
        for norm in self._model.norms.values():
            norm.eval()  # by the statistics of two samples, rounding would grow from layer to layer
        alone, filled = self._step((0, 1)), self._step((0, 1, 0, 0), counted=2)
        return not _close(alone[0], filled[0], _ROUNDING_OF_SIZES)

    def _step(self, numbers: Sequence[int], *, counted: int | None = None) -> list[torch.Tensor]:
        """Return losses and gradients of a batch of these samples, of which the first ``counted`` have a weight.

        Every step starts from the same random numbers.
        """
        model, counted = self._model, len(numbers) if counted is None else counted
        weights = torch.zeros((2, len(numbers)), device=self._device)
        weights[:, :counted] = 1.0 / counted
        parameters = model.parameters.views(model.initial_weights.repeat(2, 1))
        buffers = model.buffers.views(model.initial_buffers.repeat(2, 1))
        inputs, targets = (self._twice(tree, list(numbers)) for tree in self._samples)
        devices = [self._device] if self._device.type == "cuda" else []
        with warnings.catch_warnings(), torch.random.fork_rng(devices=devices):
            warnings.simplefilter("ignore")
            gradients, losses, _, _ = model.gradients(parameters, buffers, inputs, targets, weights)
        return [losses, *gradients]

    @staticmethod
    def _twice(tree: Tree | None, numbers: list[int]) -> Tree | None:
        return map_tree(lambda one: torch.stack([one[numbers], one[numbers]]), tree)

    def _failure(self, error: Exception) -> str:
        """Say in which of the user's own modules, the innermost, a step failed, and with which message."""
        names = {id(module): name for name, module in self._model.net.named_modules()}
        found, said, trace = "the model", str(error).split("\n")[0].partition(". ")[0][:200], error.__traceback__
        while trace is not None:
            module = trace.tb_frame.f_locals.get("self")
            if isinstance(module, nn.Module) and names.get(id(module)):
                name = names[id(module)]
                found = f"{name} of the model ({type(self._given.get_submodule(name)).__name__})"
            trace = trace.tb_next
        if isinstance(error, AttributeError) and isinstance(error.obj, Replacement):
            said = f"its version for a stack has no attribute {error.name!r}"
        return f"vmap cannot run {found}: {said}"


def _close(one: torch.Tensor, other: torch.Tensor, relative: float, noise: float = 0.0) -> bool:
    return torch.allclose(one, other, rtol=0.0, atol=relative * _largest(one) + noise, equal_nan=True)


def _largest(one: torch.Tensor) -> float:
    return float(one.abs().max()) if one.numel() else 0.0
