"""Several processes train one run: the result is that of one process to the bit, and none waits for one that failed."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

from tests.ranks.folders import RESUMED, begun, resumed
from tests.ranks.kinds import KINDS, digest_of
from tests.ranks.rounds import CASES, digests, own_weights
from tests.ranks.spawning import run_ranks

TABLES = ("ledger.parquet", "metrics.parquet", "model.safetensors")


THREADS_AROUND_A_GROUP = """
import os, time
from fewjoules.runs.ranks import joined_ranks

def threads():
    return len(os.listdir("/proc/self/task"))

before = threads()
with joined_ranks() as ranks:
    import torch._dynamo  # as some operations of PyTorch do
    ranks.texts("")
    within = threads()
end = time.monotonic() + 10.0  # the system may list a thread for a moment after it was joined
while threads() != before and time.monotonic() < end:
    time.sleep(0.01)
print(before, within, threads())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def told(place):
    """What two ranks did, all in one start, since importing takes longer than the rest."""
    assert begun(place / "begun-by-one", 4)[0] == "interrupted"
    shutil.copytree(place / "begun-by-one", place / "begun-by-one-spilled")
    ended = run_ranks(["-m", "tests.ranks", place])
    files = [place / f"rank-{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), ended
    assert [code for code, _, _ in ended] == [0, 7], ended
    return [json.loads(file.read_text()) for file in files]


@pytest.fixture(scope="module")
def never_stopped(place):
    assert begun(place / "never-stopped", 99)[0] == "rounds"
    return [(place / "never-stopped" / name).read_bytes() for name in TABLES]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_what_one_process_does_to_the_bit(told, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = digests(name)
    assert [one["rounds"][name] for one in told] == [alone, alone]
    assert bool(alone["returns"]) == (name == "the guard")


@pytest.mark.parametrize("name", KINDS)
def test_two_ranks_train_samples_without_targets_and_adapters_to_the_same_bits(told, name):
    assert [one["kinds"][name] for one in told] == [digest_of(name)] * 2


def test_a_run_that_two_ranks_began_is_finished_by_one_to_the_bit(told, place, never_stopped):
    assert [one["begun"][0] for one in told] == ["interrupted"] * 2, "torchrun's SIGTERM to one rank stops both"
    assert told[0]["begun"][1] == told[1]["begun"][1] > 0, "both have the ledger so far"
    assert resumed(place / "begun-by-two")[0].stop_reason == "rounds"
    assert [(place / "begun-by-two" / name).read_bytes() for name in TABLES] == never_stopped


@pytest.mark.parametrize("folder", RESUMED)
def test_a_run_that_one_process_began_is_finished_by_two_ranks_to_the_bit(told, place, never_stopped, folder):
    assert [one["resumed"][folder] for one in told] == [["rounds", 13, [1, 2, 3, 4, 5]]] * 2
    assert [(place / folder / name).read_bytes() for name in TABLES] == never_stopped


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("version", "the version of FewJoules is {version!r} on rank 0 and '0.0.1' on rank 1"),
        ("seed", "option seed is 0 on rank 0 and 1 on rank 1"),
        ("data", "the checksum of some samples is"),
        ("metrics", "the list of metrics is 'yours' on rank 0 and 'mine' on rank 1"),
        ("loss", "the loss is '0.25 cross_entropy' on rank 0 and '0.5 cross_entropy' on rank 1"),
        ("frozen weights", "the checksum of the weights that are not trained is"),
        ("folder", "the results folder is None on rank 0 and 'theirs' on rank 1"),
        ("round", "the round after which it goes on is 0 on rank 0 and 3 on rank 1"),
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


def test_a_callback_that_fails_on_one_rank_ends_all_and_loses_no_round(told, place, never_stopped):
    assert told[1]["broken"] == ["KeyError", "'no such thing'"]
    assert told[0]["broken"] == ["RankError", "rank 1 failed: 'no such thing'"]
    _, seen = resumed(place / "broken")
    assert seen == [1, 2, 3, 4, 5]
    assert [(place / "broken" / name).read_bytes() for name in TABLES] == never_stopped


def test_a_rank_that_fails_in_the_middle_of_a_round_ends_all_and_loses_no_complete_round(told, place, never_stopped):
    assert told[1]["failed"] == ["OSError", "the disk is gone"]
    assert told[0]["failed"] == ["RankError", "rank 1 failed: the disk is gone"]
    _, seen = resumed(place / "failed")
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [(place / "failed" / name).read_bytes() for name in TABLES] == never_stopped


@pytest.mark.parametrize("what", ["client_state", "put_client"])
def test_a_rank_that_cannot_move_what_a_client_keeps_ends_all_and_loses_no_round(told, place, never_stopped, what):
    assert [one[what] for one in told] == [
        ["RankError", "rank 1 failed: the disk is full"],
        ["OSError", "the disk is full"],
    ]
    _, seen = resumed(place / what)
    assert seen
    assert [(place / what / name).read_bytes() for name in TABLES] == never_stopped


def test_ranks_that_draw_their_own_weights_train_the_model_of_the_first(told):
    assert [one["own weights"] for one in told] == [own_weights(seed=0)] * 2
    assert own_weights(seed=0) != own_weights(seed=1)


def test_the_death_of_a_rank_ends_the_others(told):
    kind, text = told[0]["death"]
    assert kind == "RankError"
    assert text.startswith("another rank ended")
    assert "death" not in told[1]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
def test_no_thread_of_the_ranks_outlives_them(tmp_path):
    for code, printed, complaints in run_ranks(["-c", THREADS_AROUND_A_GROUP], cwd=tmp_path):
        assert code == 0, complaints
        before, within, after = map(int, printed.split())
        assert within > before == after
