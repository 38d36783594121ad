"""Read one folder of results for the views: its kind, its state, and its results so far."""

import functools
from pathlib import Path

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.files import require_intact
from fewjoules.runs.files import RUN
from fewjoules.runs.results import RunResults, RunSummary, read_summary
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.folders import DAMAGED, FINISHED, RUN_KIND, Found, look_at, state_of
from fewjoules.studio.runs.ongoing import ongoing_results

CHECKED_BYTES = 4 * 2**20  # of files whose checksums are checked for a list; larger ones when a run is opened


def folder_of(workspace: Workspace, name: str, kind: str | None = None) -> Found:
    """Return the results in a folder below the workspace; refuse another one, or one of another kind."""
    found = look_at(workspace.path(name), workspace.root)
    if found is None or (kind is not None and found.kind != kind):
        what = "results" if kind is None else f"a {kind}"
        raise InvalidInputError(f"{name or '.'}: must be a folder that holds {what}")
    return found


def results_of(found: Found) -> tuple[str, RunResults]:
    """Return the state of a run and its results so far; refuse damaged ones with the sentence that says why."""
    if found.kind != RUN_KIND:
        raise InvalidInputError(f"{found.path.name}: must be a folder that holds a run")
    if found.problem is not None:
        raise InvalidInputError(found.problem)
    state = state_of(found)
    if state == FINISHED:
        return state, _finished(found.path, *_stamp(found.path / RUN))
    return state, ongoing_results(found, state)


def summary_of(found: Found) -> tuple[str, RunSummary | None, str | None]:
    """Return state, summary and problem of a run for a list; what is damaged has no summary."""
    try:
        state = state_of(found)
        if state == DAMAGED:
            return DAMAGED, None, found.problem
        if state == FINISHED:
            return state, _checked_summary(found.path, *_stamp(found.path / RUN)), None
        return state, ongoing_results(found, state).summary, None
    except (FewJoulesError, OSError) as error:
        return DAMAGED, None, str(error)


def _stamp(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@functools.lru_cache(maxsize=64)
def _finished(folder: Path, *_stamp: int) -> RunResults:
    return RunResults.load(folder)


@functools.lru_cache(maxsize=4096)
def _checked_summary(folder: Path, *_stamp: int) -> RunSummary:
    """Read run.json, and check the files beside it that are small."""
    summary = read_summary(folder)
    for name, checksum in summary.checksums.items():
        file = folder / name
        if not file.exists() or file.stat().st_size <= CHECKED_BYTES:
            require_intact(file, checksum)
    return summary
