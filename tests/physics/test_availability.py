"""Who is available when: intervals beside a literal search, functions, and files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.availability import ROUNDS, SECONDS, AvailabilityFunction, availability_of

DEVICES = 4
EVERYONE = np.ones(DEVICES, dtype=bool)
intervals = st.lists(
    st.tuples(st.integers(0, DEVICES - 1), st.integers(0, 18), st.integers(1, 6)), min_size=1, max_size=8
).map(lambda rows: [(device, start, min(start + length, 20)) for device, start, length in rows])


def literally(rows, period, time, among):
    """Whole seconds are tried one after the other."""
    for waited in range(60):
        now = time + waited if period is None else (time + waited) % period
        here = np.zeros(DEVICES, dtype=bool)
        for device, start, end in rows:
            here[device] |= bool(among[device]) and start <= now < end
        if here.any():
            return waited, here
    return None


@settings(max_examples=200, deadline=None)
@given(intervals, st.sampled_from([None, 20, 25]), st.integers(0, 50), st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_next_available_devices_are_those_that_a_literal_search_finds(rows, period, time, able):
    among = np.array(able)
    found = fj.Availability(rows, period_seconds=period).at(float(time), among, SECONDS)
    expected = literally(rows, period, time, among)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_function_is_asked_again_every_minute_until_somebody_is_there():
    by_function = availability_of(lambda seconds: np.arange(DEVICES) == (1 if seconds >= 150.0 else -1))
    waited, here = by_function.at(10.0, EVERYONE, SECONDS)
    assert waited == 180.0
    assert here.tolist() == [False, True, False, False]
    assert by_function.at(150.0, ~here, SECONDS) is None
    assert by_function.at(149.0, EVERYONE, ROUNDS)[0] == 1.0


def test_files_tell_seconds_or_rounds(tmp_path):
    seconds, rounds, table = (tmp_path / name for name in ("s.csv", "r.csv", "s.parquet"))
    seconds.write_text("device,from_seconds,to_seconds\n0,10,20\n1,15,30\n")
    rounds.write_text("device,from_round,to_round\n2,3,4\n")
    pq.write_table(pa.table({"device": [0, 1], "from_seconds": [10.0, 15.0], "to_seconds": [20.0, 30.0]}), table)
    assert fj.Availability.read(table).describe() == fj.Availability.read(seconds).describe()
    waited, here = fj.Availability.read(seconds, period_seconds=100.0).at(120.0, EVERYONE, SECONDS)
    assert (waited, here.tolist()) == (0.0, [False, True, False, False])
    by_round = fj.Availability.read(rounds)
    assert by_round.unit == ROUNDS
    assert [by_round.at(float(done), EVERYONE, ROUNDS) is None for done in (2, 3, 4)] == [False, False, True]
    assert by_round.at(0.0, EVERYONE, ROUNDS)[0] == 2.0


def test_availabilities_that_differ_are_told_apart():
    one = fj.Availability([(0, 0, 5)])
    assert one.describe() == fj.Availability([[0.0, 0.0, 5.0]]).describe()
    others = [fj.Availability([(0, 0, 6)]), fj.Availability([(0, 0, 5)], period_seconds=9.0)]
    assert all(other.describe() != one.describe() for other in others)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([(0, 5, 5)], "must end after it begins, got 5 to 5 seconds"),
        ([(0.5, 0, 1)], "devices from 0 and times of 0 to 1e+15, got (0.5, 0, 1) in row 0"),
        ([(0, -1, 1)], "in row 0"),
        ([(0, 0, np.nan)], "in row 0"),
        ([], "rows (device, from, to), got shape (0,)"),
        ("soon", "rows (device, from, to), got 'soon'"),
    ],
)
def test_intervals_that_make_no_sense_are_refused(given, problem):
    with pytest.raises(fj.InvalidInputError) as refused:
        availability_of(given)
    assert problem in str(refused.value)


def test_periods_and_files_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(fj.InvalidInputError, match="must end by period_seconds = 10, got one that ends at 12 s"):
        fj.Availability([(0, 8, 12)], period_seconds=10.0)
    with pytest.raises(fj.InvalidInputError, match="got one in rounds"):
        fj.Availability([(0, 8, 12)], period_seconds=10.0, unit=ROUNDS)
    with pytest.raises(fj.InvalidInputError, match="unit must be one of seconds, rounds, got 'hours'"):
        fj.Availability([(0, 8, 12)], unit="hours")
    file = tmp_path / "bad.csv"
    file.write_text("device,from_seconds\n0,1\n")
    with pytest.raises(fj.InvalidInputError, match="must name to_seconds once"):
        fj.Availability.read(file)
    damaged = tmp_path / "bad.parquet"
    damaged.write_bytes(b"PAR1 no")
    with pytest.raises(fj.InvalidInputError, match="cannot be read as a Parquet file"):
        fj.Availability.read(damaged)
    pq.write_table(pa.table({"device": ["a"], "from_seconds": [1.0], "to_seconds": [2.0]}), damaged)
    with pytest.raises(fj.InvalidInputError, match="device must hold numbers"):
        fj.Availability.read(damaged)
    with pytest.raises(fj.InvalidInputError, match="true or false for each of 4 devices, got int64"):
        AvailabilityFunction(lambda _: np.arange(4)).require_devices(4)
