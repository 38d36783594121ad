"""The ClientApp: passes messages on, keeps a journal of the bytes, and misbehaves where its node config says so."""

import json
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from fewjoules.flower import client_app
from fewjoules.integrations.flower.records import payload_of, payloads_record

honest = client_app("fewjoules_probe.task:node")
app = ClientApp()


@app.train()
def train(message, context):
    config, folder = context.node_config, Path(context.node_config["state-dir"])
    folder.mkdir(parents=True, exist_ok=True)
    asked = message.content.config_records["fewjoules"]
    received = payload_bytes(message.content["model"]) if "model" in message.content else 0
    reply = honest(message, context)
    if asked["ask"] != "round":
        return reply
    number = json.loads(asked["order"])["round"]
    if config.get("hostile") and number >= 2:
        reply = hostile(config["hostile"], reply, message, folder)
    sent = payload_bytes(reply.content["upload"])
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({"round": number, "received": received, "sent": sent}) + "\n")
    if not (folder / "first").exists():
        upload = {name: data.hex() for name, data in payloads_of(reply.content["upload"]).items()}
        (folder / "first").write_text(json.dumps([dict(reply.content["fewjoules"]), upload]))
    if config.get("pause") == "replying" and not (folder / "paused").exists():
        (folder / "paused").touch()
        time.sleep(600.0)
    return reply


def payloads_of(record) -> dict[str, bytes]:
    return {name: payload_of(record, name) for name in record}


def payload_bytes(record) -> int:
    return sum(map(len, payloads_of(record).values()))


def hostile(how: str, reply: Message, message: Message, folder: Path) -> Message:
    """Damage a reply: bytes flipped, ten times the size, or the reply of the first round once more."""
    upload = payloads_of(reply.content["upload"])
    told = reply.content["fewjoules"]
    if how == "flipped":
        upload["update"] = bytes(byte ^ 0x55 for byte in upload["update"])
    elif how == "oversized":
        upload["update"] *= 10
    else:
        first, payloads = json.loads((folder / "first").read_text())
        upload = {name: bytes.fromhex(data) for name, data in payloads.items()}
        told.update(first)
    return Message(RecordDict({"fewjoules": told, "upload": payloads_record(upload)}), reply_to=message)
