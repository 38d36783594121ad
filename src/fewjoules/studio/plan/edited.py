"""A scenario as it was edited in the page: its tables, where its files lie, and prices to multiply."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError, require_name, require_number
from fewjoules.own_code import is_own
from fewjoules.scenario import Scenario
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.profiles import with_profiles
from fewjoules.scenario.toml_text import toml_text
from fewjoules.studio.access import Workspace

LEAST_PRICE, MOST_PRICE = 1e-6, 1e6
STEP_WATTS = ("static_watts", "memory_watts_per_hertz", "core_watts_per_volt2_hertz")  # joules are linear in them
PRICED = {  # costs of a device that a price multiplies
    "bit": ("joules_per_bit", "message_joules", "downlink_joules_per_bit", "downlink_message_joules"),
    "step": ("joules_per_step", "joules_per_sample", "joules_per_flop"),
    "tail": ("tail_watts", "promotion_joules"),
}
PRICED_IN_RADIO = {"bit": ("power_watts", "downlink_watts"), "tail": ("tail_watts", "promotion_joules")}

Entry = dict[str, Any]  # a [[device]] entry


@dataclass(frozen=True, slots=True)
class Edited:
    """Tables of a scenario file; ``prices`` multiply costs of all devices.

    Files that the scenario names lie below ``folder``.
    """

    tables: dict[str, Any]
    name: str
    folder: Path
    prices: Mapping[str, float]

    @classmethod
    def of(cls, posted: Mapping[str, Any], workspace: Workspace) -> "Edited":
        """Check what the page sent."""
        tables, folder, name = posted.get("scenario"), posted.get("folder", ""), posted.get("name", "fleet.toml")
        prices = posted.get("prices", {})
        if not isinstance(tables, dict) or not isinstance(folder, str) or not isinstance(prices, dict):
            raise InvalidInputError("the request must have a scenario and prices, as tables, and a folder, as text")
        require_name("the name of the scenario", name)
        if unknown := sorted(set(prices) - set(PRICED)):
            raise InvalidInputError(f"prices must be of {', '.join(PRICED)}, got {unknown[0]!r}")
        return cls(tables, name, workspace.path(folder), prices)

    @property
    def file_name(self) -> str:
        """Name under which the page saves the scenario."""
        return self.name if self.name.endswith(".toml") else f"{self.name}.toml"

    def priced(self) -> dict[str, Any]:
        """Return the tables with the prices multiplied into the costs of every device."""
        for key, price in self.prices.items():
            require_number(f"the price of a {key}", price, low=LEAST_PRICE, high=MOST_PRICE)
        changed = {key: price for key, price in self.prices.items() if price != 1.0}
        devices = self.tables.get("device")
        if not changed or not isinstance(devices, list) or not all(isinstance(one, dict) for one in devices):
            return self.tables
        completed, _ = with_profiles(devices, ScenarioFolder(self.folder))
        return self.tables | {
            "device": [_priced(entry, whole, changed) for entry, whole in zip(devices, completed, strict=True)]
        }

    def text(self) -> str:
        """Return the scenario file that plans the same."""
        return toml_text(self.priced())

    def scenario(self, text: str | None = None) -> Scenario:
        """Return the scenario; refuse one that would run code of the user's own."""
        self._require_no_own_code()
        return Scenario.from_text(self.text() if text is None else text, self.name, self.folder)

    def _require_no_own_code(self) -> None:
        model, training = (self.tables.get(key) for key in ("model", "training"))
        for table, key in ((model, "architecture"), (training, "data")):
            value = table.get(key) if isinstance(table, dict) else None
            planned = isinstance(model, dict) and "architecture" in model
            if planned and isinstance(value, str) and is_own(value):
                where = "model.architecture" if key == "architecture" else "training.data"
                raise InvalidInputError(
                    f"{self.name}: {where} = {value!r} is code of your own, which the studio does not run; give "
                    "model.parameters in place of model.architecture (fewjoules plan tells their number)"
                )


def _priced(entry: Entry, whole: Entry, prices: Mapping[str, float]) -> Entry:
    """Return an entry with the costs multiplied that ``whole``, the entry with its profile, has."""
    made = dict(entry)
    for kind, price in prices.items():
        made |= _multiplied(whole, PRICED[kind], price)
        radio = whole.get("radio")
        if isinstance(radio, dict) and kind in PRICED_IN_RADIO:
            made["radio"] = made.get("radio", {}) | _multiplied(radio, PRICED_IN_RADIO[kind], price)
    if "step" in prices:
        gpu, points = whole.get("gpu"), whole.get("point")
        if isinstance(gpu, dict):
            made["gpu"] = gpu | _multiplied(gpu, STEP_WATTS, prices["step"])
        if isinstance(points, list):
            made["point"] = [
                one | _multiplied(one, PRICED["step"], prices["step"]) if isinstance(one, dict) else one
                for one in points
            ]
    return made


def _multiplied(table: Entry, keys: tuple[str, ...], price: float) -> Entry:
    return {key: table[key] * price for key in keys if isinstance(table.get(key), int | float)}
