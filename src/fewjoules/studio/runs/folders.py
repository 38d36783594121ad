"""Find the folders of runs, comparisons and tunings below the folder of the studio, and tell their state."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewjoules.errors import FewJoulesError
from fewjoules.ledger.schema import LEDGER, METRICS
from fewjoules.runs.files import (
    CHECKPOINT,
    COMPARISON,
    LEDGER_TABLE,
    METRICS_TABLE,
    OWN_COMMAND,
    PILOTS,
    RUN,
    SETTINGS,
    TUNING,
)
from fewjoules.runs.lock import is_held
from fewjoules.runs.sealed import read_sealed

RUN_KIND, COMPARISON_KIND, TUNING_KIND = "run", "comparison", "tuning"
RUNNING, FINISHED, STOPPED, DAMAGED = "running", "finished", "stopped", "damaged"
MOST_FOLDERS = 2_000  # that are listed
MOST_LOOKED_AT = 50_000  # so that a studio of a whole disk answers too
DEEPEST = 12
_KIND_OF = {"train": RUN_KIND, OWN_COMMAND: RUN_KIND, "compare": COMPARISON_KIND, "tune": TUNING_KIND}
_OWN_FOLDERS = {"ledger", "metrics", "plots", "tensorboard", "node_modules", "__pycache__"}
_NEWEST = (RUN, TUNING, COMPARISON, METRICS_TABLE, LEDGER_TABLE, "metrics", PILOTS, CHECKPOINT, SETTINGS)


@dataclass(frozen=True, slots=True)
class Found:
    """A folder of results. ``problem`` is the sentence of a damaged one.

    ``parent`` is the comparison that it belongs to, which has ``parent_settings``.
    """

    path: Path
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    parent: Path | None = None
    parent_settings: dict[str, Any] = field(default_factory=dict)


def find_folders(root: Path) -> tuple[list[Found], bool]:
    """Return the folders of results below a folder, itself included, and whether all of it was looked at.

    Links are not followed, and hidden folders are left out.
    """
    found: list[Found] = []
    for looked_at, place in enumerate(_folders(root)):
        if looked_at >= MOST_LOOKED_AT or len(found) >= MOST_FOLDERS:
            return found, False
        one = look_at(place, root)
        if one is not None:
            found.append(one)
    return found, True


def look_at(place: Path, root: Path) -> Found | None:
    """Return what a folder holds, None if that is no results."""
    try:
        entries = list(os.scandir(place))
    except OSError:
        return None
    names = {entry.name for entry in entries}
    outside = next((one for one in _links(entries) if not one.resolve().is_relative_to(root)), None)
    if outside is not None:
        kind = _kind_by_files(names) or (RUN_KIND if SETTINGS in names else None)
        problem = f"{outside.name}: is a link that leads out of the folder of the studio, so nothing is read here"
        return None if kind is None else Found(place, kind, problem=problem)
    kind, settings, wrong = _kind_of(place, names)
    if kind is None:
        return None
    parent = _parent_of(place, root) if kind == RUN_KIND else None
    return Found(
        place, kind, settings, wrong, None if parent is None else parent[0], {} if parent is None else parent[1]
    )


def state_of(found: Found) -> str:
    """Tell whether a folder's run goes on, is finished, or was stopped or killed."""
    if found.problem is not None:
        return DAMAGED
    end = {RUN_KIND: RUN, COMPARISON_KIND: COMPARISON, TUNING_KIND: TUNING}[found.kind]
    if (found.path / end).exists():
        return FINISHED
    if found.parent is None:
        return RUNNING if is_held(found.path) else STOPPED
    return RUNNING if is_held(found.parent) and _is_newest(found) else STOPPED


def changed_at(place: Path) -> float:
    """Return when a folder's results were last written to, in seconds since 1970."""
    times = []
    for name in _NEWEST:
        try:
            times.append((place / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def sealed_at(file: Path) -> Any:
    """Read a sealed JSON file, once as long as it does not change; the caller must not change what it gets."""
    found = file.stat()
    return _sealed(file, found.st_mtime_ns, found.st_size, found.st_ino)


@functools.lru_cache(maxsize=8192)
def _sealed(file: Path, *_stamp: int) -> Any:
    return read_sealed(file)


def _links(entries: list[os.DirEntry[str]]) -> Iterator[Path]:
    """Yield the links among the files of a folder, and among the parts of its tables."""
    for entry in entries:
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.name in (LEDGER.name, METRICS.name) and entry.is_dir():
            yield from (Path(part.path) for part in os.scandir(entry.path) if part.is_symlink())


def _folders(root: Path) -> Iterator[Path]:
    for place, names, _ in os.walk(root):
        depth = len(Path(place).relative_to(root).parts)
        kept = [name for name in names if not name.startswith(".") and name not in _OWN_FOLDERS]
        names[:] = sorted(kept) if depth < DEEPEST else []
        yield Path(place)


def _kind_of(place: Path, names: set[str]) -> tuple[str | None, dict[str, Any], str | None]:
    """Return the kind of a folder, its settings, and what is wrong with them."""
    if SETTINGS in names:
        try:
            settings = sealed_at(place / SETTINGS)
        except FewJoulesError as error:
            return _kind_by_files(names) or RUN_KIND, {}, str(error)
        kind = _KIND_OF.get(str(settings.get("command"))) if isinstance(settings, dict) else None
        return (kind, settings, None) if kind is not None else (_kind_by_files(names), {}, None)
    return _kind_by_files(names), {}, None


def _kind_by_files(names: set[str]) -> str | None:
    """Return the kind of a folder without settings, such as a run in a comparison."""
    if RUN in names or CHECKPOINT in names or {"metrics", "ledger"} <= names:
        return RUN_KIND
    if COMPARISON in names:
        return COMPARISON_KIND
    return TUNING_KIND if TUNING in names or PILOTS in names else None


def _parent_of(place: Path, root: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the comparison that a run belongs to, and its settings: SCHEME or SCHEME/seed-N is below it."""
    for above in (place.parent, place.parent.parent):
        if not above.is_relative_to(root):
            return None
        try:
            settings = sealed_at(above / SETTINGS) if (above / SETTINGS).is_file() else None
        except FewJoulesError:
            return None
        if isinstance(settings, dict):
            return (above, settings) if settings.get("command") == "compare" else None
        if (above / COMPARISON).exists():
            return above, {}
    return None


def _is_newest(found: Found) -> bool:
    """Whether no other unfinished run of the comparison was written to later: a comparison trains one at a time."""
    assert found.parent is not None
    own = changed_at(found.path)
    for other in (*found.parent.glob("*/"), *found.parent.glob("*/seed-*/")):
        unfinished = other != found.path and (other / "metrics").is_dir() and not (other / RUN).exists()
        if unfinished and changed_at(other) > own:
            return False
    return True
