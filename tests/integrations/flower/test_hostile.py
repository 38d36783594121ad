"""Replies and nodes that are broken or hostile: each is refused by name, and the round goes on as if it were lost."""

import json
import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewjoules.codec.frame import encode
from fewjoules.codec.update import SparseUpdate
from fewjoules.errors import FewJoulesError, InvalidInputError
from fewjoules.integrations.flower.backend import RoundRules
from fewjoules.integrations.flower.records import STYPE
from fewjoules.integrations.flower.screening import Screening
from tests.integrations.flower.counted import CLIENTS, ROUNDS, SIZE, asks, initial, weights_of
from tests.integrations.flower.grid import Killed

BAD = 1  # the client that misbehaves


def lost_in(counted, number):
    """The weights of a run in which the reply of the bad client was lost in that round."""
    run = counted()
    run.grid.lost = lambda message, _reply: asks(message, BAD, number)
    return weights_of(run.run(folder=None))


def payload(positions, values, size=SIZE, **given):
    update = SparseUpdate.trusted(size, np.array(positions, dtype=np.int64), np.array(values, dtype=np.float32))
    return encode(update, **given)


def with_update(data):
    def tamper(reply):
        reply.content["upload"]["update"] = data
        return reply

    return tamper


def with_told(**told):
    def tamper(reply):
        for name, value in told.items():
            reply.content["fewjoules"][name.replace("_", "-")] = value
        return reply

    return tamper


def without(record, name=None):
    def tamper(reply):
        if name is None:
            del reply.content[record]
        else:
            del reply.content[record][name]
        return reply

    return tamper


def with_buffers(data):
    def tamper(reply):
        reply.content["upload"]["buffers"] = data
        return reply

    return tamper


def with_arrays(update):
    def tamper(reply):
        empty = Array("uint8", (0,), STYPE, b"")
        reply.content["upload"] = ArrayRecord({"update": update, "buffers": empty})
        return reply

    return tamper


def with_metrics_for_config(reply):
    reply.content["fewjoules"] = MetricRecord({"round": 1})
    return reply


HOSTILE = {
    "empty payload": (with_update(b""), "does not decode"),
    "random payload": (with_update(bytes(range(200))), "does not decode"),
    "truncated payload": (with_update(payload([1], [2.0])[:-1]), "does not decode"),
    "smaller model": (with_update(payload([1], [2.0], size=SIZE - 1)), "must be for 12 parameters, got 11"),
    "larger model": (with_update(payload([1], [2.0], size=2**24)), "does not decode"),
    "NaN": (with_update(payload([1], [np.nan], allow_nonfinite=True)), "does not decode"),
    "infinity": (with_update(payload([1], [np.inf], allow_nonfinite=True)), "does not decode"),
    "too many entries": (with_update(payload(range(SIZE), np.ones(SIZE))), "at most 4 entries, got 12"),
    "too many bytes": (with_update(bytes(10_000)), "has 10000 bytes, too many"),
    "another run": (with_told(run="0" * 32), "answers for run"),
    "another client": (with_told(client_id="2"), "answers for client '2', and was asked for '1'"),
    "old round": (with_told(round=1), "answers for round '1', and was asked for 2"),
    "later round": (with_told(round=3), "answers for round"),
    "round as text": (with_told(round="2"), "one of another form"),
    "round as a flag": (with_told(round=True), "one of another form"),
    "one loss": (with_told(losses=[1.0]), "the loss of 2 steps, got 1"),
    "many losses": (with_told(losses=[1.0] * 1000), "the loss of 2 steps, got 1000"),
    "many accuracies": (with_told(correct=[1.0] * 3), "the loss of 2 steps"),
    "losses as text": (with_told(losses="many"), "one of another form"),
    "infinite loss": (with_told(losses=[1.0, np.inf]), "must be finite"),
    "loss as a number": (with_told(losses=1.0), "one of another form"),
    "metrics no JSON": (with_told(metrics="{"), "one of another form"),
    "metrics a list": (with_told(metrics="[]"), "one of another form"),
    "metrics deep": (with_told(metrics="[" * 100_000), "one of another form"),
    "metrics too large": (with_told(metrics=json.dumps({"a": 10**400})), "one of another form"),
    "asks for the model again": (with_told(needs_model=True), "asks for the model that it was sent"),
    "buffers": (with_buffers(payload(range(2), [1.0, 2.0], size=2)), "do not decode"),
    "one buffer": (with_buffers(payload([0], [1.0], size=1)), "must have 0 entries, got 1"),
    "broken buffers": (with_buffers(b"no"), "do not decode"),
    "ordinary array": (with_arrays(Array(np.zeros(SIZE, np.float32))), "of the kind 'fewjoules.payload.v1'"),
    "array of no payload": (with_arrays(Array("uint8", (2,), STYPE, b"no")), "does not decode"),
    "update as text": (with_update("text"), "of the kind"),
    "update as numbers": (with_update([1, 2]), "of the kind"),
    "no update": (without("upload", "update"), "of the kind"),
    "no buffers": (without("upload", "buffers"), "of the kind"),
    "no upload": (without("upload"), "lacks a record"),
    "no record": (without("fewjoules"), "lacks a record"),
    "no losses": (without("fewjoules", "losses"), "lacks a record"),
    "record of another type": (with_metrics_for_config, "lacks a record"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_refused_by_name_and_counts_as_lost(counted, caplog, kind):
    tamper, reason = HOSTILE[kind]
    run = counted()
    run.grid.tampered = lambda message, reply: tamper(reply) if asks(message, BAD, 2) else reply
    strategy = run.run(folder=None)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("round 2: the reply of client 1 is refused: ")
    assert reason in warning
    assert len(warning) < 700
    np.testing.assert_array_equal(weights_of(strategy), lost_in(counted, 2))


def warnings_of(caplog):
    found = [one for one in caplog.records if one.levelno == logging.WARNING and one.name == "flwr.fewjoules"]
    return [one.getMessage() for one in found]


def test_an_error_of_a_node_is_told_with_its_name_and_counts_as_lost(counted, caplog):
    run = counted()

    def failed(message, reply):
        return Message(Error(2, "out of memory " * 1000), reply_to=message) if asks(message, BAD, 2) else reply

    run.grid.tampered = failed
    strategy = run.run(folder=None)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("round 2: the reply of client 1 is refused: Flower's error 2: out of memory")
    assert len(warning) < 700
    np.testing.assert_array_equal(weights_of(strategy), lost_in(counted, 2))


@pytest.mark.parametrize("number", [1, 3])
def test_a_client_whose_reply_was_refused_takes_it_back(counted, number):
    run = counted()
    run.grid.tampered = lambda message, reply: with_update(b"no")(reply) if asks(message, BAD, number) else reply
    run.require_conserved(run.run(folder=None))


def test_a_reply_that_is_too_large_is_refused_or_scaled(counted, caplog):
    """The bad client sends (30, 40, 0, ...) where at most a norm of 10 is plausible: scaled to (6, 8, 0, ...)."""
    large = with_update(payload([0, 1], [30.0, 40.0]))
    outcomes = {}
    for excess in ("reject", "clip"):
        run = counted()
        run.grid.tampered = lambda message, reply: large(reply) if asks(message, BAD, ROUNDS) else reply
        outcomes[excess] = weights_of(run.run(folder=None, screening=Screening(40.0, excess)))
    assert "round 4: the reply of client 1 is refused: the norm of its update must be at most 40, got 50" in caplog.text
    np.testing.assert_array_equal(outcomes["reject"], lost_in(counted, ROUNDS))
    moved = outcomes["reject"] - outcomes["clip"]
    np.testing.assert_allclose(moved, np.array([24.0, 32.0] + [0.0] * (SIZE - 2)) / CLIENTS, atol=1e-5)


@pytest.mark.parametrize("given", [{"max_norm": 0.0}, {"max_norm": np.nan}, {"max_norm": np.inf}, {"excess": "ignore"}])
def test_limits_that_make_no_sense_are_refused(given):
    with pytest.raises(InvalidInputError, match=r"(max_norm|excess) must be .*, got "):
        Screening(**given)


@pytest.mark.parametrize(
    "given", [{"deadline_seconds": 0.0}, {"deadline_seconds": np.inf}, {"attempts": 0}, {"min_replies": -1}]
)
def test_rules_by_which_no_round_could_end_are_refused(given):
    with pytest.raises(InvalidInputError, match=rf"{next(iter(given))} must be .*, got "):
        RoundRules(**given)


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.booleans(),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.text(max_size=3), max_size=4),
)
FIELDS = ("run", "client-id", "round", "losses", "correct", "samples", "needs-model", "metrics")
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("told"), st.sampled_from(FIELDS), values),
        st.tuples(st.just("drop"), st.sampled_from(FIELDS), st.none()),
        st.tuples(st.just("cut"), st.sampled_from(["update", "buffers"]), st.integers(0, 40)),
        st.tuples(st.just("flip"), st.just("update"), st.integers(0, 400)),
        st.tuples(st.just("bytes"), st.sampled_from(["update", "buffers"]), st.binary(max_size=60)),
        st.tuples(st.just("metrics"), st.just("metrics"), st.dictionaries(st.text(max_size=3), values, max_size=2)),
    ),
    min_size=1,
    max_size=3,
)


def mutated(reply, changes):
    told, upload = reply.content["fewjoules"], reply.content["upload"]
    for kind, name, value in changes:
        if kind == "told":
            told[name] = value
        elif kind == "drop":
            told.pop(name, None)
        elif kind == "metrics":
            told[name] = json.dumps({key: str(one) for key, one in value.items()})
        else:
            data = bytearray(upload[name])
            if kind == "cut":
                data = data[:value]
            elif kind == "flip" and data:
                data[value // 8 % len(data)] ^= 1 << value % 8
            elif kind == "bytes":
                data = value
            upload[name] = bytes(data)
    return reply


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations, st.integers(1, ROUNDS))
def test_no_reply_raises_out_of_a_round(counted, changes, number):
    run = counted()
    run.grid.tampered = lambda message, reply: mutated(reply, changes) if asks(message, BAD, number) else reply
    strategy = run.run(folder=None)
    assert strategy.loop.simulator.state.round == ROUNDS
    assert np.isfinite(weights_of(strategy)).all()
    assert all(len(run.accepted[each]) >= CLIENTS - 1 for each in run.accepted)


def introduced(run, **told):
    """Let the node of the bad client introduce itself with other words."""

    def tampered(message, reply):
        if "model" in message.content or message.metadata.dst_node_id != 100 + BAD:
            return reply
        return with_told(**told)(reply)

    run.grid.tampered = tampered


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"client_id": "../../etc/passwd"}, "a client-id must have 1 to 64 letters"),
        ({"client_id": ""}, "a client-id must have 1 to 64 letters"),
        ({"client_id": "1" * 65}, "a client-id must have 1 to 64 letters"),
        ({"client_id": 1}, "its reply has no client-id"),
        ({"samples": -1}, "its samples must be 0 to 2^31 - 1, got -1"),
        ({"samples": [1]}, "its samples must be 0 to 2^31 - 1, got [1]"),
    ],
)
def test_a_node_that_introduces_itself_badly_is_named_and_left_out(counted, caplog, told, reason):
    run = counted()
    introduced(run, **told)
    with pytest.raises(FewJoulesError, match=r"4 clients must be online to begin, got 3 in 3 s: 0, 2, 3"):
        run.run(folder=None, wait_seconds=3.0)
    assert f"node 101 did not introduce itself: {reason}" in caplog.text


@pytest.mark.parametrize("cost", [-1.0, np.inf, np.nan, "cheap", [1.0]])
def test_a_cost_that_is_no_number_is_refused(counted, caplog, cost):
    run = counted()
    run.grid.tampered = lambda message, reply: (
        with_cost(reply, cost) if message.metadata.dst_node_id == 101 and "model" not in message.content else reply
    )
    with pytest.raises(FewJoulesError, match="4 clients must be online"):
        run.run(folder=None, wait_seconds=3.0)
    assert "node 101 did not introduce itself: joules_per_bit must be a finite number >= 0, got" in caplog.text


@pytest.mark.parametrize("mark", ["guessed", "", 3, ["measured"], b"measured"])
def test_a_mark_that_is_none_is_refused(counted, caplog, mark):
    run = counted()

    def tampered(message, reply):
        if message.metadata.dst_node_id == 101 and "model" not in message.content:
            reply.content["fewjoules"]["tail_mark"] = mark
        return reply

    run.grid.tampered = tampered
    with pytest.raises(FewJoulesError, match="4 clients must be online"):
        run.run(folder=None, wait_seconds=3.0)
    assert (
        "node 101 did not introduce itself: tail_mark must be one of measured, fitted, profile, assumed" in caplog.text
    )


def with_cost(reply, cost):
    reply.content["fewjoules"]["joules_per_bit"] = cost
    return reply


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"state-dir": "x"}, "the node config must have client-id"),
        ({"client-id": "a/b"}, "a client-id must have 1 to 64 letters"),
        ({"client-id": "4", "joules-per-bit": -1.0}, "joules-per-bit of the node config must be a finite number >= 0"),
        ({"client-id": "4", "device-file": "/nowhere.toml"}, "/nowhere.toml: cannot be read"),
    ],
)
def test_a_node_with_a_bad_config_is_named_and_the_others_train(counted, caplog, config, reason):
    expected = weights_of(counted().run(folder=None))
    run = counted()
    run.grid.nodes[200] = run.grid.nodes[100] | {"config": config}
    np.testing.assert_array_equal(weights_of(run.run(folder=None)), expected)
    assert "node 200 did not introduce itself: Flower's error 2: " in caplog.text
    assert reason in caplog.text


def silent_app():
    app = ClientApp()

    @app.train()
    def train(message, context):
        raise Killed

    return app


def test_a_node_that_never_answers_does_not_stop_the_round(counted):
    expected = weights_of(counted().run(folder=None))
    run = counted()
    run.grid.nodes[200] = {"app": silent_app(), "config": {"client-id": "9"}}
    np.testing.assert_array_equal(weights_of(run.run(folder=None)), expected)


def test_an_app_without_our_mod_does_not_stop_the_round(counted, caplog):
    expected = weights_of(counted().run(folder=None))
    app = ClientApp()

    @app.train()
    def train(message, context):
        return Message(RecordDict({"a": ArrayRecord({}), "c": ConfigRecord({"x": 1})}), reply_to=message)

    run = counted()
    run.grid.nodes[200] = {"app": app, "config": {"client-id": "9"}}
    np.testing.assert_array_equal(weights_of(run.run(folder=None)), expected)
    assert "node 200 did not introduce itself: its reply has no client-id" in caplog.text


def test_a_second_node_for_a_client_waits_and_the_first_one_is_heard(counted, caplog):
    expected = weights_of(counted().run(folder=None))
    run = counted()
    run.grid.nodes[200] = dict(run.grid.nodes[101])
    strategy = run.run(folder=None)
    np.testing.assert_array_equal(weights_of(strategy), expected)
    assert caplog.text.count("node 200 waits: client '1' is online already, as node 101") == 1
    assert all(message.metadata.dst_node_id != 200 for message in run.grid.sent if "model" in message.content)


def test_a_node_that_was_started_again_under_another_number_takes_its_client_over(counted):
    """Flower lists a killed node for a while, beside the one that replaced it."""
    run = counted()

    def lost(message, _reply):
        if asks(message, BAD, 2):
            run.grid.nodes[200] = run.grid.nodes[101]
        if asks(message, BAD, 3):
            del run.grid.nodes[101]
        return asks(message, BAD, 2) or asks(message, BAD, 3)

    run.grid.lost = lost
    strategy = run.run(folder=None)
    run.require_conserved(strategy)
    assert BAD in run.accepted[4]
    assert BAD not in run.accepted[3]


def test_a_node_registered_under_another_name_is_refused(counted, caplog):
    run = counted()
    for number, node in run.grid.nodes.items():
        node["name"] = str(number - 100)
    run.grid.nodes[101]["name"] = "camera"
    with pytest.raises(FewJoulesError, match="4 clients must be online to begin, got 3 in 3 s: 0, 2, 3"):
        run.run(folder=None, wait_seconds=3.0)
    assert "node 101 is refused: it is registered as 'camera' and claims to be client '1'" in caplog.text


def test_a_node_with_another_key_than_before_is_refused_even_after_a_restart_of_the_server(counted, caplog):
    run = counted()
    for number, node in run.grid.nodes.items():
        node |= {"name": str(number - 100), "key": b"key %d" % number}
    run.killed_server.add((20, "before"))
    put_back = run.grid.forget_replies

    def stolen():
        put_back()
        run.grid.nodes[101]["key"] = b"stolen"

    run.grid.forget_replies = stolen
    run.run()
    assert not run.killed_server
    assert sorted(run.accepted[ROUNDS]) == [0, 2, 3]
    assert "node 101 is refused: client '1' is known by another key" in caplog.text


def test_a_node_without_a_registered_name_may_have_another_key_after_each_start(counted):
    """Flower's SuperNode draws a new key at every start unless it is told one."""
    run = counted()
    run.grid.nodes[101]["key"] = b"first"
    keys = iter([b"second", b"third", b"fourth"])

    def lost(message, _reply):
        if not asks(message, BAD, 2):
            return False
        del run.grid.nodes[101]
        run.grid.nodes[200] = run.nodes()[101] | {"key": next(keys)}
        return True

    run.grid.lost = lost
    strategy = run.run(folder=None)
    run.require_conserved(strategy)
    assert BAD in run.accepted[3]


def test_a_round_with_too_few_replies_is_asked_for_again_and_then_ends_in_one_sentence(counted, caplog):
    run = counted(rules=RoundRules(deadline_seconds=10.0, min_replies=CLIENTS, attempts=3))
    run.grid.lost = lambda message, _reply: asks(message, BAD, 3)
    sentence = r"round 3 had 3 accepted uploads after 3 attempts, and needs 4; start again to go on from round 2"
    with pytest.raises(FewJoulesError, match=sentence):
        run.run()
    assert caplog.text.count("round 3: 3 of 4 uploads were accepted and 4 are needed") == 3
    assert sorted(run.trainings) == [(client, number) for client in range(CLIENTS) for number in (1, 2, 3)]
    run.grid.lost = lambda message, _reply: False
    strategy = run.run()
    run.require_conserved(strategy)
    np.testing.assert_array_equal(weights_of(strategy), weights_of(counted().run(folder=None)))


def test_a_round_waits_for_nodes_that_come_back(counted):
    """Nobody is online when round 3 begins: the SuperLink was started again."""
    expected = weights_of(counted().run(folder=None))
    run = counted()
    nodes, strategy = dict(run.grid.nodes), run.strategy(folder=None)
    get_nodes = run.grid.get_nodes
    asked = []

    def seen():
        asked.append(len(run.accepted))
        run.grid.nodes = {} if asked.count(3) in range(1, 6) and len(run.accepted) == 3 else nodes
        return get_nodes()

    run.grid.get_nodes = seen
    strategy.start(run.grid, initial())
    np.testing.assert_array_equal(weights_of(strategy), expected)
    assert asked.count(3) >= 6
    assert strategy.loop.metrics.rows()["round"].tolist() == [1, 2, 3, 4]


def test_a_run_without_any_node_ends_in_one_sentence(counted):
    run = counted()
    run.grid.lost = lambda message, _reply: asks(message, BAD, 2) and run.grid.nodes.clear()
    sentence = "round 3 had 0 accepted uploads after 5 attempts, and needs 1; start again to go on from round 2"
    with pytest.raises(FewJoulesError, match=sentence):
        run.run()
    run.grid.nodes = run.nodes()
    run.require_conserved(run.run())
