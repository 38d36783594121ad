"""The journal of pilots: what is brought back, what is dropped, and what is refused."""

import dataclasses

import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.physics.message_fit import MessageObservation
from fewjoules.runs.pilot_journal import PilotJournal
from fewjoules.tuning.pilot import PilotResult, PilotSpec

IDENTITY = {"data": "abc", "fleet": {"joules_per_step": [0.1, 0.2]}}
SPEC = PilotSpec(options={"inner": "sgd", "learning_rate": 0.1}, local_steps=2, sparsity=(4.0, 1.0 / 3.0 + 8), steps=8)
RESULT = PilotResult(
    spec=SPEC,
    rounds=4,
    steps=(4, 8),
    losses=(1.0 / 3.0, 0.1),
    metrics=(0.5, 0.7),
    reached=False,
    diverged=False,
    messages=(MessageObservation("int8", 4.0, 1234.5, 8.0),),
    broadcasts=(MessageObservation("ternary", 9.0, 321.0, 4.0),),
)
OTHER = dataclasses.replace(RESULT, spec=dataclasses.replace(SPEC, steps=16))


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "pilots.jsonl"
    journal = PilotJournal(file, IDENTITY)
    journal.add(RESULT)
    journal.add(OTHER)
    return file


def test_results_come_back_as_they_were(written):
    again = PilotJournal(written, IDENTITY)
    assert again.find(SPEC) == RESULT
    assert again.find(OTHER.spec) == OTHER
    assert again.find(dataclasses.replace(SPEC, steps=10)) is None


def test_a_pilot_with_other_values_from_the_server_is_another_pilot(written):
    again = PilotJournal(written, IDENTITY)
    specs = [dataclasses.replace(SPEC, options=SPEC.options | {"downlink_values": one}) for one in ("float32", "int8")]
    assert [again.find(spec) for spec in specs] == [None, None]
    again.add(dataclasses.replace(RESULT, spec=specs[1]))
    assert [again.find(spec) is None for spec in (*specs, SPEC)] == [True, False, False]
    assert len({one.training_key for one in (*specs, SPEC)}) == 3


def test_a_result_without_messages_from_the_server_is_read():
    told = RESULT.to_dict()
    del told["broadcasts"]
    assert PilotResult.from_dict(told) == dataclasses.replace(RESULT, broadcasts=())


def test_a_journal_cut_anywhere_keeps_every_whole_line_and_can_be_continued(written):
    whole = written.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3
    for cut in range(0, len(whole) + 1, 7):
        written.write_bytes(whole[:cut])
        journal = PilotJournal(written, IDENTITY)
        assert len(journal) == max(0, sum(end <= cut for end in ends) - 1)
        for result in (RESULT, OTHER):
            if journal.find(result.spec) is None:
                journal.add(result)
        assert written.read_bytes() == whole


def test_a_damaged_line_is_refused_by_its_number(written):
    lines = written.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"0.7", b"0.8")
    written.write_bytes(b"".join(lines))
    with pytest.raises(InvalidInputError, match="damaged: line 2"):
        PilotJournal(written, IDENTITY)


def test_a_last_line_that_is_whole_and_damaged_is_refused_too(written):
    whole = written.read_bytes()
    other_digit = b"1" if whole[-3:-2] == b"7" else b"7"
    written.write_bytes(whole[:-3] + other_digit + b"}\n")
    with pytest.raises(InvalidInputError, match="damaged: line 3"):
        PilotJournal(written, IDENTITY)


def test_the_journal_of_another_task_is_refused_by_what_differs(written):
    with pytest.raises(InvalidInputError, match="another task: data was 'abc', and is 'abd' now"):
        PilotJournal(written, IDENTITY | {"data": "abd"})


def test_without_a_file_a_journal_remembers(tmp_path):
    journal = PilotJournal()
    journal.add(RESULT)
    assert journal.find(SPEC) is RESULT
    assert list(tmp_path.iterdir()) == []
