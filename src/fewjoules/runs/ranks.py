"""The processes that ``torchrun`` starts, as ranks of one training, and what they must agree on."""

import contextlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from fewjoules import __version__
from fewjoules.engine.models.layout import copied
from fewjoules.engine.models.objective import Objective
from fewjoules.engine.models.tree import leaves
from fewjoules.engine.ranks import ALONE, Ranks, known_to_ranks
from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.federation import Batch, ClientSlices, Federation, SampleSource
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.errors import InvalidInputError, RankError, shown
from fewjoules.runs.device import device_name
from fewjoules.torchrun import ranks_expected

if TYPE_CHECKING:
    from fewjoules.runs.training import Task

_SPOT_CHECKS = 64  # samples of a data set that are compared


def require_alone(what: str) -> None:
    """Refuse to do something in several processes at once that one process does."""
    if ranks_expected() > 1:
        raise InvalidInputError(f"{what} runs in one process; only a training can be shared out by torchrun")


@contextlib.contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started, or the caller's own process group; alone where there are none.

    Ranks of different versions are refused before they exchange anything else.
    """
    size = ranks_expected()
    if size == 1:
        yield ALONE
        return
    if dist.is_initialized():
        if "gloo" not in str(dist.get_backend_config()):
            raise InvalidInputError('the process group must talk between hosts too; open it with "cpu:gloo,cuda:nccl"')
        yield _of_one_version(Ranks(dist.get_rank(), size))
        return
    _keep_threads_from_outliving_the_group()
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if _has_nccl() else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\n")[0][:200]
        raise RankError(f"the {size} ranks cannot reach one another: {reason}") from error
    try:
        yield _of_one_version(Ranks(dist.get_rank(), size))
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _keep_threads_from_outliving_the_group() -> None:
    """Import what would otherwise hold the group as a default argument, if imported while it is open.

    Its threads would then run on while Python ends, where one that wants the interpreter aborts the process.
    """
    import torch.distributed.nn  # noqa: F401


def _has_nccl() -> bool:
    return torch.cuda.is_available() and dist.is_nccl_available()


def _of_one_version(ranks: Ranks) -> Ranks:
    versions = {"FewJoules": __version__, "torch": torch.__version__, "numpy": np.__version__}
    require_same(ranks, {f"the version of {name}": version for name, version in versions.items()})
    return ranks


def require_same(ranks: Ranks, facts: Mapping[str, Any]) -> None:
    """Refuse ranks of which one has other facts than the first; the first that differs is named."""
    told = [json.loads(text) for text in ranks.texts(json.dumps(facts))]
    for rank, others in enumerate(told):
        for name in [*told[0], *others]:
            ours, theirs = told[0].get(name), others.get(name)
            if ours != theirs:
                raise known_to_ranks(
                    InvalidInputError(
                        f"all ranks must train the same run, but {name} is {shown(ours)} on rank 0 and "
                        f"{shown(theirs)} on rank {rank}"
                    )
                )


def model_of_first(ranks: Ranks, model: nn.Module) -> nn.Module:
    """Return the model with all weights and buffers of the first rank: scripts draw them anew in every process.

    The given one is not changed. Models whose layouts differ are returned as they are; ``require_agreement`` refuses
    them.
    """
    if ranks.size == 1:
        return model
    told = [json.loads(text) for text in ranks.texts(json.dumps([_layout_crc(model), _crc(*_tensors(model).values())]))]
    if len({layout for layout, _ in told}) > 1 or len({values for _, values in told}) == 1:
        return model
    result = copied(model)
    for tensor in _tensors(result).values():
        values = tensor.detach().cpu().contiguous()
        ranks.from_first(values.reshape(-1).view(torch.uint8))
        tensor.data.copy_(values)
    return result


def require_agreement(
    ranks: Ranks, task: "Task", simulator: Simulator, evaluator: Evaluator | None, folder: Path | None = None
) -> None:
    """Refuse ranks that would not train the same run, with the first fact in which one of them differs."""
    if ranks.size > 1:
        batch = None if evaluator is None else evaluator.batch
        others = {"the batch of an evaluation": batch, "the results folder": None if folder is None else str(folder)}
        require_same(ranks, _facts(task, simulator) | others)


def _facts(task: "Task", simulator: Simulator) -> dict[str, Any]:
    device, samples = task.federation.device, task.federation.samples
    options = {f"option {name}": value for name, value in simulator.options.to_dict().items()}
    return {
        "the device": device_name(device),
        **json.loads(json.dumps(options)),
        "the execution": simulator.execution.name,
        "the number of weights": simulator.parameters.size,
        "the checksum of the names and shapes of weights": _layout_crc(task.model),
        "the checksum of the first weights": _crc(simulator.state.weights, simulator.state.buffers),
        "the checksum of the weights that are not trained": _crc(*_untrained(task.model)),
        "the loss": Objective.of(task.loss).named,
        "the list of metrics": ", ".join(map(str, task.metrics)),
        "the number of samples": len(samples),
        "the checksum of the partition": _partition_crc(task.federation),
        "the checksum of some samples": _spot_check(samples),
        "the checksum of some test samples": None if task.test is None else _spot_check(task.test),
        "the checksum of the fleet": _fleet_crc(task),
    }


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return all weights and buffers by name, tied ones once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _untrained(model: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in _tensors(model).values() if not tensor.requires_grad]


def _layout_crc(model: nn.Module) -> int:
    layout = [(name, tuple(one.shape), str(one.dtype), one.requires_grad) for name, one in _tensors(model).items()]
    return zlib.crc32(repr(layout).encode())


def _partition_crc(federation: Federation) -> int:
    parts = federation.parts
    return _crc(*map(torch.from_numpy, [parts.starts] if isinstance(parts, ClientSlices) else parts))


def _spot_check(samples: SampleSource) -> int | None:
    """Return a checksum of some samples; None if they are drawn at random whenever they are read."""
    numbers = torch.linspace(0, len(samples) - 1, _SPOT_CHECKS, dtype=torch.float64).long().unique()
    found = _batch_crc(samples.take(numbers))
    return found if samples.resident or found == _batch_crc(samples.take(numbers)) else None


def _batch_crc(batch: Batch) -> int:
    return _crc(*(leaf for part in batch for leaf in leaves(part)))


def _crc(*tensors: torch.Tensor) -> int:
    found = 0
    for tensor in tensors:
        found = zlib.crc32(str((tuple(tensor.shape), tensor.dtype)).encode(), found)
        found = zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, found)
    return found


def _fleet_crc(task: "Task") -> int | None:
    from fewjoules.physics.fleet import COSTS

    if task.fleet is None:
        return None
    costs = {name: getattr(task.fleet, name) for name in COSTS}
    return zlib.crc32(json.dumps({name: None if c is None else c.tolist() for name, c in costs.items()}).encode())
