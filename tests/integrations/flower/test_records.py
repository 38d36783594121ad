"""Our messages as Flower's records, and back."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.messages import Reply, Request
from fewjoules.integrations.flower.records import (
    OURS,
    SMALL_BYTES,
    UPLOAD,
    model_record,
    reply_of,
    reply_record,
    request_of,
    request_record,
)

SIZES = [0, 1, SMALL_BYTES, SMALL_BYTES + 1]


def message(content: RecordDict) -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets it in its processes
    return Message(content, dst_node_id=1, message_type="train")


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_request_of_any_size_is_read_as_it_was_written(size, assigns):
    request = Request("run", {"round": 3}, 2, 1, b"w" * size, b"b", assigns=assigns)
    assert request_of(message(request_record(request, model_record(request.weights, request.buffers)))) == request


@pytest.mark.parametrize("size", SIZES)
def test_a_reply_of_any_size_is_read_as_it_was_written(size):
    reply = Reply("run", "client", 3, b"u" * size, b"b", losses=(0.5,), correct=(0.25,), samples=4)
    assert reply_of(message(reply_record(reply))) == reply


def test_small_payloads_cost_no_requests_beside_those_of_the_records():
    records = [ConfigRecord, ConfigRecord, RecordDict, Message]
    objects = get_all_nested_objects(message(reply_record(Reply("run", "client", 1, b"update", b"buffers"))))
    assert [type(one) for one in objects.values()] == records


def test_large_payloads_are_arrays_which_flower_sends_in_pieces():
    content = reply_record(Reply("run", "client", 1, bytes(SMALL_BYTES + 1)))
    assert isinstance(content[UPLOAD], ArrayRecord)


@pytest.mark.parametrize("upload", [ConfigRecord({"update": "text"}), MetricRecord({"update": 1}), ArrayRecord()])
def test_a_reply_without_payloads_is_refused(upload):
    content = RecordDict({OURS: reply_record(Reply("run", "client", 1))[OURS], UPLOAD: upload})
    with pytest.raises(InvalidInputError, match="update must be bytes, or an array of the kind"):
        reply_of(message(content))
