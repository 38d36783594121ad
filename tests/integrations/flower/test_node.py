"""A node's side by itself: orders that come late, twice or at the same time, damaged memories, names of clients."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from fewjoules.codec.frame import encode
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.client import Steps
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.round import plan_round
from fewjoules.errors import CorruptPayloadError, InvalidInputError
from fewjoules.integrations.flower.memory import KEPT_RUNS, NodeMemory
from fewjoules.integrations.flower.messages import WHOLE, Request
from fewjoules.integrations.flower.node import answer, dense_payload
from tests.integrations.flower.counted import CountedRun

SIZE = 6


def request(number, accepted, *, run="run", base=WHOLE, weights=None, assigns=True):
    """An order for round ``number``; its model has this number as every weight, or is what ``weights`` make of it."""
    options = TrainingOptions.of(local_steps=1, sparsity=np.array([3.0]), rounds=9, learning_rate=0.1, batch_size=1)
    plan = plan_round(options, np.array([2]), np.array([1]), np.array([accepted]), number)
    payload = dense_payload(np.full(SIZE, number, np.float32)) if weights is None else encode(weights)
    return Request(run, plan.order(0).to_dict(), number - 1, base, payload, b"", assigns=assigns)


class Trainer:
    """Computes the whole numbers of a round and counts its trainings."""

    def __init__(self, meanwhile=lambda: None):
        self.rounds, self._meanwhile = [], meanwhile

    def __call__(self, held, _request):
        def steps(state, order):
            self.rounds.append(order.round)
            self._meanwhile()
            change = np.arange(1, SIZE + 1, dtype=np.float32) * order.round
            return Steps(change, np.zeros(0, np.float32), None, None, np.ones(1), np.ones(1))

        return steps


def test_an_order_of_an_earlier_round_is_refused_and_changes_nothing(tmp_path):
    """The server accepted round 2; a request of round 1 that was under way for long does not take it back."""
    memory, trainer = NodeMemory(tmp_path, "a", "run"), Trainer()
    for number in (1, 2):
        answer(request(number, number - 1), memory, trainer)
    before = memory.path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"round 2 was answered already, got an order for round 1"):
        answer(request(1, 0), memory, trainer)
    assert memory.path.read_bytes() == before
    assert trainer.rounds == [1, 2]


FIRST_TWO = SparseUpdate(size=SIZE, positions=np.array([0, 1]), values=np.array([0.25, 0.5], np.float32))


@pytest.mark.parametrize(
    ("base", "assigns", "first"),
    [
        pytest.param(3, False, [3.75, 3.5], id="a change of the model that it has"),
        pytest.param(2, False, None, id="a change of an older model"),
        pytest.param(4, False, None, id="a change of a newer model"),
        pytest.param(3, True, [0.25, 0.5], id="values that changed since the model that it has"),
        pytest.param(1, True, [0.25, 0.5], id="values that changed since an older model"),
        pytest.param(4, True, None, id="values that changed since a newer model"),
    ],
)
def test_a_node_takes_up_what_fits_its_model_and_asks_for_the_whole_one_otherwise(tmp_path, base, assigns, first):
    memory, trainer = NodeMemory(tmp_path, "a", "run"), Trainer()
    answer(request(4, 0), memory, trainer)  # the model after three rounds, with 4 as every weight
    before = memory.path.read_bytes()
    reply = answer(request(6, 4, base=base, weights=FIRST_TWO, assigns=assigns), memory, trainer)
    assert reply.needs_model == (first is None)
    if first is None:
        assert memory.path.read_bytes() == before
        assert trainer.rounds == [4]
    else:
        held = memory.load()
        assert (held.model_round, held.weights.tolist()) == (5, [*first, 4.0, 4.0, 4.0, 4.0])


@pytest.mark.parametrize("assigns", [False, True])
def test_a_node_that_has_the_model_already_changes_nothing_of_it(tmp_path, assigns):
    memory, trainer = NodeMemory(tmp_path, "a", "run"), Trainer()
    answer(request(4, 0), memory, trainer)
    again = replace(request(5, 4, base=2, weights=FIRST_TWO, assigns=assigns), model_round=3)
    assert not answer(again, memory, trainer).needs_model
    assert memory.load().weights.tolist() == [4.0] * SIZE


@pytest.mark.parametrize("assigns", [False, True])
def test_a_node_refuses_a_message_for_a_model_of_another_size(tmp_path, assigns):
    memory, trainer = NodeMemory(tmp_path, "a", "run"), Trainer()
    answer(request(4, 0), memory, trainer)
    before = memory.path.read_bytes()
    small = replace(FIRST_TWO, size=2)
    with pytest.raises(CorruptPayloadError, match="must be for 6 parameters, got 2"):
        answer(request(6, 4, base=3, weights=small, assigns=assigns), memory, trainer)
    assert memory.path.read_bytes() == before


def test_a_late_copy_of_an_older_order_changes_nothing(tmp_path, monkeypatch):
    """A message may stay under way until rounds later: nodes take messages in no particular order."""
    run = CountedRun(tmp_path, monkeypatch)
    push = run.grid.push_messages

    def with_a_late_one(messages):
        numbers = push(messages)
        late = [one for one in run.grid.sent if one.content["fewjoules"].get("model-round") == 0]
        if messages[0].content["fewjoules"].get("model-round") == 3:
            push(late)
        return numbers

    monkeypatch.setattr(run.grid, "push_messages", with_a_late_one)
    run.require_conserved(run.run(folder=None))
    assert len(run.trainings) == len(set(run.trainings))


def test_a_request_that_comes_twice_at_once_is_computed_once(tmp_path):
    """Two runs of Flower, before and after a restart of the server, may ask the same node at the same time."""
    both = threading.Barrier(2)

    def meanwhile():
        try:
            both.wait(timeout=0.3)
        except threading.BrokenBarrierError:
            both.reset()

    trainer, replies = Trainer(meanwhile), []
    threads = [
        threading.Thread(
            target=lambda: replies.append(answer(request(1, 0), NodeMemory(tmp_path, "a", "run"), trainer))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trainer.rounds == [1]
    assert len(replies) == 2
    assert replies[0] == replies[1]


def test_a_damaged_memory_is_set_aside_and_the_client_goes_on(tmp_path, caplog):
    memory, trainer = NodeMemory(tmp_path, "a", "run"), Trainer()
    answer(request(1, 0), memory, trainer)
    data = bytearray(memory.path.read_bytes())
    data[-3] ^= 1
    memory.path.write_bytes(data)
    reply = answer(request(2, 1), memory, trainer)
    assert (reply.round, reply.needs_model) == (2, False)
    assert "the memory of client a is damaged" in caplog.text
    assert memory.path.with_suffix(".damaged").read_bytes() == bytes(data)
    assert memory.load().reply == reply


def test_memories_of_the_last_runs_are_kept(tmp_path):
    for number in range(KEPT_RUNS + 3):
        memory = NodeMemory(tmp_path, "a", f"run{number}")
        answer(request(1, 0, run=f"run{number}"), memory, Trainer())
        os.utime(memory.path, (number, number))  # clocks of file systems may be coarser than this loop
    answer(request(1, 0), NodeMemory(tmp_path, "b", "run"), Trainer())
    found = sorted(path.name for path in tmp_path.glob("*.memory"))
    assert found == [f"a@run{number}.memory" for number in range(2, KEPT_RUNS + 3)] + ["b@run.memory"]


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a\\b", "a@b", "a b", "a\0", "a\n", "x" * 65, "*"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(InvalidInputError, match="a client-id must have 1 to 64 letters"):
        NodeMemory(tmp_path, name, "run")
    with pytest.raises(InvalidInputError, match="a run must have 1 to 64 letters"):
        NodeMemory(tmp_path, "a", name)
