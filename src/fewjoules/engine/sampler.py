"""The draw of the clients that take part in each round: uniformly, by battery or by energy, among those available.

``sampling = "energy"`` and ``"battery"`` draw clients with probabilities pi_m of their own and count their updates
p_m / pi_m times, so that the mean over all who can take part is estimated without bias. What a draw depends on beside
seed and round, the time and the joules that devices have spent, is in ``Books``.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from fewjoules.arrays import Flags, FloatArray, IntArray
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.participation import (
    Cohort,
    importance_of,
    participants_per_round,
    shares,
    uniform_cohort,
)
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.algorithm.systematic import UNITS, draw, in_units
from fewjoules.engine.expected_costs import expected_joules
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.ledger.schema import RowArray
from fewjoules.physics.availability import ROUNDS, SECONDS, Availability
from fewjoules.physics.fleet import Fleet
from fewjoules.planner.participation import inclusion_probabilities
from fewjoules.provenance import KINDS


@dataclass(slots=True)
class Books:
    """The time since training began, in seconds or rounds, and what each device has spent, (clients,)."""

    clock: float
    spent_joules: FloatArray

    def add(self, rows: RowArray, elapsed: float) -> None:
        """Add the ledger rows of a round that took ``elapsed``."""
        self.clock += elapsed
        np.add.at(self.spent_joules, rows["device"], sum(rows[f"{kind}_joules"] for kind in KINDS))


class Sampler:
    """Draws the cohort of each round; ``books`` is None where a draw depends on seed and round alone."""

    options: TrainingOptions

    def __init__(self, options: TrainingOptions, sizes: IntArray, accounts: Accounts, buffer_bytes: int) -> None:
        """Refuse options that need costs which the fleet does not have."""
        self.options, self._accounts = options, accounts
        self._importance = importance_of(options, sizes)
        self._size = participants_per_round(options)
        self._unit = self._unit_of_time()
        self._joules = expected_joules(accounts, sizes, buffer_bytes) if options.sampling != "uniform" else None
        self._batteries = self._require_batteries() if options.sampling == "battery" else None
        self._usual_units: IntArray | None = None
        self._empty: Flags = np.zeros(options.clients, dtype=bool)
        self.books: Books | None = None
        if options.availability is not None or self._batteries is not None:
            self.books = Books(0.0, np.zeros(options.clients))

    def cohort(self, number: int) -> Cohort | None:
        """Return who takes part in a round; None if nobody ever can again."""
        if self.books is None and self._joules is None:
            return uniform_cohort(self.options, self._importance, number)
        able = self._with_energy()
        waited = 0.0
        if self.options.availability is not None and self.books is not None:
            found = self.options.availability.at(self.books.clock, able, self._unit)
            if found is None:
                return None
            waited, able = found
        clients = np.flatnonzero(able)
        return replace(self._drawn(clients, number), waited=waited) if clients.size else None

    def book(self, rows: RowArray, seconds: float, waited: float) -> None:
        """Take note of a round's ledger rows, of the seconds of its slowest device, and of the wait before it."""
        if self.books is not None:
            self.books.add(rows, waited + (seconds if self._unit == SECONDS else 1.0))

    def waited_seconds(self, waited: float) -> float:
        """Return the seconds of a wait; none where time is counted in rounds."""
        return waited if self._unit == SECONDS else 0.0

    def _drawn(self, clients: IntArray, number: int) -> Cohort:
        """Draw among the clients that can take part."""
        if self._joules is None and clients.size == self.options.clients:
            return uniform_cohort(self.options, self._importance, number)
        size = min(self._size, clients.size)
        rng = stream(self.options.seed, "participation", number)
        if self._joules is None:
            chosen = np.sort(rng.choice(clients, size=size, replace=False))
            return Cohort(chosen, shares(self._importance, chosen))
        importance = self._importance[clients]
        units = self._units(clients, size)
        chosen = draw(units, size, rng)
        return Cohort(clients[chosen], importance[chosen] / importance.sum() * (UNITS / units[chosen]))

    def _units(self, clients: IntArray, size: int) -> IntArray:
        """Return the probabilities with which these clients are drawn, in units."""
        usual = self._batteries is None and clients.size == self.options.clients
        if usual and self._usual_units is not None:
            return self._usual_units
        units = in_units(inclusion_probabilities(self._importance[clients], self._costs(clients), size), size)
        self._usual_units = units if usual else self._usual_units
        return units

    def _costs(self, clients: IntArray) -> FloatArray:
        """Return the price of a participation: joules, or where batteries decide, 1 / the part that is left of it.

        A device without a battery counts as full.
        """
        assert self._joules is not None
        if self._batteries is None:
            return self._joules[clients]
        assert self.books is not None
        batteries, spent = self._batteries[clients], self.books.spent_joules[clients]
        limited = np.isfinite(batteries)
        left = np.where(limited, 1.0 - spent / np.where(limited, batteries, 1.0), 1.0)
        return 1.0 / np.maximum(left, 1e-9)

    def _with_energy(self) -> Flags:
        """Return the clients whose battery holds the expected joules of a round; warn of those that no longer do."""
        if self._batteries is None or self._joules is None or self.books is None:
            return np.ones(self.options.clients, dtype=bool)
        empty = self._batteries - self.books.spent_joules < self._joules
        new = np.flatnonzero(empty & ~self._empty)
        self._empty = empty
        if new.size:
            one = int(new[0])
            more = f" and {new.size - 1} others have" if new.size > 1 else " has"
            warnings.warn(
                f"device {self._fleet.device_name(one)}{more} too little left of the battery for a round and takes no "
                f"further part ({self.books.spent_joules[one]:.4g} of {self._batteries[one]:.4g} J are spent); "
                "from now on the mean is over the others",
                FewJoulesWarning,
                stacklevel=2,
            )
        return ~empty

    @property
    def _fleet(self) -> Fleet:
        assert self._accounts.fleet is not None
        return self._accounts.fleet

    def _require_batteries(self) -> FloatArray:
        batteries = self._fleet.battery_joules
        if batteries is None or not np.isfinite(batteries).any():
            raise InvalidInputError("sampling = 'battery' needs a fleet with battery_joules of some device, got none")
        return batteries

    def _unit_of_time(self) -> str:
        """Return the unit in which availability is told; refuse one that is not known."""
        availability = self.options.availability
        if availability is None:
            return ROUNDS
        missing = self._accounts.missing_times()
        if availability.unit == SECONDS and missing:
            raise InvalidInputError(
                f"availability in seconds needs a fleet with {missing[0]} of every device; without it, tell rounds"
            )
        availability.require_devices(self.options.clients)
        if isinstance(availability, Availability):
            away = availability.never_available(self.options.clients)
            if away.size:
                warnings.warn(
                    f"{away.size} of {self.options.clients} devices are never available, the first of them number "
                    f"{away[0]}: the model does not learn from them",
                    FewJoulesWarning,
                    stacklevel=2,
                )
        return availability.unit or (ROUNDS if missing else SECONDS)
