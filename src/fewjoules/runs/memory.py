"""Refuse a training that needs more memory than is free, before anything is written."""

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from fewjoules.engine.simulator.evaluate import Evaluator
from fewjoules.engine.simulator.memory import DISK, GPU, HOST, Need, needs_of
from fewjoules.engine.simulator.simulator import Simulator
from fewjoules.engine.store.client_store import StorePlace
from fewjoules.errors import InvalidInputError, require_number
from fewjoules.runs.client_rows import row_files
from fewjoules.torchrun import ranks_on_this_machine

ENVIRONMENT = "FEWJOULES_MEMORY_CHECK"
MOST_GIB = 2.0**30
_STORE_SHARE = 0.5  # of the free memory that what clients keep may take, unless memory_gib says otherwise
_SHOWN = 0.02  # a need below this share of all is not worth a word


def store_place(memory_gib: float | None, folder: Path | None = None) -> StorePlace:
    """Return the place for what clients keep: up to ``memory_gib`` in memory, the rest in a file in ``folder``.

    Without ``memory_gib``, half of the memory that is free now is taken, shared with other ranks on this machine.
    """
    if memory_gib is not None:
        return StorePlace(int(2**30 * require_number("memory_gib", memory_gib, low=0.0, high=MOST_GIB)), folder)
    free = free_bytes()
    return StorePlace(None if free is None else math.floor(_STORE_SHARE * free / ranks_on_this_machine()), folder)


def require_memory(
    simulator: Simulator,
    *,
    rows_in_memory: bool,
    checkpoint: Path | None = None,
    evaluator: Evaluator | None = None,
) -> None:
    """Refuse a training that will not fit into memory or on the disk, unless $FEWJOULES_MEMORY_CHECK is "off".

    ``checkpoint`` is the file that it will write, if any; what a resumed training has written beside it is there.
    """
    if os.environ.get(ENVIRONMENT) == "off":
        return
    needs = needs_of(simulator, rows_in_memory=rows_in_memory, saved=checkpoint is not None, evaluator=evaluator)
    device = simulator.federation.samples.device
    _require([need for need in needs if need.where == HOST], "memory", free_bytes())
    if device.type == "cuda":
        _require([need for need in needs if need.where == GPU], "memory of the GPU", free_gpu_bytes(device))
    free = free_disk_bytes(simulator.store.place.folder)
    there = 0 if checkpoint is None else sum(file.stat().st_size for file in row_files(checkpoint))
    _require([need for need in needs if need.where == DISK], "disk", None if free is None else free + there)


def _require(needs: Sequence[Need], kind: str, free: int | None) -> None:
    total = sum(need.bytes for need in needs)
    if free is None or total <= free:
        return
    large = [need for need in needs if need.bytes >= _SHOWN * total]
    parts = ", ".join(f"{in_words(need.bytes)} for {need.what}" for need in large)
    helps = list(dict.fromkeys(word for need in large for word in need.helps))
    raise InvalidInputError(
        f"training needs about {in_words(total)} of {kind} ({parts}), and {in_words(free)} are free; what helps: "
        f"{', '.join(helps)}; {ENVIRONMENT}=off trains all the same"
    )


def free_disk_bytes(folder: Path | None) -> int | None:
    """Bytes free on the disk of a folder, which may not exist yet; None if the system does not tell."""
    given = Path(tempfile.gettempdir()) if folder is None else folder.absolute()
    existing = next((place for place in (given, *given.parents) if place.is_dir()), None)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None


def in_words(count: int) -> str:
    """Return bytes as people read them, with two digits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count / 1e3:.0f} kB"


def free_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still get, by the system and by the limits of its control groups; None if unknown."""
    found = [*_of_system(root), *_of_groups(root)]
    return max(0, min(found)) if found else None


def _of_system(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield 1024 * int(line.split()[1])
            return
    try:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return


def _of_groups(root: Path) -> Iterator[int]:
    """What each control group around this process has left; cached file pages count as free."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, cached = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        own = Path(path.strip("/"))
        for group in (own, *own.parents):
            folder = root / mount / group
            most, used = _number(folder / limit), _number(folder / usage)
            if most is not None and used is not None:
                yield most - used + _cached(folder / "memory.stat", cached)


def _cached(file: Path, name: str) -> int:
    found = [line.split() for line in _lines(file)]
    return sum(int(words[1]) for words in found if words[:1] == [name])


def _number(file: Path) -> int | None:
    """The number in a file; None if there is no file or its limit is "max"."""
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


def free_gpu_bytes(device: torch.device) -> int:
    """Free memory of a GPU, with what PyTorch holds in this process without using it."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused
