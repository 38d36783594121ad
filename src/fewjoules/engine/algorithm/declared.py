"""Allowed values of options. Each option is declared once and checked for the Python API and the scenario file."""

import math
from collections.abc import Mapping, Set
from dataclasses import MISSING, dataclass, field
from typing import Any, Protocol

import numpy as np

from fewjoules.engine.algorithm.step_sizes import StepSizes
from fewjoules.errors import InvalidInputError, require_array, require_integer, require_number
from fewjoules.ledger.target import Target
from fewjoules.physics.availability import availability_of


def as_plain(value: Any) -> Any:
    """Return an option with numbers of NumPy as those of Python, which JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {as_plain(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, Set):
        return set(map(as_plain, value))
    return type(value)(map(as_plain, value)) if type(value) in (list, tuple) else value


class Check(Protocol):
    """Refuses invalid values of an option."""

    def require(self, name: str, value: Any) -> None:
        """Raise an ``InvalidInputError`` that names the option, its allowed values and the value given."""


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from ``low`` to ``high``; ``above`` excludes ``low`` and ``below`` excludes ``high``."""

    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False

    def require(self, name: str, value: Any) -> None:
        """Check type and range."""
        require_number(name, value, low=self.low, high=math.inf if self.below else self.high, above=self.above)
        if self.below and value >= self.high:
            raise InvalidInputError(f"{name} must be at least {self.low:g} and below {self.high:g}, got {value!r}")


class Rate(Number):
    """A step size, or a function of the round that gives one, which only Python can."""

    def require(self, name: str, value: Any) -> None:
        """Check type and range of a number; what a function gives is checked when it is asked."""
        if not callable(value) and not isinstance(value, StepSizes):
            Number.require(self, name, value)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int

    def require(self, name: str, value: Any) -> None:
        """Check type and range."""
        require_integer(name, value, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some names."""

    names: tuple[str, ...]

    def require(self, name: str, value: Any) -> None:
        """Check membership."""
        if value not in self.names:
            raise InvalidInputError(f"{name} must be one of {', '.join(self.names)}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def require(self, name: str, value: Any) -> None:
        """Check the type."""
        if not isinstance(value, bool):
            raise InvalidInputError(f"{name} must be true or false, got {value!r}")


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """A metric of the user's own and the value to reach: "f1 >= 0.8"."""

    def require(self, name: str, value: Any) -> None:
        """Check that it can be read."""
        Target.parse(value)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A list of rounds."""

    high: int

    def require(self, name: str, value: Any) -> None:
        """Check every entry."""
        if not isinstance(value, list | tuple):
            raise InvalidInputError(f"{name} must be a list of rounds, got {value!r}")
        for number in value:
            require_integer(name, number, low=1, high=self.high)


@dataclass(frozen=True, slots=True)
class Sparsities:
    """One sparsity from 1 to ``high`` for each client."""

    high: float = math.inf

    def require(self, name: str, value: Any) -> None:
        """Check every entry."""
        require_array(name, value, low=1.0, high=self.high)


@dataclass(frozen=True, slots=True)
class Available:
    """When devices are available: an ``Availability``, rows (device, from, to), or a function of the time."""

    def require(self, name: str, value: Any) -> None:
        """Check everything but the number of devices, which a function alone knows."""
        try:
            availability_of(value)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: {error}") from error


@dataclass(frozen=True, slots=True)
class LostUploads:
    """Clients whose upload is lost, by round."""

    high: int

    def require(self, name: str, value: Any) -> None:
        """Check the types; the client numbers are checked by ``TrainingOptions``, which knows how many there are."""
        if not isinstance(value, Mapping):
            raise InvalidInputError(f"{name} must be a mapping of rounds to sets of clients, got {value!r}")
        for number, devices in value.items():
            if not isinstance(devices, Set | list | tuple):
                raise InvalidInputError(f"{name}[{number!r}] must be a set of clients, got {devices!r}")
            require_integer(f"{name}: the round", number, low=1, high=self.high)


def option(check: Check, default: Any = MISSING, *, factory: Any = MISSING, optional: bool = False) -> Any:
    """Declare a dataclass field with its check; ``optional`` also allows None and makes it the default."""
    metadata = {"check": check, "optional": optional}
    if optional and default is MISSING and factory is MISSING:
        default = None
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)
