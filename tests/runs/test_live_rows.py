"""Whoever watches a run sees its newest rounds, each once, whatever the run does meanwhile."""

import numpy as np
import pytest

from fewjoules.ledger.log import RowLog
from fewjoules.ledger.parquet import write_table
from fewjoules.ledger.schema import METRICS
from fewjoules.runs.live_rows import LiveRows, metrics_so_far


def rows(first: int, last: int):
    made = METRICS.new_rows(last - first + 1)
    made["round"] = np.arange(first, last + 1)
    made["train_loss"] = 1.0 / made["round"]
    return made


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watched(tmp_path):
    """A run of which two rounds are in a part and two are not."""
    log, clock = RowLog(tmp_path / "metrics", METRICS), Clock()
    live = LiveRows(tmp_path, clock)
    live.follow(log)
    log.append(rows(1, 2))
    log.flush(2)
    log.append(rows(3, 4))
    return tmp_path, log, live, clock


def seen(folder, *, living=True):
    return metrics_so_far(folder, living=living)["round"].tolist()


def test_rounds_since_the_last_part_are_seen_about_every_second(watched):
    folder, log, live, clock = watched
    assert seen(folder) == [1, 2]
    live.show_now_and_then()
    assert seen(folder) == [1, 2, 3, 4]
    log.append(rows(5, 5))
    clock.now = 0.9
    live.show_now_and_then()
    assert seen(folder) == [1, 2, 3, 4]
    clock.now = 1.0
    live.show_now_and_then()
    assert seen(folder) == [1, 2, 3, 4, 5]


def test_a_flush_shows_no_round_twice(watched):
    folder, log, live, _ = watched
    live.show_now_and_then()
    log.flush(4)
    assert seen(folder) == [1, 2, 3, 4]


def test_newest_rows_that_leave_a_gap_are_not_shown(watched):
    folder, _, _, _ = watched
    write_table(folder / "metrics" / "live.parquet", METRICS, [rows(5, 6)], lasting=False)
    assert seen(folder) == [1, 2]


def test_a_killed_run_counts_up_to_where_it_can_be_resumed(watched):
    folder, _, live, _ = watched
    live.show_now_and_then()
    assert seen(folder, living=False) == [1, 2]
    LiveRows(folder).follow(RowLog.resume(folder / "metrics", METRICS, 2, {}))
    assert seen(folder) == [1, 2]


def test_only_a_kill_leaves_newest_rows_behind(watched):
    folder, _, live, _ = watched
    live.show_now_and_then()
    assert seen(folder) == [1, 2, 3, 4]
    with pytest.raises(RuntimeError), live:
        raise RuntimeError
    assert not (folder / "metrics" / "live.parquet").exists()


def test_a_finished_run_is_read_from_its_table(watched):
    folder, log, live, _ = watched
    live.show_now_and_then()
    log.finish(folder / "metrics.parquet", keep_parts=True)
    (folder / "run.json").write_text("{}")
    assert seen(folder, living=False) == [1, 2, 3, 4]


def test_a_disk_that_takes_no_rows_stops_no_run(watched, monkeypatch):
    folder, _, live, _ = watched

    def full(*given, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fewjoules.runs.live_rows.write_table", full)
    live.show_now_and_then()
    assert seen(folder) == [1, 2]
