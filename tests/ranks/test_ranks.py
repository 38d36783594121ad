"""Several processes train one run: the result is that of one process to the bit, and none waits for one that failed."""

import json
import warnings

import pytest

from tests.ranks.folders import begun, resumed
from tests.ranks.rounds import CASES, digests
from tests.ranks.spawning import run_ranks

TABLES = ("ledger.parquet", "metrics.parquet", "model.safetensors")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def told(place):
    """What two ranks did, all in one start, since importing takes longer than the rest."""
    assert begun(place / "begun-by-one", 4) == "interrupted"
    ended = run_ranks(["-m", "tests.ranks", place])
    files = [place / f"rank-{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), ended
    assert [code for code, _, _ in ended] == [0, 7], ended
    return [json.loads(file.read_text()) for file in files]


@pytest.fixture(scope="module")
def never_stopped(place):
    assert begun(place / "never-stopped", 99) == "rounds"
    return [(place / "never-stopped" / name).read_bytes() for name in TABLES]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_what_one_process_does_to_the_bit(told, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = digests(name)
    assert [one["rounds"][name] for one in told] == [alone, alone]
    assert bool(alone["returns"]) == (name == "the guard")


def test_a_run_that_two_ranks_began_is_finished_by_one_to_the_bit(told, place, never_stopped):
    assert [one["begun"] for one in told] == ["interrupted"] * 2, "Ctrl-C on one rank stops both"
    assert resumed(place / "begun-by-two").stop_reason == "rounds"
    assert [(place / "begun-by-two" / name).read_bytes() for name in TABLES] == never_stopped


def test_a_run_that_one_process_began_is_finished_by_two_ranks_to_the_bit(told, place, never_stopped):
    assert [one["resumed"] for one in told] == [["rounds", 13]] * 2
    assert [(place / "begun-by-one" / name).read_bytes() for name in TABLES] == never_stopped


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("version", "the version of FewJoules is {version!r} on rank 0 and '0.0.1' on rank 1"),
        ("seed", "option seed is 0 on rank 0 and 1 on rank 1"),
        ("data", "the checksum of some samples is"),
    ],
)
def test_ranks_that_disagree_are_refused_in_one_sentence(told, what, sentence):
    import fewjoules

    for one in told:
        kind, text = one["refusals"][what]
        assert kind == "InvalidInputError"
        assert sentence.format(version=fewjoules.__version__) in text


def test_an_error_on_one_rank_ends_the_others_with_its_sentence(told):
    assert told[1]["refusals"]["error"] == ["OSError", "the disk of this machine is on fire"]
    assert told[0]["refusals"]["error"] == ["RankError", "rank 1 failed: the disk of this machine is on fire"]


def test_the_death_of_a_rank_ends_the_others(told):
    kind, text = told[0]["death"]
    assert kind == "RankError"
    assert text.startswith("another rank ended")
    assert "death" not in told[1]
