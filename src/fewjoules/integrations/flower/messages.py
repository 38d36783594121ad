"""What a server and its nodes say to each other, as plain data that need neither Flower nor PyTorch."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from fewjoules.errors import InvalidInputError

WHOLE = -1  # in place of a base: the message has the whole model
_LENGTH = struct.Struct("<Q")
_BLOBS = ("weights", "buffers", "update")
Message = TypeVar("Message", bound="Request | Reply")


@dataclass(frozen=True, slots=True)
class Request:
    """The order of a round for one node, and the model after ``model_round`` rounds, which it starts from.

    ``weights`` is a payload of the codec for a node that has the model after ``base`` rounds: the change since then,
    or, if the message ``assigns``, the present values of all weights that changed. Where ``base`` is WHOLE, it has all
    weights, and ``layout`` names their arrays. ``config`` holds what a user's own training function is told.
    """

    run: str
    order: dict[str, Any]
    model_round: int
    base: int
    weights: bytes
    buffers: bytes
    layout: list[dict[str, Any]] | None = None
    assigns: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """The round that is asked for."""
        return int(self.order["round"])

    @property
    def digest(self) -> str:
        """Digest of what the answer depends on: the same request asked again has the same one."""
        text = json.dumps([self.run, self.order, self.model_round, self.config], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """The upload of a round; ``needs_model`` instead asks for the whole model.

    ``update`` and ``buffers`` are payloads of the codec. ``losses`` and ``correct`` have one entry for each local step.
    """

    run: str
    client: str
    round: int
    update: bytes = b""
    buffers: bytes = b""
    losses: tuple[float, ...] = ()
    correct: tuple[float, ...] = ()
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    needs_model: bool = False


def to_frame(message: Request | Reply) -> bytes:
    """Write a message for a socket: lengths, a JSON header and the payloads."""
    data = asdict(message)
    blobs = {name: data.pop(name) for name in _BLOBS if name in data}
    header = json.dumps(data | {"blobs": {name: len(blob) for name, blob in blobs.items()}}).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *blobs.values()])


def request_from_frame(frame: bytes) -> Request:
    """Read a request that ``to_frame`` wrote."""
    return _read(frame, lambda data: Request(**data))


def reply_from_frame(frame: bytes) -> Reply:
    """Read a reply that ``to_frame`` wrote."""
    return _read(frame, lambda data: Reply(**data | {name: tuple(data[name]) for name in ("losses", "correct")}))


def _read(frame: bytes, made: Callable[[dict[str, Any]], Message]) -> Message:
    try:
        (length,) = _LENGTH.unpack_from(frame)
        start = _LENGTH.size + length
        data: dict[str, Any] = json.loads(frame[_LENGTH.size : start])
        for name, size in data.pop("blobs").items():
            if name not in _BLOBS or isinstance(size, bool) or size < 0:
                raise ValueError(f"{size!r} bytes of {name!r}")
            data[name] = frame[start : start + size]
            start += size
        message = made(data)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"a message between node and worker cannot be read ({type(error).__name__})") from error
    if start != len(frame):
        raise InvalidInputError(f"a message between node and worker must have {start} bytes, got {len(frame)}")
    return message
