"""Hold a user's samples: in memory where they are there or fit, else they are read batch by batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fewjoules.arrays import IntArray
from fewjoules.engine.models.labels import USUAL, LabelRule
from fewjoules.engine.simulator.federation import ClientSlices as ClientSlices  # public
from fewjoules.engine.simulator.federation import SampleSource
from fewjoules.engine.simulator.read_samples import Reader, ReadSamples
from fewjoules.errors import InvalidInputError, require_number, shown
from fewjoules.runs.client_data import Arrays, gather, kind_of, pair_of, tensors_of
from fewjoules.runs.memory import free_bytes, free_gpu_bytes
from fewjoules.runs.plain_arrays import is_array, plain_pair
from fewjoules.runs.readers import ArrayReader, DataSetReader, arrays_of, is_data_set, is_on_disk

_SHARE = 0.25  # of the free memory that data sets may take


def collect(
    clients: Sequence[Arrays],
    device: torch.device,
    *,
    data: Arrays | None = None,
    memory_gib: float | None = None,
    rule: LabelRule = USUAL,
) -> tuple[SampleSource, Sequence[IntArray]]:
    """Return the samples of all clients and the sample numbers of each.

    ``clients`` holds the arrays or the data set of each, or with ``data``, which all share, sample numbers of it. Data
    sets of up to ``memory_gib`` are read into memory at once, by default a quarter of what is free. The ``rule`` of the
    loss says which labels are checked.
    """
    if len(clients) == 0:
        raise InvalidInputError("clients must have at least one entry")
    if data is None:
        names = [f"clients[{number}]" for number in range(len(clients))]
        own = [plain_pair(given, name) for given, name in zip(clients, names, strict=True)]
        return _joined(own, names, device, memory_gib, rule)
    samples = collect_one(data, device, "data", memory_gib, rule)
    if isinstance(clients, ClientSlices):
        _require_slices(clients, len(samples))
        return samples, clients
    return samples, [_numbers(given, f"clients[{number}]", len(samples)) for number, given in enumerate(clients)]


def collect_one(
    given: Arrays, device: torch.device, name: str, memory_gib: float | None = None, rule: LabelRule = USUAL
) -> SampleSource:
    """Return the samples of one pair of arrays or one data set; errors call them by ``name``."""
    given = plain_pair(given, name)
    if _is_ready(given):
        return tensors_of(given, device, name, rule)
    return _joined([given], [name], device, memory_gib, rule)[0]


def _joined(
    given: Sequence[Arrays], names: list[str], device: torch.device, memory_gib: float | None, rule: LabelRule
) -> tuple[SampleSource, list[IntArray]]:
    if all(map(_is_ready, given)):
        return gather(given, device, rule)
    readers = [_reader(one, name) for one, name in zip(given, names, strict=True)]
    ends = np.cumsum([len(reader) for reader in readers])
    parts = [np.arange(end - len(reader), end) for end, reader in zip(ends, readers, strict=True)]
    samples = ReadSamples(readers, device, rule=rule)
    mapped = any(_has_disk(one) for one in given)
    if not mapped and len(samples) * samples.sample_bytes <= _most_bytes(device, memory_gib):
        return samples.loaded(), parts
    return samples, parts


def _is_ready(given: Arrays) -> bool:
    """Tell whether samples are arrays in memory, or nothing that can be read."""
    return not is_data_set(given) and not is_array(given) and not _has_disk(given)


def _has_disk(given: Arrays) -> bool:
    return not is_data_set(given) and any(is_on_disk(array) for array in arrays_of(_as_tree(given)))


def _reader(given: Arrays, name: str) -> Reader:
    if is_data_set(given):
        return DataSetReader(given, name)
    if is_array(given):
        return ArrayReader(given, None, name)
    return ArrayReader(*pair_of(given, name), name)


def _as_tree(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


def _numbers(given: Any, name: str, samples: int) -> IntArray:
    """Return sample numbers of a client, in order; refuse other values, and numbers out of range or twice."""
    found = _plain_numbers(given, name)
    if found.ndim != 1 or not found.size or not np.issubdtype(found.dtype, np.integer):
        raise InvalidInputError(f"{name} must hold sample numbers of data, at least one, got {shown(given)}")
    numbers = np.sort(found.astype(np.int64))
    if numbers[0] < 0 or numbers[-1] >= samples:
        wrong = int(numbers[0] if numbers[0] < 0 else numbers[-1])
        raise InvalidInputError(f"{name} must hold sample numbers from 0 to {samples - 1}, got {wrong}")
    twice = np.flatnonzero(np.diff(numbers) == 0)
    if twice.size:
        raise InvalidInputError(f"{name} must hold each sample once, got {int(numbers[twice[0]])} twice")
    return numbers


def _plain_numbers(given: Any, name: str) -> Any:
    """Return numbers as an array; refuse samples of a client's own."""
    try:
        if not isinstance(given, Dataset):
            return np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise InvalidInputError(
        f"{name} must hold sample numbers of data, at least one, got {kind_of(given)}; leave data out where clients "
        "have samples of their own"
    )


def _require_slices(clients: ClientSlices, samples: int) -> None:
    """Refuse slices that are not those of so many samples."""
    starts, sizes = clients.starts, clients.sizes
    wrong = np.flatnonzero((starts < 0) | (sizes < 1) | (starts + sizes > samples))
    if wrong.size:
        client = int(wrong[0])
        raise InvalidInputError(
            f"clients[{client}] must be a slice of data with at least one of its {samples} samples, got "
            f"{int(sizes[client])} from number {int(starts[client])} on"
        )


def _most_bytes(device: torch.device, memory_gib: float | None) -> float:
    if memory_gib is not None:
        return require_number("data_memory_gib", memory_gib, low=0.0) * 2**30
    free = free_gpu_bytes(device) if device.type == "cuda" else free_bytes()
    return float("inf") if free is None else _SHARE * free
