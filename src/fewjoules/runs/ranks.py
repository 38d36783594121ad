"""The processes that ``torchrun`` starts, as ranks of one training, and what they must agree on."""

import contextlib
import json
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from fewjoules import __version__
from fewjoules.engine.models.tree import leaves
from fewjoules.engine.ranks import ALONE, Ranks
from fewjoules.engine.simulator.federation import SampleSource
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
    """Join the processes that ``torchrun`` started, or the caller's own process group; alone where there are none."""
    size = ranks_expected()
    if size == 1:
        yield ALONE
        return
    if dist.is_initialized():
        if "gloo" not in str(dist.get_backend_config()):
            raise InvalidInputError('the process group must talk between hosts too; open it with "cpu:gloo,cuda:nccl"')
        yield Ranks(dist.get_rank(), size)
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if _has_nccl() else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\n")[0][:200]
        raise RankError(f"the {size} ranks cannot reach one another: {reason}") from error
    try:
        yield Ranks(dist.get_rank(), size)
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _has_nccl() -> bool:
    return torch.cuda.is_available() and dist.is_nccl_available()


def require_agreement(ranks: Ranks, task: "Task", simulator: Simulator) -> None:
    """Refuse ranks that would not train the same run, with the first fact in which one of them differs."""
    if ranks.size == 1:
        return
    told = [json.loads(text) for text in ranks.texts(json.dumps(_facts(task, simulator)))]
    for rank, facts in enumerate(told):
        for name in [*told[0], *facts]:
            ours, theirs = told[0].get(name), facts.get(name)
            if ours != theirs:
                error = InvalidInputError(
                    f"all ranks must train the same run, but {name} is {shown(ours)} on rank 0 and {shown(theirs)} on "
                    f"rank {rank}"
                )
                error.known_to_ranks = True  # type: ignore[attr-defined]
                raise error


def _facts(task: "Task", simulator: Simulator) -> dict[str, Any]:
    device, samples = task.federation.device, task.federation.samples
    options = {f"option {name}": value for name, value in simulator.options.to_dict().items()}
    return {
        "the version of FewJoules": __version__,
        "the version of torch": torch.__version__,
        "the version of numpy": np.__version__,
        "the device": device_name(device),
        **json.loads(json.dumps(options)),
        "the execution": simulator.execution.name,
        "the number of weights": simulator.parameters.size,
        "the checksum of the first weights": _crc(simulator.state.weights, simulator.state.buffers),
        "the number of samples": len(samples),
        "the checksum of the partition": _crc(*(torch.from_numpy(part) for part in task.federation.parts)),
        "the checksum of some samples": _spot_check(samples),
        "the checksum of some test samples": None if task.test is None else _spot_check(task.test),
        "the checksum of the fleet": _fleet_crc(task),
    }


def _spot_check(samples: SampleSource) -> int:
    numbers = torch.linspace(0, len(samples) - 1, _SPOT_CHECKS, dtype=torch.float64).long().unique()
    return _crc(*leaves(samples.take(numbers)))


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
