"""Counters give what they have risen, around any number of wraps; samples of power give what lies under them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.errors import MeterError
from fewjoules.metering.counters import Counter, CounterMeter
from fewjoules.metering.powers import Integral, PowerMeter


@given(st.integers(2, 10**12), st.integers(0, 10**12), st.lists(st.integers(0, 10**12), max_size=20))
def test_joules_of_a_wrapping_counter_are_the_sum_of_its_rises(wraps_at, start, rises):
    rises = [rise % wraps_at for rise in rises]  # a counter that goes around more than once unseen cannot be known
    shown = [total % wraps_at for total in itertools.accumulate(rises, initial=start)]
    readings = iter(shown)
    counter = Counter("x", lambda: next(readings), joules_per_unit=lambda: 1.0, wraps_at=wraps_at)
    found = [counter.advance() for _ in rises]
    assert found == [float(total) for total in itertools.accumulate(rises)]


def test_a_counter_that_never_wraps_must_not_fall():
    readings = iter([5, 7, 6])
    counter = Counter("NVML of X", lambda: next(readings), joules_per_unit=lambda: 1e-3)
    assert counter.advance() == pytest.approx(2e-3)
    with pytest.raises(MeterError, match=r"NVML of X must never fall, but fell from 7 to 6"):
        counter.advance()


def test_a_meter_sums_its_counters():
    values = {"a": 0, "b": 100}
    counters = [
        Counter(name, lambda name=name: values[name], joules_per_unit=lambda: 0.5, wraps_at=1000) for name in values
    ]
    meter = CounterMeter("rapl", "two packages", counters, resolution_seconds=1.0)
    values.update(a=10, b=130)
    assert meter.joules() == 20.0
    meter.close()


LEVELS = st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.0, 1e4)), min_size=2, max_size=20)


def integral(samples):
    found = Integral()
    for seconds, watts in samples:
        found.add(seconds, watts)
    return found.joules


@given(LEVELS, st.floats(0.05, 0.95))
def test_a_sample_on_the_line_between_two_others_changes_no_joules(steps, share):
    times = list(itertools.accumulate(length for length, _ in steps))
    samples = list(zip(times, (watts for _, watts in steps), strict=True))
    (first, before), (second, after) = samples[:2]
    between = (first + share * (second - first), before + share * (after - before))
    assert integral([samples[0], between, *samples[1:]]) == pytest.approx(integral(samples), rel=1e-9, abs=1e-9)


@given(st.floats(0.0, 1e4), st.lists(st.floats(0.0, 50.0), min_size=1, max_size=20))
def test_constant_power_gives_power_times_time(watts, lengths):
    times = list(itertools.accumulate(lengths, initial=3.0))
    assert integral([(time, watts) for time in times]) == pytest.approx(watts * (times[-1] - times[0]), abs=1e-6)


def test_a_power_meter_integrates_up_to_the_moment_when_it_is_asked():
    now = [0.0]
    meter = PowerMeter("hwmon", "a rail", lambda: 5.0, resolution_seconds=100.0, clock=lambda: now[0])
    now[0] = 4.0
    assert meter.joules() == 20.0
    meter.close()


def test_an_error_in_the_thread_of_a_meter_reaches_whoever_asks_it():
    left = [3]

    def watts():
        left[0] -= 1
        if left[0] < 0:
            raise MeterError("/sys/x: cannot be read (gone)")
        return 1.0

    meter = PowerMeter("hwmon", "a rail", watts, resolution_seconds=0.001)
    meter._ticker._thread.join(timeout=30.0)
    left[0] = 10  # it could be read again, but joules are missing
    with pytest.raises(MeterError, match=r"/sys/x: cannot be read \(gone\)"):
        meter.joules()
    meter.close()
