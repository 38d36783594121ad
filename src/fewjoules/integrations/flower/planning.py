"""Plan before training: from a scenario, with the costs that the nodes report in place of its own."""

from collections.abc import Sequence
from dataclasses import replace

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.identity import Introduction
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.plan import Plan
from fewjoules.provenance import KINDS
from fewjoules.scenario import Scenario
from fewjoules.scenario.costs import cost_columns
from fewjoules.scenario.planning import ScenarioPlans, available_schemes

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
    charged = scenario.training is not None and scenario.training.downlink == "charged"
    for client in clients:
        _require_costs(client, (*NEEDED, "downlink_joules_per_bit") if charged else NEEDED)
    return replace(scenario, fleet=reported_fleet(clients), groups=())


def _require_costs(client: Introduction, needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in client.costs]
    if missing:
        raise InvalidInputError(
            f"client {client.client!r} must report {missing[0].replace('_', '-')} in its node config or device file"
        )


def reported_fleet(clients: Sequence[Introduction]) -> Fleet:
    """Return the fleet of the clients by the costs that they report and where those come from."""
    return Fleet(
        **cost_columns([client.costs for client in clients]),  # type: ignore[arg-type]
        provenance={kind: [client.marks.get(kind, "assumed") for client in clients] for kind in KINDS},
        names=[client.client for client in clients],
    )


def planned(scenario: Scenario, scheme: str | None = None) -> Plan:
    """Return the plan of a scheme for a scenario, of the usual one unless told another."""
    return ScenarioPlans(scenario).plan(available_schemes(scenario)[0] if scheme is None else scheme)
