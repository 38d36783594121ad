"""A log may be flushed anywhere, killed anywhere, and ends in the same bytes."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.ledger import parquet
from fewjoules.ledger.log import RowLog
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS, RowArray
from tests.ledger.strategies import rows


def ledger_rows(first_round: int, last_round: int, devices: int = 3) -> RowArray:
    made = LEDGER.new_rows((last_round - first_round + 1) * devices)
    made["round"] = np.repeat(np.arange(first_round, last_round + 1), devices)
    made["device"] = np.tile(np.arange(devices), last_round - first_round + 1)
    made["uplink_joules"] = np.random.default_rng(first_round).random(made.size)
    return made


def flushed_log(folder: Path, *ends: int) -> RowLog:
    log = RowLog(folder, LEDGER)
    for first, last in zip((1, *(end + 1 for end in ends)), ends, strict=False):
        log.append(ledger_rows(first, last))
        log.flush(last)
    return log


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def finished_bytes(made: RowArray, cuts: set[int], folder: Path | None) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        log = RowLog(None if folder is None else Path(scratch) / "parts", LEDGER)
        for number in np.unique(made["round"]):
            log.append(made[made["round"] == number])
            if int(number) in cuts:
                log.flush(int(number))
        log.finish(Path(scratch) / "ledger.parquet")
        assert names(Path(scratch)) == ["ledger.parquet"]
        return (Path(scratch) / "ledger.parquet").read_bytes()


@settings(max_examples=30, deadline=None)
@given(rows(LEDGER), st.sets(st.integers(1, 80)))
def test_the_bytes_do_not_depend_on_where_flushes_fell(made, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", 7)
        once = finished_bytes(made, set(), None)
        assert finished_bytes(made, cuts, Path()) == once


def test_the_bytes_do_not_depend_on_flushes_in_groups_of_the_real_size(tmp_path):
    made = ledger_rows(1, 90, devices=1000)
    files = []
    for label, ends in {"a": [90], "b": [1, 65, 66, 90]}.items():
        log = RowLog(tmp_path / label, LEDGER)
        for end in ends:
            log.append(made[(made["round"] <= end) & (made["round"] > log._flushed_round)])
            log.flush(end)
        log.finish(tmp_path / f"{label}.parquet")
        files.append((tmp_path / f"{label}.parquet").read_bytes())
    assert files[0] == files[1]


def test_parts_are_named_by_the_rounds_they_cover(tmp_path):
    log = flushed_log(tmp_path / "parts", 2, 5)
    log.flush(5)  # nothing new
    log.flush(9)  # rounds in which no device took part
    assert names(tmp_path / "parts") == [
        "part-00000001-00000002.parquet",
        "part-00000003-00000005.parquet",
        "part-00000006-00000009.parquet",
    ]
    assert log.rows().size == 15


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True).map(sorted),
    survivor=st.integers(0, 5),
    strays=st.lists(st.integers(1, 40), max_size=3),
)
def test_a_resumed_log_ends_like_one_that_was_never_killed(ends, survivor, strays):
    kept = [0, *ends][survivor % (len(ends) + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "parts"
        made = flushed_log(folder, *ends)
        kept_checksums = {name: crc for name, crc in made.checksums.items() if int(name[14:22]) <= kept}
        for stray in strays:
            (folder / f".part-{stray:08d}-{stray + 1:08d}.parquet.partial").write_bytes(b"PAR1half")
        log = RowLog.resume(folder, LEDGER, kept, kept_checksums)
        assert not [name for name in names(folder) if "partial" in name]
        for first, last in zip([0, *ends], ends, strict=False):
            if last > kept:
                log.append(ledger_rows(first + 1, last))
        log.finish(Path(scratch) / "resumed.parquet")
        flushed_log(folder, *ends).finish(Path(scratch) / "whole.parquet")
        assert (Path(scratch) / "resumed.parquet").read_bytes() == (Path(scratch) / "whole.parquet").read_bytes()


def test_gaps_and_overlaps_are_refused_and_nothing_is_removed(tmp_path):
    flushed_log(tmp_path, 2, 4, 6, 8)
    with pytest.raises(InvalidInputError, match="must cover rounds 1 to 5, got 1 to 4"):
        RowLog.resume(tmp_path, LEDGER, 5, {})
    (tmp_path / "part-00000003-00000004.parquet").rename(tmp_path / "part-00000002-00000004.parquet")
    with pytest.raises(InvalidInputError, match="must start with round 3, got 2 to 4"):
        RowLog.resume(tmp_path, LEDGER, 6, {})
    (tmp_path / "part-00000002-00000004.parquet").unlink()
    with pytest.raises(InvalidInputError, match="must start with round 3, got 5 to 6"):
        RowLog.resume(tmp_path, LEDGER, 6, {})
    assert len(names(tmp_path)) == 3


def test_a_new_log_refuses_a_folder_with_parts(tmp_path):
    flushed_log(tmp_path, 2)
    with pytest.raises(InvalidInputError, match="without parts"):
        RowLog(tmp_path, LEDGER)


def test_parts_may_be_kept_until_everything_else_is_written(tmp_path):
    log = flushed_log(tmp_path / "parts", 2, 4)
    log.append(ledger_rows(5, 6))
    log.finish(tmp_path / "ledger.parquet", keep_parts=True)
    RowLog.resume(tmp_path / "parts", LEDGER, 6, log.checksums).finish(tmp_path / "again.parquet")
    assert names(tmp_path) == ["again.parquet", "ledger.parquet"]
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "ledger.parquet").read_bytes()


def test_without_a_folder_rows_stay_in_memory(tmp_path):
    log = RowLog(None, METRICS)
    made = METRICS.new_rows(2)
    made["round"] = [1, 2]
    log.append(made)
    log.flush(2)
    made["round"] = [3, 4]  # the log holds a copy
    log.append(made)
    assert log.rows()["round"].tolist() == [1, 2, 3, 4]
    log.finish(tmp_path / "metrics.parquet")
    assert read_table(tmp_path / "metrics.parquet", METRICS)["round"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("rounds", [[3], [5, 4], [0], [-1]])
def test_rounds_that_were_flushed_or_fall_are_refused(rounds):
    log = RowLog(None, METRICS)
    log.flush(3)
    made = METRICS.new_rows(len(rounds))
    made["round"] = rounds
    with pytest.raises(InvalidInputError, match="must be at least 4 and never fall"):
        log.append(made)


def test_a_flush_may_not_cut_a_round_that_was_appended():
    log = RowLog(None, LEDGER)
    log.append(ledger_rows(1, 3))
    with pytest.raises(InvalidInputError, match="last_round must be at least 3, got 2"):
        log.flush(2)


@pytest.mark.parametrize("made", [METRICS.new_rows(1), np.zeros(3), [1, 2], LEDGER.new_rows(4).reshape(2, 2)])
def test_rows_of_another_shape_are_refused(made):
    with pytest.raises(InvalidInputError, match="rows of the ledger must be"):
        RowLog(None, LEDGER).append(made)
