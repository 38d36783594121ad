"""Whatever a power cut leaves on disk, a run goes on from it or begins anew, and ends with the same bytes."""

import itertools
import os

import pytest

from tests.runs.test_resume import CHECKPOINT, EVERY_ROUND, lively, restore, results
from tests.soak.power import Recorder
from tests.test_bad_input import run, write


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="reads synced files through /proc")
def test_after_a_power_cut_at_any_moment_a_run_ends_with_the_same_bytes(tmp_path):
    """What clients keep is on disk while the run is recorded, and every other time it goes on."""
    scenario, whole, cut = write(tmp_path, lively(rounds=3)), tmp_path / "whole", tmp_path / "cut"
    recorder = Recorder(whole)
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        assert run("train", scenario, "--out", whole, *EVERY_ROUND, "--memory-gib", "0").exit_code == 0
    with_checkpoint = [state for state in recorder.states if CHECKPOINT in state]
    assert len(recorder.states) > 20
    assert len(with_checkpoint) > 10
    for state, memory in zip(recorder.states, itertools.cycle([["--memory-gib", "0"], []])):
        restore(state, cut)
        resumed = run("train", "--resume", cut, "--device", "cpu", *memory)
        if resumed.exit_code != 0:
            assert CHECKPOINT not in state, resumed.stderr  # nothing was trained yet that could be lost
            assert run("train", scenario, "--out", cut, "--device", "cpu", *memory).exit_code == 0, sorted(state)
        assert results(cut) == results(whole), sorted(state)
