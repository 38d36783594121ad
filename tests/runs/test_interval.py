"""Checkpoints take a twentieth of the time at most, or come as often as the user says."""

import contextlib
import itertools

import pytest

from fewjoules.runs.interval import CheckpointInterval


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def saves_of(cost_seconds, run_seconds, every=None):
    """When saves that take ``cost_seconds(number)`` begin in a run of rounds of one second, and their total cost."""
    clock = Clock()
    interval, start, begun, spent = CheckpointInterval(every, clock), clock.seconds, [], 0.0
    while clock.seconds - start < run_seconds:
        clock.seconds += 1.0
        if interval.is_due():
            begun.append(clock.seconds - start)
            with interval.saving():
                cost = cost_seconds(len(begun))
                clock.seconds += cost
                spent += cost
    return begun, spent / (clock.seconds - start)


def test_cheap_saves_come_every_half_minute():
    begun, share = saves_of(lambda _: 0.0, 301)
    assert begun == [30.0 * number for number in range(1, 11)]
    assert share == 0.0


@pytest.mark.parametrize("cost", [1.0, 2.0, 10.0, 45.0])
def test_dear_saves_take_a_twentieth_of_the_time(cost):
    _, share = saves_of(lambda _: cost, 100_000)
    assert 0.03 < share <= 0.05


def test_saves_that_become_dearer_come_later():
    begun, share = saves_of(lambda number: float(number), 100_000)
    waits = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert waits[-1] > 2 * waits[2] > 60.0
    assert share <= 0.05


def test_one_dear_save_is_made_up_for():
    """A disk that was slow once costs one long wait, not many."""
    begun, _ = saves_of(lambda number: 60.0 if number == 1 else 0.5, 4000)
    assert begun[1] > 60.0 / 0.05
    assert begun[2] - begun[1] <= 32.0


@pytest.mark.parametrize("every", [0.0, 5.0, 100.0])
def test_an_interval_that_was_asked_for_is_kept_whatever_it_costs(every):
    begun, share = saves_of(lambda _: 20.0, 1000, every=every)
    assert begun[0] == max(1.0, every)
    assert all(later - earlier == 20.0 + max(1.0, every) for earlier, later in itertools.pairwise(begun))
    assert share > 0.1


def test_a_save_that_fails_does_not_count():
    clock = Clock()
    interval = CheckpointInterval(None, clock)
    clock.seconds += 31.0
    with contextlib.suppress(OSError), interval.saving():
        clock.seconds += 500.0
        raise OSError("full")
    assert interval.is_due()
