"""Data of the user's own, ``data = "package.module:function"``: a function that returns them in a dict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fewjoules.engine.models.architectures import Images, Shape, Text
from fewjoules.errors import InvalidInputError, require_integer, shown
from fewjoules.own_code import first_line, own_function

_WHAT = "training.data"
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """What the function returned: ``clients``, one entry for each device, or ``train``, which a partition divides.

    ``classes`` is needed for the networks that FewJoules brings, and ``loss`` where targets are not labels. ``loss``
    and ``metrics`` are those of ``fewjoules.train``.
    """

    name: str
    clients: Sequence[Any] | None = None
    train: Any = None
    test: Any = None
    loss: Any = None
    metrics: Mapping[str, Any] | None = None
    classes: int | None = None

    def shape(self) -> Shape:
        """Return the images or text that a network of FewJoules is built for; refuse other data."""
        if self.classes is None:
            raise InvalidInputError(
                f"{_WHAT} {self.name!r} must return classes, the number of labels, for a network that FewJoules brings"
            )
        part, where = (self.train, "train") if self.clients is None else (self.clients[0], "clients[0]")
        sides = tuple(map(int, _input_shape(part) or ()))
        if len(sides) == 3:
            return Images(*sides, classes=self.classes)
        if len(sides) == 1:
            return Text(*sides, classes=self.classes)
        raise InvalidInputError(
            f"{_WHAT} {self.name!r} must return images (channels, height, width) or windows of tokens in {where} for a "
            f"network that FewJoules brings, got inputs of shape {sides}; a network of your own takes any data"
        )


KEYS = tuple(field.name for field in fields(OwnData) if field.name != "name")


def own_data(name: str, folder: Path) -> OwnData:
    """Call the function; refuse what it returns unless it is a dict of the known keys."""
    function = own_function(_WHAT, name, folder)
    try:
        found = function()
    except Exception as error:
        raise InvalidInputError(
            f"{_WHAT} {name!r} must be a function without arguments; calling it failed: {first_line(error)}"
        ) from error
    if not isinstance(found, Mapping):
        raise InvalidInputError(f"{_WHAT} {name!r} must return a dict, got {type(found).__name__}")
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise InvalidInputError(
            f"{_WHAT} {name!r} must return a dict with keys of {', '.join(KEYS)}, got {shown(unknown[0])}"
        )
    given = {key: value for key, value in found.items() if value is not None}
    if ("clients" in given) == ("train" in given):
        raise InvalidInputError(
            f"{_WHAT} {name!r} must return either clients or train, got {'both' if 'train' in given else 'neither'}"
        )
    if "clients" in given and (not isinstance(given["clients"], Sequence) or not given["clients"]):
        raise InvalidInputError(
            f"clients of {_WHAT} {name!r} must be a list with the data of each client, got {shown(given['clients'])}"
        )
    if "classes" in given:
        require_integer(f"classes of {_WHAT} {name!r}", given["classes"], low=1, high=_MOST_CLASSES)
    if not isinstance(given.get("metrics", {}), Mapping):
        raise InvalidInputError(
            f"metrics of {_WHAT} {name!r} must be a dict of functions by name, got {shown(given['metrics'])}"
        )
    return OwnData(name=name, **given)


def _input_shape(part: Any) -> Sequence[int] | None:
    """Return the shape of one input: of a pair of arrays, or of the first item of a data set; None where unknown."""
    if isinstance(part, tuple | list) and len(part) == 2 and hasattr(part[0], "shape"):
        return part[0].shape[1:]
    try:
        item = part[0]
    except Exception:
        return None
    first = item[0] if isinstance(item, tuple | list) and item else None
    return getattr(first, "shape", None)
