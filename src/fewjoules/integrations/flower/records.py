"""Our messages as Flower's records. Flower reads no payload: it sees bytes, or an array of a kind of our own."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.arrays import Named
from fewjoules.integrations.flower.identity import Introduction, require_cost, require_name
from fewjoules.integrations.flower.messages import Reply, Request
from fewjoules.physics.fleet import COSTS
from fewjoules.provenance import KINDS, MARKS, require_mark

OURS, MODEL, UPLOAD = "fewjoules", "model", "upload"  # names of the records in a message
STYPE = "fewjoules.payload.v1"
SMALL_BYTES = 1 << 18  # up to here a message carries its payloads as bytes
INTRODUCE, ROUND = "introduce", "round"  # what a node is asked for
PayloadRecord = ArrayRecord | ConfigRecord


def payloads_record(payloads: Mapping[str, bytes]) -> PayloadRecord:
    """Return payloads as one record: of bytes if they are small, else of arrays.

    Flower asks for each array and each 5 MB of it in a request of its own, whose headers take 900 bytes. Bytes need no
    request beside that of the record, but go through Flower in one piece, which is slow from some megabytes on.
    """
    if sum(map(len, payloads.values())) <= SMALL_BYTES:
        return ConfigRecord(dict(payloads))
    return ArrayRecord(
        {
            name: Array(dtype="uint8", shape=(len(payload),), stype=STYPE, data=payload)
            for name, payload in payloads.items()
        }
    )


def payload_of(record: Any, name: str) -> bytes:
    """Return a payload of a record that ``payloads_record`` made; anything else is refused."""
    found = record.get(name)
    if isinstance(found, bytes):
        return found
    if not isinstance(found, Array) or found.stype != STYPE:
        raise InvalidInputError(f"{name} must be bytes, or an array of the kind {STYPE!r}")
    return bytes(found.data)


def model_record(weights: bytes, buffers: bytes) -> PayloadRecord:
    """Return the downlink of a round; nodes with the same need share one record, which Flower stores once."""
    return payloads_record({"weights": weights, "buffers": buffers})


def introduction_record(told: Introduction) -> RecordDict:
    """Return what a node tells about itself as the content of a message."""
    marks = {f"{kind}_mark": mark for kind, mark in told.marks.items()}
    return RecordDict({OURS: ConfigRecord({"client-id": told.client, "samples": told.samples, **told.costs, **marks})})


def introduction_of(reply: Message) -> Introduction:
    """Read what a node tells about itself, which may be anything: what cannot be is refused in one sentence."""
    if reply.has_error():
        raise InvalidInputError(error_text(reply))
    told = reply.content.config_records.get(OURS)
    if told is None or not isinstance(told.get("client-id"), str):
        raise InvalidInputError("its reply has no client-id")
    samples = told.get("samples")
    if isinstance(samples, bool) or not isinstance(samples, int) or not 0 <= samples < 2**31:
        raise InvalidInputError(f"its samples must be 0 to 2^31 - 1, got {samples!r}")
    costs = {name: require_cost(name, told[name]) for name in COSTS if name in told}
    marks = {kind: f"{kind}_mark" for kind in KINDS if f"{kind}_mark" in told}
    return Introduction(
        require_name("a client-id", str(told["client-id"])),
        samples,
        costs,
        {kind: MARKS[require_mark(key, told[key])] for kind, key in marks.items()},
    )


def asked_for(message: Message) -> str | None:
    """What a message of the server asks for; None where it is not one of ours."""
    record = message.content.config_records.get(OURS) if message.has_content() else None
    return None if record is None else str(record.get("ask"))


def request_record(request: Request, model: PayloadRecord) -> RecordDict:
    """Return a request as the content of a message."""
    told: dict[str, Any] = {"ask": ROUND, "run": request.run, "model-round": request.model_round}
    told |= {"base": request.base, "assigns": request.assigns}
    texts = {"order": request.order, "layout": request.layout, "config": request.config}
    return RecordDict(
        {OURS: ConfigRecord(told | {name: json.dumps(value) for name, value in texts.items()}), MODEL: model}
    )


def request_of(message: Message) -> Request:
    """Read a request from a message."""
    told, model = message.content.config_records[OURS], message.content[MODEL]
    return Request(
        run=str(told["run"]),
        order=json.loads(str(told["order"])),
        model_round=_whole(told["model-round"]),
        base=_whole(told["base"]),
        assigns=told["assigns"] is True,
        weights=payload_of(model, "weights"),
        buffers=payload_of(model, "buffers"),
        layout=json.loads(str(told["layout"])),
        config=json.loads(str(told["config"])),
    )


def reply_record(reply: Reply) -> RecordDict:
    """Return a reply as the content of a message."""
    told: dict[str, Any] = {
        "run": reply.run,
        "client-id": reply.client,
        "round": reply.round,
        "losses": list(reply.losses),
        "correct": list(reply.correct),
        "samples": reply.samples,
        "needs-model": reply.needs_model,
        "metrics": json.dumps(reply.metrics),
    }
    upload = payloads_record({"update": reply.update, "buffers": reply.buffers})
    return RecordDict({OURS: ConfigRecord(told), UPLOAD: upload})


def reply_of(message: Message) -> Reply:
    """Read a reply of a node, which may be anything: what cannot be a reply is refused in one sentence."""
    try:
        told, upload = message.content.config_records[OURS], message.content[UPLOAD]
        return Reply(
            run=str(told["run"]),
            client=str(told["client-id"]),
            round=_whole(told["round"]),
            update=payload_of(upload, "update"),
            buffers=payload_of(upload, "buffers"),
            losses=_numbers(told["losses"]),
            correct=_numbers(told["correct"]),
            samples=_whole(told["samples"]),
            metrics={str(name): float(value) for name, value in json.loads(str(told["metrics"])).items()},
            needs_model=told["needs-model"] is True,
        )
    except InvalidInputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"the reply lacks a record or has one of another form ({type(error).__name__})"
        ) from error


def error_text(message: Message) -> str:
    """Return what Flower says about a node that failed, cut where it is long."""
    return f"Flower's error {message.error.code}: {str(message.error.reason)[:500]}"


def named_arrays(record: ArrayRecord) -> Named:
    """Return the arrays of an ordinary record."""
    return {name: array.numpy() for name, array in record.items()}


def array_record(arrays: Named) -> ArrayRecord:
    """Return an ordinary record of arrays."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number, got {type(value).__name__}")
    return value


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
