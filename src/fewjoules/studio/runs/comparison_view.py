"""Comparisons for the browser: of a folder that ``fewjoules compare`` made, and of any runs that were chosen."""

from collections.abc import Mapping, Sequence
from typing import Any

from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.reports.comparison import run_names
from fewjoules.reports.page_figures import sections
from fewjoules.reports.progress_figures import progress_sections
from fewjoules.reports.ranking import ranking_of
from fewjoules.reports.seeds import by_rank
from fewjoules.runs.files import COMPARISON
from fewjoules.runs.results import RunResults
from fewjoules.runs.sealed import read_sealed
from fewjoules.scenario.schema.recipe import RecipeSearch
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.commands import commands_of
from fewjoules.studio.runs.folders import COMPARISON_KIND, FINISHED, RUN_KIND, Found, find_folders, look_at, state_of
from fewjoules.studio.runs.ongoing import tables_of
from fewjoules.studio.runs.reading import folder_of, results_of
from fewjoules.studio.runs.rows import row_of
from fewjoules.studio.runs.section_json import ranking_json, sections_json

MOST_RUNS = 60  # that are compared at once


def comparison_view(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return what the view of a comparison's folder shows."""
    found = folder_of(workspace, name, COMPARISON_KIND)
    if found.problem is not None:
        raise InvalidInputError(found.problem)
    state = state_of(found)
    own = [one for one in find_folders(found.path)[0] if one.kind == RUN_KIND]
    members = [one for one in (look_at(each.path, workspace.root) for each in own) if one is not None]
    told = read_sealed(found.path / COMPARISON) if state == FINISHED else {}
    diverged, text = told.get("diverged", {}), found.path / "scenario.toml"
    search = _search(text.read_text(encoding="utf-8", errors="replace") if text.is_file() else "")
    return _view(workspace, members, diverged if isinstance(diverged, dict) else {}, search) | {
        "folder": workspace.name(found.path),
        "state": state,
        "commands": commands_of(found, state, workspace),
    }


def chosen_view(workspace: Workspace, names: Sequence[str]) -> dict[str, Any]:
    """Return what the view of chosen runs shows; a comparison among them stands for all its runs."""
    members: dict[str, Found] = {}
    for name in names:
        found = folder_of(workspace, name)
        own = find_folders(found.path)[0] if found.kind == COMPARISON_KIND else [found]
        for one in own:
            seen = look_at(one.path, workspace.root)
            if seen is not None and seen.kind == RUN_KIND:
                members[workspace.name(seen.path)] = seen
    if not members:
        raise InvalidInputError("a comparison needs at least 1 run, got none; tick runs in the list")
    commands: dict[str, str] = {}
    for name, one in list(members.items())[:MOST_RUNS]:
        parent = None if one.parent is None else look_at(one.parent, workspace.root)
        for what, command in commands_of(one, state_of(one), workspace, parent).items():
            commands.setdefault(f"{what}: {name}" if parent is None else f"{what}: {parent.path.name}", command)
    return _view(workspace, list(members.values()), {}, None) | {"folder": None, "state": None, "commands": commands}


def _view(
    workspace: Workspace, members: Sequence[Found], diverged: Mapping[str, int], search: RecipeSearch | None
) -> dict[str, Any]:
    """Return ranking and figures of the runs that are finished, curves of those that go on, and a row for each."""
    if len(members) > MOST_RUNS:
        raise InvalidInputError(f"at most {MOST_RUNS} runs are compared at once, got {len(members)}")
    finished: list[RunResults] = []
    others: list[RunResults] = []
    for one in members:
        try:
            state, run = results_of(one)
        except (FewJoulesError, OSError):  # its row says why
            continue
        (finished if state == FINISHED else others).append(run)
    runs = by_rank(finished, diverged) if finished else []
    drawn = [*(sections(runs) if runs else []), *progress_sections(runs)] if runs else []
    return {
        "ranking": ranking_json(ranking_of(runs, diverged, search)) if runs else None,
        "sections": sections_json(drawn),
        "ongoing": sections_json(progress_sections(others)) if others else [],
        "runs": [row_of(one, workspace) for one in members],
        "names": _names(runs, workspace),
    }


def _names(runs: Sequence[RunResults], workspace: Workspace) -> dict[str, str]:
    """Return by what name the figures call the run of each folder."""
    return {workspace.name(run.folder): name for run, name in zip(runs, run_names(runs), strict=True)}


def _search(text: str) -> RecipeSearch | None:
    """Return what finding the recipe took, as the scenario tells it."""
    recipe = tables_of(text).get("recipe")
    if not isinstance(recipe, dict):
        return None
    pilots, steps, joules = (recipe.get(name) for name in ("pilots", "pilot_client_steps", "pilot_joules"))
    return RecipeSearch(
        pilots=pilots if isinstance(pilots, int) else None,
        pilot_client_steps=steps if isinstance(steps, int) else None,
        pilot_joules=float(joules) if isinstance(joules, int | float) else None,
    )
