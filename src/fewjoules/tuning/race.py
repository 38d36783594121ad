"""Successive halving over optimisers and step sizes, all with the same H and sparsities.

Equal steps cost equal joules there, so arms are compared by the steps to the target or, before it, by their loss on the
data kept aside after equal steps. Plain SGD goes first and tells the length of a heat: the steps after which a fifth of
the way to the target is done. The others race over a heat twice as long, the best of them also at neighbours of their
step sizes, and every later heat doubles. Early curves favour optimisers that start fast, so several optimisers go on,
each with one arm.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fewjoules.tuning.aim import Aim
from fewjoules.tuning.arms import FIRST_RATES, PLAIN, Optimiser, optimisers
from fewjoules.tuning.pilot import PilotResult

SHORTEST_HEAT = 24  # local steps
PART_OF_WAY = 0.2  # to the target, that plain SGD goes in the first heat
MOST_HEATS = 7  # of plain SGD, to get there: the next is twice as long, or has a smaller step size if all do harm
STEP = 2.0  # factor between neighbouring step sizes
AS_GOOD = 1.03  # steps or a loss within this factor of the best are as good
LEFT_TO_OTHERS = 2  # heats of the shorter length, that plain SGD leaves of a budget in steps or joules
STILL = 0.01  # part of the first loss, by which a step size that is not far too small lowers it in the shortest heat
MOST_STILL = 0.1  # the same in long heats, in which it lowers the loss further
FARTHER = (STEP**2, STEP**4)  # times the largest step size, where all are far too small
MOST_JUMPS = 8  # to such step sizes
LEAST_RATE = 1e-6  # below which no smaller step size is tried
MOST_HARMFUL = 10  # step sizes that only raise the loss: then neither smaller ones nor much longer heats are tried
HARMFUL_HEATS = 3  # of plain SGD, where they all do
LEAST_LOSS = 1e-12  # of the untrained model, in comparison with which others have fallen


@dataclass(frozen=True)
class Arm:
    """An optimiser with a step size."""

    optimiser: Optimiser
    rate: float


@dataclass
class Race:
    """A race in progress: the last result of each arm, and the length of the heat."""

    follow: Callable[[Sequence[Arm], int], list[PilotResult]]  # trains arms for so many steps from the start
    aim: Aim
    start_metric: float
    start_loss: float
    heat: int  # local steps, whole rounds
    results: dict[Arm, PilotResult] = field(default_factory=dict)
    steady: set[Arm] = field(default_factory=set)  # that survive other starts (steadiness.py)
    unsteady: set[Arm] = field(default_factory=set)  # that do not
    longer_heat: int | None = None  # of plain SGD, where one of the shortest length was too short to see anything
    left: Callable[[], float] = lambda: math.inf  # local steps that a budget in steps or joules still allows
    kept: float = 0.0  # of these, local steps that are kept for the way to the target

    def run_plain(self, rate: float, most: int) -> None:
        """Find the step size of plain SGD, beginning with up to ``most`` of them, and the length of a heat.

        A heat that shows little may be too short, or its step sizes too small. Larger ones are tried before longer
        heats, which cost more.
        """
        arms = [Arm(PLAIN, factor * rate) for factor in FIRST_RATES[:most]]
        for tried in range(MOST_HEATS):
            self.hold(arms)
            self._leave_standstill()
            if most == len(FIRST_RATES):
                self._extend(PLAIN)
            elif not self._shows_the_way():
                self._extend(PLAIN, downwards=False)
            if tried == MOST_HEATS - 1 or self._shows_the_way():
                return
            best = [arm for arm in self.ranked()[:2] if not self._raises(arm)]
            if self._only_harms() and tried + 1 >= HARMFUL_HEATS:
                return
            if best and self.allowed() < (len(best) + LEFT_TO_OTHERS) * self.heat:
                return
            if best:
                self.heat = self.longer_heat = 2 * self.heat
            arms = best or [Arm(PLAIN, min(arm.rate for arm in self.results) / STEP**2)]

    def run_others(self, most: int, *, longer: bool) -> None:
        """Race up to ``most`` other optimisers over a heat, each at its first step size.

        ``longer`` heats are twice as long: momentum and warm-up make a slow start. A step size that blew up is replaced
        by a quarter of it, and so is a usual number that plain SGD has left behind: a transformer may need less.
        """
        plain = self.ranked()
        rate = plain[0].rate if plain else min(arm.rate for arm in self.results)
        spec = next(iter(self.results.values())).spec
        typical = sorted(spec.sparsity)[len(spec.sparsity) // 2]
        arms = [Arm(one, one.first_rate(rate)) for one in optimisers(spec.local_steps, typical)[:most]]
        both = [*plain[:1], *arms[:1]]
        longer = longer and self._affordable(both, 2 * self.heat) == both
        self.heat *= 2 if longer else 1
        self.hold([*plain[:1], *arms] if longer else arms)
        doubtful = [arm for arm in arms if self._blew_up(arm) or self._is_left_behind(arm)]
        self.hold([Arm(arm.optimiser, arm.rate / STEP**2) for arm in doubtful])

    def try_rates(self, most: int) -> None:
        """Let the ``most`` best optimisers try twice their step size, and the best of all also half of it."""
        best = self.contenders()[:most]
        larger = [Arm(arm.optimiser, STEP * arm.rate) for arm in best]
        self.hold([arm for arm in larger if not self._blew_up(arm)])
        smaller = [Arm(arm.optimiser, arm.rate / STEP) for arm in self.contenders()[:1]]
        self.hold([arm for arm in smaller if Arm(arm.optimiser, arm.rate * STEP) in best and arm not in self.results])

    def go_on(self, most: int) -> None:
        """Hold a heat of twice the length for the best arms of the ``most`` best optimisers."""
        best = self.contenders()[:most]
        self.heat *= 2
        self.hold(best)

    def halve(self, arm: Arm) -> None:
        """Count an arm that other starts blow up as blown up; half its step size takes its place in the heat."""
        self.unsteady.add(arm)
        self.results[arm] = replace(self.results[arm], diverged=True)
        smaller = Arm(arm.optimiser, arm.rate / STEP)
        if smaller not in self.ranked() and not self._blew_up(smaller):
            self.hold([smaller])

    def hold(self, arms: Sequence[Arm]) -> bool:
        """Train arms to the end of the heat, the first ones if a budget does not allow all; whether any was trained."""
        chosen = self._affordable(arms, self.heat)
        if chosen:
            self.results |= dict(zip(chosen, self.follow(chosen, self.heat), strict=True))
        return bool(chosen)

    def allowed(self) -> float:
        """Return the local steps that the race may still take."""
        return self.left() - self.kept

    def _affordable(self, arms: Sequence[Arm], heat: int) -> list[Arm]:
        """Return the first arms, as many as the budget allows to go on to the end of a heat."""
        left, found = self.allowed(), []
        for arm in arms:
            left -= max(0, heat - (self.results[arm].local_steps_taken if arm in self.results else 0))
            if left < 0.0:
                break
            found.append(arm)
        return found

    def ranked(self) -> list[Arm]:
        """Return the arms that went the whole heat and did not blow up, the best first."""
        there = [
            arm
            for arm, result in self.results.items()
            if result.alive and (result.local_steps_taken >= self.heat or result.reached)
        ]
        return sorted(there, key=self._standing)

    def best_of_each(self) -> list[Arm]:
        """Return the best arm of each optimiser, the best first; of rates about as good, the smallest."""
        best: dict[str, Arm] = {}
        for arm in self.ranked():
            first = best.setdefault(arm.optimiser.name, arm)
            both = self._standing(arm), self._standing(first)
            if arm.rate < first.rate and all(one <= AS_GOOD * other for one, other in zip(*both, strict=True)):
                best[arm.optimiser.name] = arm
        return sorted(best.values(), key=self._standing)

    def contenders(self) -> list[Arm]:
        """Return the best arm of each optimiser, the best first; plain SGD only where nothing is better."""
        best = self.best_of_each()
        return best[:1] + [arm for arm in best[1:] if arm.optimiser != PLAIN]

    @property
    def is_over(self) -> bool:
        """Whether an arm has reached the target."""
        return any(result.reached for result in self.results.values())

    def _standing(self, arm: Arm) -> tuple[float, float]:
        """Return the steps to the target, infinite before it, and the loss."""
        result = self.results[arm]
        steps = self.aim.steps_to_target(result)
        return (math.inf if steps is None else steps), result.final_loss()

    def _is_left_behind(self, arm: Arm) -> bool:
        """Whether an arm that began at a number of its own has a worse loss and a worse metric than plain SGD."""
        plain = [one for one in self.ranked() if one.optimiser == PLAIN]
        if arm.optimiser.of_plain or arm not in self.results or not plain:
            return False
        way, least = self._way(arm), self._way(plain[0])
        return self._standing(arm) > self._standing(plain[0]) and way < least

    def _blew_up(self, arm: Arm) -> bool:
        return arm in self.results and not self.results[arm].alive

    def _leave_standstill(self) -> None:
        """Try step sizes far larger while none has moved the loss, and the largest has not raised it."""
        for _ in range(MOST_JUMPS):
            least = min(result.final_loss() for result in self.results.values())
            moved = (self.start_loss - least) / max(abs(self.start_loss), LEAST_LOSS)
            if moved > min(STILL * self.heat / SHORTEST_HEAT, MOST_STILL):
                return
            largest = max(arm.rate for arm in self.results)
            if self._raises(Arm(PLAIN, largest)) or not self.hold([Arm(PLAIN, one * largest) for one in FARTHER]):
                return

    def _raises(self, arm: Arm) -> bool:
        """Whether an arm blew up, or left a loss clearly above that of the untrained model."""
        rise = self.results[arm].final_loss() - self.start_loss
        return self._blew_up(arm) or rise > STILL * max(abs(self.start_loss), LEAST_LOSS)

    def _only_harms(self) -> bool:
        """Whether many step sizes were tried and none left a lower loss than that of the untrained model."""
        losses = [result.final_loss() for result in self.results.values() if result.alive]
        return len(losses) >= MOST_HARMFUL and min(losses) >= self.start_loss

    def _way(self, arm: Arm) -> float:
        """Return which part of the way to the target an arm has come."""
        return self.aim.progress(self.aim.best(self.results[arm]), self.start_metric)

    def _shows_the_way(self) -> bool:
        """Whether the best arm has come far enough for the heat to be long enough."""
        return any(self._way(arm) >= PART_OF_WAY for arm in self.ranked()[:1])

    def _extend(self, optimiser: Optimiser, *, downwards: bool = True) -> None:
        """Try step sizes while the best one is the largest that was tried or, ``downwards``, the smallest."""
        held = True
        while held:
            mine = sorted(arm.rate for arm in self.results if arm.optimiser == optimiser)
            order = [arm for arm in self.ranked() if arm.optimiser == optimiser]
            if not order:
                return
            best = order[0].rate
            if best == mine[-1]:
                held = self.hold([Arm(optimiser, STEP * best)])
            elif downwards and math.isclose(best, mine[0]) and mine[0] > LEAST_RATE and not self._only_harms():
                held = self.hold([Arm(optimiser, best / STEP)])
            else:
                return
