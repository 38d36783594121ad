"""Plan before training: from a scenario, with the costs that the nodes report in place of its own."""

from collections.abc import Sequence
from dataclasses import replace

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.identity import Introduction
from fewjoules.physics.fleet import COSTS, Fleet
from fewjoules.planner.plan import Plan
from fewjoules.planner.schemes import SCHEMES
from fewjoules.scenario import Scenario

NEEDED = ("joules_per_bit", "joules_per_step")


def with_reports(scenario: Scenario, clients: Sequence[Introduction]) -> Scenario:
    """Return the scenario with the fleet of these clients: as they report it, or as the file has it if none reports."""
    if not any(client.costs for client in clients):
        if len(scenario.fleet) != len(clients):
            raise InvalidInputError(
                f"{scenario.name}: the nodes report no costs, so the file must have one device for each of "
                f"{len(clients)} clients, got {len(scenario.fleet)}"
            )
        return scenario
    return replace(scenario, fleet=reported_fleet(clients), groups=())


def reported_fleet(clients: Sequence[Introduction]) -> Fleet:
    """Return the fleet of the clients by the costs that they report; a cost that not all report is unknown."""
    for client in clients:
        missing = [name for name in NEEDED if name not in client.costs]
        if missing:
            raise InvalidInputError(
                f"client {client.client!r} must report {missing[0].replace('_', '-')} in its node config or device file"
            )
    known = [name for name in COSTS if all(name in client.costs for client in clients)]
    battery = [client.costs.get("battery_joules", float("inf")) for client in clients]
    columns = {name: [client.costs[name] for client in clients] for name in known if name != "battery_joules"}
    return Fleet(**columns, battery_joules=battery, names=[client.client for client in clients])  # type: ignore[arg-type]


def planned(scenario: Scenario, scheme: str) -> Plan:
    """Return the plan of a scheme for a scenario."""
    chosen = SCHEMES.get(scheme)
    if chosen is None:
        raise InvalidInputError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    return chosen(scenario.problem())
