"""The ledger of a run for the browser: a page of its rows, and all that is needed to choose others."""

from collections.abc import Iterator, Mapping
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.provenance import KINDS
from fewjoules.runs.files import LEDGER_TABLE, RUN
from fewjoules.runs.results import plain_text
from fewjoules.runs.sealed import read_sealed
from fewjoules.studio.access import Workspace
from fewjoules.studio.runs.folders import FINISHED, RUN_KIND, Found, state_of
from fewjoules.studio.runs.ledger_filter import LAST_ROUND, LedgerFilter, whole
from fewjoules.studio.runs.ledger_sums import steadily
from fewjoules.studio.runs.ledger_table import Devices, csv_lines, page_of
from fewjoules.studio.runs.ongoing import device_names
from fewjoules.studio.runs.reading import folder_of, results_of

SIZES = (25, 50, 100, 500)
MOST_SUGGESTED = 300  # groups that are offered to choose from
MOST_NUMBERED = 50  # devices that a command names


def ledger_view(workspace: Workspace, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the page of the ledger that an address asks for."""
    found, wanted, devices, state = _asked(workspace, query)
    size = whole(query, "size", SIZES[1], low=1)
    if size not in SIZES:
        raise InvalidInputError(f"size must be one of {', '.join(map(str, SIZES))}, got {size}")
    page, falling = whole(query, "page", 1, low=1), query.get("order") == "falling"
    sort = query.get("sort", "")
    shown = steadily(lambda: page_of(found.path, wanted, devices, page=page, size=size, sort=sort, falling=falling))
    groups = list(dict.fromkeys(devices.groups))
    return shown | {
        "folder": workspace.name(found.path),
        "state": state,
        "groups": groups[:MOST_SUGGESTED] if len(groups) < len(devices.names) or len(groups) <= 60 else [],
        "kinds": list(KINDS),
        "sizes": list(SIZES),
        "command": _pandas(found, wanted, devices, workspace),
    }


def ledger_csv(workspace: Workspace, query: Mapping[str, str]) -> Iterator[str]:
    """Return the CSV of all rows that an address asks for, in pieces."""
    found, wanted, devices, _ = _asked(workspace, query)
    return csv_lines(found.path, wanted, devices)


def _asked(workspace: Workspace, query: Mapping[str, str]) -> tuple[Found, LedgerFilter, Devices, str]:
    found = folder_of(workspace, query.get("folder", ""), RUN_KIND)
    if found.problem is not None:
        raise InvalidInputError(found.problem)
    return found, LedgerFilter.of(query), devices_of(found), state_of(found)


def devices_of(found: Found) -> Devices:
    """Return names and groups of the devices: devices of one name in the scenario are a group."""
    state, run = results_of(found)
    names = run.summary.device_names
    if state != FINISHED:
        from fewjoules.studio.runs.ongoing import tables_of

        return Devices(names, tuple(device_names(tables_of(run.scenario_text), len(names))))
    told = read_sealed(found.path / RUN)["devices"]["names"]
    return Devices(names, tuple(plain_text(name) for name in told))


def _pandas(found: Found, wanted: LedgerFilter, devices: Devices, workspace: Workspace) -> str:
    """Return the line of Python that reads the same rows."""
    table = LEDGER_TABLE if state_of(found) == FINISHED else "ledger"
    conditions = []
    if wanted.first_round > 1:
        conditions.append(f"round >= {wanted.first_round}")
    if wanted.last_round < LAST_ROUND:
        conditions.append(f"round <= {wanted.last_round}")
    chosen = wanted.chosen_devices(devices.names, devices.groups)
    if chosen is not None:
        numbers = [number for number, one in enumerate(chosen) if one]
        rest = ", ..." if len(numbers) > MOST_NUMBERED else ""
        conditions.append(f"device in [{', '.join(map(str, numbers[:MOST_NUMBERED]))}{rest}]")
    if wanted.kind:
        conditions.append(f"{wanted.kind}_joules > 0")
    query = f".query({' and '.join(conditions)!r})" if conditions else ""
    return f"pandas.read_parquet({f'{workspace.name(found.path)}/{table}'!r}){query}"
