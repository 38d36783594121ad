"""Threads that share tasks out: results in order, and the error of the first task that failed."""

import threading

import pytest

from fewjoules.engine.simulator.cpu.workers import Workers

TASKS = 1_000_000  # more than a thread does before another one has its turn


@pytest.fixture(params=[1, 3])
def workers(request):
    made = Workers(request.param)
    yield made
    made.close()


def test_results_come_in_the_order_of_the_tasks(workers):
    assert workers.map(lambda number: number**2, range(20)) == [number**2 for number in range(20)]
    assert workers.map(str, []) == []


def test_the_error_of_the_first_task_that_failed_is_raised_and_later_tasks_are_not_begun(workers):
    begun = []

    def task(number):
        begun.append(number)
        if number in (4, 5):
            raise ValueError(f"task {number}")

    with pytest.raises(ValueError, match="task 4"):
        workers.map(task, range(TASKS))
    assert max(begun) < TASKS - 1
    assert workers.map(str, [1]) == ["1"]  # the threads go on working


def test_no_task_is_begun_after_an_interrupt(workers, monkeypatch):
    begun, interrupted = [], threading.Event()

    def task(number):
        begun.append(number)
        interrupted.wait(30)

    def interrupt(futures):
        raise KeyboardInterrupt

    monkeypatch.setattr("fewjoules.engine.simulator.cpu.workers.wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        workers.map(task, range(100))
    interrupted.set()
    workers.close()
    assert len(begun) <= workers.threads


def test_every_thread_takes_tasks():
    workers, meeting = Workers(2), threading.Barrier(2, timeout=30)
    workers.map(lambda _: meeting.wait(), range(2))  # ends only if two run at once
    workers.close()
