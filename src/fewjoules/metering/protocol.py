"""The protocol of a measurement: idle power first, then warm-up, then trials until the interval is narrow."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fewjoules.metering.estimate import Estimate, mean_of, reach
from fewjoules.metering.meter import Meter

Amount = TypeVar("Amount", int, float)
IDLE, COOL_DOWN, WARM_UP, TRIAL, PREPARATION = "idle", "cool-down", "warm-up", "trial", "preparation"
LIMIT_SECONDS = 60.0  # of the trials of one size


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """How long and how often to measure.

    A warm-up ends when its last groups differ by at most ``steady``, or after ``limit_seconds``. Trials end when the
    interval of the mean is within ``precision`` of it, or after ``limit_seconds``; there are at least ``least_trials``.
    A window lasts at least ``resolutions`` times as long as the meter takes to renew a reading.
    """

    cool_down_seconds: float = 5.0
    idle_windows: int = 5
    window_seconds: float = 1.0
    resolutions: float = 20.0
    steady: float = 0.05
    steady_groups: int = 4
    least_trials: int = 5
    precision: float = 0.02
    limit_seconds: float = LIMIT_SECONDS

    def seconds_per_window(self, meter: Meter | None) -> float:
        """Return how long a window must last with this meter."""
        return max(self.window_seconds, 0.0 if meter is None else self.resolutions * meter.resolution_seconds)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in a measurement, and the joules of the meter in it."""

    kind: str
    seconds: float
    joules: float | None


@dataclass(frozen=True, slots=True)
class Trials:
    """Seconds and gross joules of one piece of work in each trial.

    ``steady`` tells whether the warm-up settled, ``reached`` whether the interval became narrow enough in time.
    """

    seconds: tuple[float, ...]
    joules: tuple[float, ...] | None
    steady: bool
    reached: bool

    def seconds_estimate(self) -> Estimate:
        """Seconds of a piece."""
        return mean_of(self.seconds)

    def joules_estimate(self, idle: Estimate | None) -> Estimate:
        """Joules of a piece, with those of the ``idle`` watts taken off; None leaves them in."""
        assert self.joules is not None
        if idle is None:
            return mean_of(self.joules)
        pairs = zip(self.joules, self.seconds, strict=True)
        spent = mean_of([joules - idle.mean * seconds for joules, seconds in pairs])
        idle_share = idle.half_width * self.seconds_estimate().mean
        return Estimate(spent.mean, math.hypot(spent.half_width, idle_share), spent.count)


class Bench:
    """Measures pieces of work by one meter, or seconds alone; ``windows`` accounts for the whole time."""

    def __init__(
        self,
        meter: Meter | None,
        protocol: Protocol,
        *,
        say: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``say`` is told what is being done."""
        self.meter, self.protocol, self.windows = meter, protocol, list[Window]()
        self._say, self._clock, self._sleep = say, clock, sleep

    @contextlib.contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """Account for work that is not measured, such as compiling."""
        self._say(what)
        self._window(PREPARATION)
        try:
            yield
        finally:
            self._end_window()

    def idle_watts(self) -> Estimate | None:
        """Return the power while nothing runs, after a cool-down; None without a meter."""
        if self.meter is None:
            return None
        protocol = self.protocol
        self._say(f"idle power, after {protocol.cool_down_seconds:g} s of rest")
        self._timed(COOL_DOWN, self._sleep, protocol.cool_down_seconds)
        seconds = protocol.seconds_per_window(self.meter)
        rests = [self._timed(IDLE, self._sleep, seconds) for _ in range(protocol.idle_windows)]
        return mean_of([(window.joules or 0.0) / window.seconds for window in rests])

    def measure(self, name: str, work: Callable[[int], None], *, pieces: int, idle: Estimate | None = None) -> Trials:
        """Repeat ``work(times)``, of ``pieces`` a time, until the interval is narrow enough or time is up.

        The interval is that of the seconds, and of the joules less those of the ``idle`` watts.
        """
        seconds_each, steady = self._warm_up(name, work)
        repeats = max(1, math.ceil(self.protocol.seconds_per_window(self.meter) / seconds_each))
        began, share = self._clock(), 1.0 / (repeats * pieces)
        windows: list[Window] = []
        while True:
            windows.append(self._timed(TRIAL, work, repeats))
            trials = _trials(windows, share, steady, reached=True)
            widest = _widest(trials, idle)
            self._say(f"{name}: trial {len(windows)}, {self._in_words(widest)}")
            if len(windows) >= self.protocol.least_trials:
                if widest <= self.protocol.precision:
                    return trials
                if self._clock() - began >= self.protocol.limit_seconds:
                    return _trials(windows, share, steady, reached=False)

    def _warm_up(self, name: str, work: Callable[[int], None]) -> tuple[float, bool]:
        """Work until groups of equal size take equally long; return the seconds of a time, and whether they did."""
        protocol = self.protocol
        self._say(f"{name}: warm-up")
        long_enough = 0.1 * protocol.window_seconds
        repeats, began = 1, self._clock()
        group = self._timed(WARM_UP, work, 1)
        while group.seconds < long_enough:
            repeats *= 2
            group = self._timed(WARM_UP, work, repeats)
        groups = [group.seconds]
        while not _is_steady(groups[-protocol.steady_groups :], protocol):
            if self._clock() - began >= protocol.limit_seconds:
                return groups[-1] / repeats, False
            groups.append(self._timed(WARM_UP, work, repeats).seconds)
        return groups[-1] / repeats, True

    def _in_words(self, widest: float) -> str:
        return f"interval {reach(widest)} (wanted +- {self.protocol.precision:.0%})"

    def _timed(self, kind: str, work: Callable[[Amount], None], amount: Amount) -> Window:
        self._window(kind)
        try:
            work(amount)
        finally:
            window = self._end_window()
        return window

    def _window(self, kind: str) -> None:
        joules = None if self.meter is None else self.meter.joules()
        self._open = kind, self._clock(), joules

    def _end_window(self) -> Window:
        kind, began, before = self._open
        seconds = self._clock() - began
        joules = None if self.meter is None or before is None else self.meter.joules() - before
        self.windows.append(Window(kind, seconds, joules))
        return self.windows[-1]


def _is_steady(seconds: Sequence[float], protocol: Protocol) -> bool:
    return len(seconds) >= protocol.steady_groups and max(seconds) - min(seconds) <= protocol.steady * max(seconds)


def _trials(windows: Sequence[Window], share: float, steady: bool, *, reached: bool) -> Trials:
    joules = [window.joules for window in windows if window.joules is not None]
    return Trials(
        tuple(share * window.seconds for window in windows),
        tuple(share * spent for spent in joules) if len(joules) == len(windows) else None,
        steady,
        reached,
    )


def _widest(trials: Trials, idle: Estimate | None) -> float:
    """Return the wider of the relative intervals; what is uncertain about idle power is not made certain by trials."""
    widest = trials.seconds_estimate().relative
    if trials.joules is None:
        return widest
    known = None if idle is None else Estimate(idle.mean, 0.0, idle.count)
    return max(widest, trials.joules_estimate(known).relative)
