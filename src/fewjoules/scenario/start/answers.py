"""The answers from which a first scenario is written, read from flags or from questions."""

import re
from dataclasses import dataclass
from pathlib import Path

from fewjoules.datasets.shapes import DATASETS
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.models.architectures import ARCHITECTURES
from fewjoules.errors import InvalidInputError, require_integer, require_name, require_number, shown
from fewjoules.own_code import is_own
from fewjoules.physics.fleet import MAX_DEVICES
from fewjoules.planner.problem import MAX_PARAMETERS
from fewjoules.profiles import Profile
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.profiles import load_profile
from fewjoules.scenario.start.usual import data_for

METRICS = ("accuracy", "loss", "perplexity")
USUAL_DEVICES = "wifi-phone:12"
USUAL_MODEL = "cnn"
MOST_GROUPS = 1000
_PARAMETERS = "parameters="
_OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Devices:
    """``count`` equal devices with the costs of a profile."""

    profile: Profile
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A network by its name or a function of the user's own, or only a number of parameters, which can be planned."""

    architecture: str | None = None
    parameters: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """All answers. ``target`` is a metric and its value; it and ``data`` are None for a model that is only planned."""

    devices: tuple[Devices, ...]
    model: Model
    data: str | None
    target: tuple[str, float] | None
    max_sparsity: float | None = None
    max_local_steps: int = 50
    round_seconds: float | None = None
    battery_joules: float | None = None
    seed: int = 0

    @property
    def device_count(self) -> int:
        """Number of all devices."""
        return sum(group.count for group in self.devices)

    @property
    def runs_own_code(self) -> bool:
        """Whether reading the scenario calls functions of the user's own."""
        return any(name is not None and is_own(name) for name in (self.model.architecture, self.data))


def read_devices(texts: list[str], folder: Path) -> tuple[Devices, ...]:
    """Return the devices of texts such as "lte-phone:40"; profiles of one's own lie below ``folder``."""
    if not 1 <= len(texts) <= MOST_GROUPS:
        raise InvalidInputError(f"--device must be given 1 to {MOST_GROUPS} times, got {len(texts)}")
    groups = tuple(_read_group(text.strip(), folder) for text in texts)
    require_integer("the number of all devices", sum(group.count for group in groups), low=1, high=MAX_DEVICES)
    return groups


def _read_group(text: str, folder: Path) -> Devices:
    name, colon, count = text.rpartition(":")
    name = name.strip() if colon else text
    number = read_whole(f"the count of {shown(name)}", count, low=1, high=MAX_DEVICES) if colon else 1
    if not name:
        raise InvalidInputError(f"--device must be PROFILE:COUNT, such as lte-phone:40, got {shown(text)}")
    require_name("--device", name)
    return Devices(load_profile(name, ScenarioFolder(folder)), number)


def read_model(text: str) -> Model:
    """Return the model of a text: an architecture, "module:function", or "parameters=N"."""
    text = text.strip()
    if text.startswith(_PARAMETERS):
        number = text.removeprefix(_PARAMETERS).replace(",", "").replace("_", "")
        return Model(parameters=read_whole("--model parameters", number, low=1, high=MAX_PARAMETERS))
    if text not in ARCHITECTURES and not _is_function(text):
        raise InvalidInputError(
            f"--model must be one of {', '.join(ARCHITECTURES)}, or 'my_module:function', or parameters=N, "
            f"got {shown(text)}"
        )
    return Model(architecture=text)


def read_data(text: str, model: Model) -> str:
    """Return the data set of a text, if the model can be trained on it."""
    text = text.strip()
    if text not in DATASETS and not _is_function(text):
        raise InvalidInputError(
            f"--data must be one of {', '.join(DATASETS)}, or 'my_module:function', got {shown(text)}"
        )
    fitting = data_for(model.architecture or "")
    if text in DATASETS and text not in fitting:
        raise InvalidInputError(
            f"--data must be one of {', '.join(fitting)} for --model {model.architecture}, got {shown(text)}"
        )
    return text


def _is_function(text: str) -> bool:
    return len(text) <= 200 and _OWN.fullmatch(text) is not None


def read_target(text: str) -> tuple[str, float]:
    """Return metric and value of a text: "0.95" is an accuracy; "loss=2.0" and "perplexity=7" name their metric."""
    metric, equals, value = (part.strip() for part in text.strip().rpartition("="))
    metric = metric if equals else "accuracy"
    if metric not in METRICS:
        raise InvalidInputError(
            f"--target must be an accuracy such as 0.95, or loss=NUMBER or perplexity=NUMBER, got {shown(text)}"
        )
    check = TrainingOptions.__dataclass_fields__[f"target_{metric}"].metadata["check"]
    number = read_number("--target", value)
    check.require(f"--target, the {metric},", number)
    return metric, number


def read_deadline(text: str) -> float | None:
    """Return the seconds of a deadline, or None for "none"."""
    if text.strip().lower() in ("", "none", "no"):
        return None
    return require_number("--round-seconds", read_number("--round-seconds", text), low=0.0, above=True)


def read_number(what: str, text: str) -> float:
    """Return the number that a text states."""
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"{what} must be a number, got {shown(text)}") from error


def read_whole(what: str, text: str, *, low: int, high: int) -> int:
    """Return the whole number that a text states, if it is in the range."""
    plain = text.strip()
    readable = plain.isascii() and plain.isdigit() and len(plain) <= 20
    return require_integer(what, int(plain) if readable else text, low=low, high=high)
