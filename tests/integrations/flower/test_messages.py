"""Frames between a node and its worker, and models as flat vectors: round trips, and refusals of what is damaged."""

import contextlib
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fewjoules.errors import InvalidInputError
from fewjoules.integrations.flower.arrays import FlatModel, flat_like
from fewjoules.integrations.flower.messages import Reply, Request, reply_from_frame, request_from_frame, to_frame
from fewjoules.integrations.flower.records import array_record, named_arrays

names = st.text(st.characters(codec="utf-8"), max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(names, plain, max_size=3)
steps = st.lists(st.floats(allow_nan=False), max_size=4).map(tuple)
requests = st.builds(
    Request,
    run=names,
    order=tables,
    model_round=st.integers(0, 2**40),
    base=st.integers(-1, 2**40),
    weights=st.binary(max_size=50),
    buffers=st.binary(max_size=50),
    layout=st.none() | st.lists(tables, max_size=2),
    assigns=st.booleans(),
    config=tables,
)
replies = st.builds(
    Reply,
    run=names,
    client=names,
    round=st.integers(0, 2**40),
    update=st.binary(max_size=50),
    buffers=st.binary(max_size=50),
    losses=steps,
    correct=steps,
    samples=st.integers(0, 2**40),
    metrics=st.dictionaries(names, st.floats(allow_nan=False), max_size=3),
    needs_model=st.booleans(),
)


@given(requests)
def test_a_request_comes_out_of_its_frame_as_it_went_in(request):
    found = request_from_frame(to_frame(request))
    assert found == request
    assert found.digest == request.digest


@given(replies)
def test_a_reply_comes_out_of_its_frame_as_it_went_in(reply):
    assert reply_from_frame(to_frame(reply)) == reply


def test_losses_that_are_not_known_pass_a_frame():
    found = reply_from_frame(to_frame(Reply("run", "a", 1, losses=(float("nan"), 1.0))))
    assert np.isnan(found.losses[0])
    assert found.losses[1] == 1.0


@given(requests | replies, st.data())
def test_a_frame_that_is_cut_or_longer_is_refused(message, data):
    frame = to_frame(message)
    read = request_from_frame if isinstance(message, Request) else reply_from_frame
    with pytest.raises(InvalidInputError, match="a message between node and worker"):
        read(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(InvalidInputError, match="a message between node and worker"):
        read(frame + b"x")


@given(requests | replies, st.data())
def test_a_frame_with_a_flipped_bit_is_read_or_refused(message, data):
    frame = bytearray(to_frame(message))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for read in (request_from_frame, reply_from_frame):
        with contextlib.suppress(InvalidInputError):
            read(bytes(frame))


def framed(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


FIELDS = {"run": "r", "client": "c", "round": 1, "losses": [], "correct": [], "samples": 0, "metrics": {}}
GOOD = FIELDS | {"needs_model": False, "blobs": {}}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 30,
        framed(b"\xff"),
        framed(b"[" * 100_000),
        framed([]),
        framed(3),
        framed({}),
        framed({"blobs": []}),
        framed({"blobs": {}}),
        framed(GOOD | {"blobs": {"update": -1}}),
        framed(GOOD | {"blobs": {"update": 0.5}}),
        framed(GOOD | {"blobs": {"update": True}}) + b"x",
        framed(GOOD | {"blobs": {"run": 1}}) + b"x",
        framed(GOOD | {"blobs": {"other": 1}}) + b"x",
        framed(GOOD | {"other": 1}),
        framed(GOOD | {"losses": 1}),
        framed({name: value for name, value in GOOD.items() if name != "run"}),
        framed(GOOD | {"blobs": {"update": 3, "buffers": -3}}),
    ],
    ids=range(19),
)
def test_a_hostile_frame_is_refused(frame):
    with pytest.raises(InvalidInputError, match="a message between node and worker"):
        reply_from_frame(frame)
    with pytest.raises(InvalidInputError, match="a message between node and worker"):
        request_from_frame(frame)


@pytest.mark.parametrize(
    "other",
    [{"run": "b"}, {"order": {"round": 2}}, {"model_round": 8}, {"config": {"lr": 2}}],
    ids=lambda given: next(iter(given)),
)
def test_a_request_for_something_else_has_another_digest(other):
    request = Request("a", {"round": 1}, 7, 6, b"w", b"b", config={"lr": 1})
    assert replace(request, **other).digest != request.digest
    assert replace(request, base=-1, assigns=True, weights=b"whole", layout=[]).digest == request.digest


shapes = st.sampled_from([(), (0,), (1,), (3,), (2, 3), (2, 0), (1, 2, 2)])
floats = arrays_of.arrays(np.float32, shapes, elements=st.floats(width=32, allow_nan=False))
constants = st.sampled_from([np.int64, np.int32, np.uint8, np.bool_]).flatmap(
    lambda kind: arrays_of.arrays(kind, shapes)
)
models = st.dictionaries(names, floats | constants, max_size=5)


@given(models, floats, st.data())
def test_a_model_comes_back_from_its_vectors(arrays, trained, data):
    arrays = {**arrays, "trained": trained if trained.size else np.ones(1, np.float32)}
    real = [name for name, array in arrays.items() if array.dtype == np.float32 and name != "trained"]
    buffers = frozenset(data.draw(st.sets(st.sampled_from(real)))) if real else frozenset()
    model = FlatModel.of(arrays, buffers)
    found = model.arrays()
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, strict=True)
    weights, averaged = flat_like(json.loads(json.dumps(model.layout)), arrays)
    np.testing.assert_array_equal(weights, model.weights)
    np.testing.assert_array_equal(averaged, model.buffers)
    assert averaged.size == sum(arrays[name].size for name in buffers)
    assert model.weights.size + model.buffers.size == sum(a.size for a in arrays.values() if a.dtype == np.float32)


@given(models)
def test_arrays_come_back_from_a_record_of_flower(arrays):
    for name, array in named_arrays(array_record(arrays)).items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


@pytest.mark.parametrize("kind", [np.float64, np.float16])
def test_an_array_of_another_precision_is_refused_in_one_sentence(kind):
    with pytest.raises(InvalidInputError, match=rf"^array 'b' must be float32, got {np.dtype(kind)}$"):
        FlatModel.of({"a": np.zeros(2, np.float32), "b": np.zeros(2, kind)})


@pytest.mark.parametrize("arrays", [{}, {"a": np.zeros(0, np.float32)}, {"n": np.arange(3)}])
def test_a_model_with_nothing_to_train_is_refused(arrays):
    with pytest.raises(InvalidInputError, match="at least one float32 array to train, got none"):
        FlatModel.of(arrays)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [({}, "nothing"), ({"a": np.zeros((3, 2), np.float32)}, r"shape \(3, 2\)"), ({"a": np.float32(1)}, r"shape \(\)")],
)
def test_trained_arrays_of_another_shape_are_refused_by_name(arrays, told):
    layout = FlatModel.of({"a": np.zeros((2, 3), np.float32)}).layout
    with pytest.raises(InvalidInputError, match=rf"array 'a' must have shape \(2, 3\), got {told}"):
        flat_like(layout, arrays)


def test_running_statistics_are_buffers_unless_names_are_given():
    arrays = {"w": np.zeros(2, np.float32), "bn.running_var": np.ones(3, np.float32)}
    assert FlatModel.of(arrays).buffers.tolist() == [1.0, 1.0, 1.0]
    assert FlatModel.of(arrays, frozenset()).weights.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
