"""Which rows of a ledger are wanted: by device, group, rounds and kind of joules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewjoules.errors import InvalidInputError, shown
from fewjoules.provenance import KINDS

Columns = Mapping[str, NDArray[Any]]  # of some rows, by name
LAST_ROUND = 2**31 - 1
NAMED = ("round", "device", "name", "group", "delivered")  # in every table
ALL_KINDS = ("local_steps", "entries", "payload_bytes", "downlink_bytes", *(f"{kind}_joules" for kind in KINDS))
OF_KIND = {
    "uplink": ("entries", "payload_bytes", "uplink_joules", "uplink_seconds", "planned_uplink_joules", "uplink_mark"),
    "downlink": ("downlink_bytes", "downlink_joules", "downlink_seconds", "downlink_mark"),
    "tail": ("tail_joules", "tail_mark"),
    "compute": ("local_steps", "samples", "compute_joules", "compute_seconds", "compute_mark"),
    "codec": ("codec_joules", "codec_seconds", "codec_mark"),
}


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """Texts and numbers as an address holds them; an empty text leaves out no row."""

    device: str = ""
    group: str = ""
    first_round: int = 1
    last_round: int = LAST_ROUND
    kind: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "LedgerFilter":
        """Return the filter of an address; refuse rounds that are no numbers, and unknown kinds."""
        kind = query.get("kind", "")
        if kind and kind not in KINDS:
            raise InvalidInputError(f"kind must be one of {', '.join(KINDS)}, or left out, got {shown(kind)}")
        first, last = whole(query, "from", 1), whole(query, "to", LAST_ROUND)
        return cls(query.get("device", "").strip(), query.get("group", ""), first, last, kind)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that is shown."""
        return (*NAMED, *(OF_KIND[self.kind] if self.kind else ALL_KINDS))

    @property
    def summed(self) -> tuple[str, ...]:
        """Columns of which the sum is told."""
        return tuple(
            name for name in self.columns if name not in NAMED and name != "entries" and not name.endswith("_mark")
        )

    def reads(self) -> list[str]:
        """Return the columns that decide which rows are wanted."""
        return ["round", "device", *([f"{self.kind}_joules"] if self.kind else [])]

    def wanted(self, rows: Columns, chosen: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Return for each row whether it is wanted; ``chosen`` tells it of each device, None if all are."""
        found = (rows["round"] >= self.first_round) & (rows["round"] <= self.last_round)
        if chosen is not None:
            known = (rows["device"] >= 0) & (rows["device"] < chosen.size)
            found &= known & chosen[np.where(known, rows["device"], 0)]
        if self.kind:
            found &= np.nan_to_num(rows[f"{self.kind}_joules"]) > 0.0
        return np.asarray(found, dtype=np.bool_)

    def chosen_devices(self, names: Sequence[str], groups: Sequence[str]) -> NDArray[np.bool_] | None:
        """Return for each device whether it is wanted; None if all are."""
        if not self.device and not self.group:
            return None
        found = np.ones(len(names), dtype=np.bool_)
        if self.group:
            found &= np.array([one == self.group for one in groups], dtype=np.bool_)
        if self.device:
            by_device = np.zeros(len(names), dtype=np.bool_)
            for part in self.device.split(","):
                by_device |= _named(part.strip(), names)
            found &= by_device
        return found


def whole(query: Mapping[str, str], name: str, usual: int, low: int = 0) -> int:
    """Return a whole number of an address, the usual one where it is left out."""
    text = query.get(name, "").strip()
    if not text:
        return usual
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not low <= int(text) <= LAST_ROUND:
        raise InvalidInputError(f"{name} must be a whole number from {low} to {LAST_ROUND}, got {shown(text)}")
    return int(text)


def _named(part: str, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which devices a part of the filter stands for: a number, a range 3-5, a name, or a part of names."""
    found = np.zeros(len(names), dtype=np.bool_)
    first, dash, last = part.partition("-")
    if part in names:
        found[names.index(part)] = True
    elif first.isdecimal() and (not dash or last.isdecimal()):
        found[int(first[:12]) : int((last if dash else first)[:12]) + 1] = True
    elif part:
        found[:] = [part.casefold() in name.casefold() for name in names]
    return found
