"""The control problem by brute force: objective (27) in plain loops, minimised by grids and general-purpose solvers.

Nothing here calls the planner. A problem is read through its public fields only, sparsities are searched in
`x = ln(delta)` because they span orders of magnitude, and the logarithm of the energy is minimised because it does too.
Every result is a real point of the problem, so no correct lower bound lies above it.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

import fewjoules as fj


class Point(NamedTuple):
    energy_joules: float
    local_steps: int
    sparsity: list[float]


NOTHING = Point(math.inf, 0, [])


# ---- objective (27), literally ----


def message_law(sender):
    """Fixed bits, scale and bits of an entry of the messages of the devices or the server; those of formula (25)."""
    if sender.message is None:
        return 0.0, 1.0, sender.value_bits + 1
    return sender.message.fixed_bits, sender.message.scale, sender.message.entry_bits


def message_bits(problem, delta):
    """S(delta) = fixed + scale d/delta (log2 delta + kappa)."""
    fixed, scale, kappa = message_law(problem)
    return fixed + scale * problem.parameters / delta * (math.log2(delta) + kappa)


def rounds_at(model, mean_power, H, M):
    """K for a given mean of delta^q; only + * / and powers, so arrays and complex numbers pass through."""
    s = mean_power
    if isinstance(model, fj.PaperRounds):
        return model.alpha * H * M * s + model.beta / (M**0.5 * H)
    if isinstance(model, fj.PowerLawRounds):
        return model.tau / H * (1 + model.c * H**model.a * s)
    L, sigma, G, gap = model.smoothness, model.sigma, model.gradient_bound, model.initial_gap
    b0, eps = model.batch, model.epsilon
    p = 12 * sigma * (gap * L / (M * b0)) ** 0.5
    Q = 8 * b0 * M * L * G**2 * gap * H**2 * (4 * s + 1) / sigma**2
    root = (p**2 / (4 * eps**2) + Q / eps) ** 0.5
    factor = p / eps if model.form == "exact" else 1.0
    return (p**2 / (2 * eps**2) + Q / eps + factor * root) / H


def power(model):
    """The q of mean(delta^q)."""
    return model.q if isinstance(model, fj.PowerLawRounds) else 2.0


def mean_power(model, sparsity):
    """mean(delta^q) over the devices."""
    return math.fsum(float(delta) ** power(model) for delta in sparsity) / len(sparsity)


def rounds(problem, H, sparsity):
    """K(delta, H)."""
    return rounds_at(problem.rounds, mean_power(problem.rounds, sparsity), H, len(sparsity))


def device_radio_joules(problem, m, delta):
    """What device m spends on one message."""
    fleet = problem.fleet
    return float(fleet.joules_per_bit[m]) * message_bits(problem, delta) + float(fleet.message_joules[m])


def device_joules(problem, m, H, delta):
    """What device m spends in one round."""
    return device_radio_joules(problem, m, delta) + H * float(problem.fleet.joules_per_step[m])


def round_joules(problem, H, sparsity):
    """What all devices spend in one round."""
    return math.fsum(device_joules(problem, m, H, delta) for m, delta in enumerate(sparsity))


def energy(problem, H, sparsity):
    """Objective (27): rounds times the joules of a round."""
    return rounds(problem, H, sparsity) * round_joules(problem, H, sparsity)


def device_seconds(problem, m, H, delta):
    """How long device m takes for one round."""
    fleet = problem.fleet
    radio = float(fleet.seconds_per_bit[m]) * message_bits(problem, delta) + float(fleet.message_seconds[m])
    return radio + H * float(fleet.seconds_per_step[m])


def pulls(problem, H, sparsity):
    """For each device the two terms of d ln(energy) / d ln(delta_m): growth of rounds, shrinking of messages.

    Both are >= 0; their difference is the derivative. The slope of K comes from a complex step, hence to rounding.
    """
    model, M = problem.rounds, len(sparsity)
    q, s = power(model), mean_power(model, sparsity)
    _, scale, kappa = message_law(problem)
    step = 1e-30 * s
    slope = complex(rounds_at(model, s + 1j * step, H, M)).imag / step
    K, R = rounds_at(model, s, H, M), round_joules(problem, H, sparsity)
    up = [slope * q * delta**q / M / K for delta in sparsity]
    down = [
        float(problem.fleet.joules_per_bit[m])
        * scale
        * problem.parameters
        / delta
        * (math.log2(delta) + kappa - 1 / math.log(2))
        / R
        for m, delta in enumerate(sparsity)
    ]
    return up, down


# ---- minimisers without constraints ----


def least_on_interval(f, low, high, points=400):
    """Least value of f on [low, high] and where: a dense grid, then a refinement around its best points."""
    if low == high:
        return f(low), low
    grid = np.linspace(low, high, points)
    values = [f(x) for x in grid]
    best = min(zip(values, grid, strict=True))
    for i in np.argsort(values)[:3]:
        inside = (grid[max(i - 1, 0)], grid[min(i + 1, points - 1)])
        found = optimize.minimize_scalar(f, bounds=inside, method="bounded", options={"xatol": 1e-12})
        best = min(best, (float(found.fun), float(found.x)))
    return best


def clip(problem, sparsity):
    """exp(ln(bound)) may leave the interval by one rounding; put it back."""
    low, high = problem.sparsity
    return [min(max(float(delta), low), high) for delta in sparsity]


def best_unified(problem):
    """The best point with one sparsity for all devices, each H tried in turn."""
    low, high = problem.sparsity
    M = len(problem.fleet)
    best = NOTHING
    for H in problem.local_steps:
        _, x = least_on_interval(
            lambda x, H=H: math.log(energy(problem, H, [math.exp(x)] * M)), math.log(low), math.log(high)
        )
        for delta in (x, math.log(low), math.log(high)):
            sparsity = clip(problem, [math.exp(delta)] * M)
            best = min(best, Point(energy(problem, H, sparsity), int(H), sparsity))
    return best


def best_for_local_steps(problem, H, levels=5):
    """The best point for one H: truncated Newton in ln(delta) from several starts, those of a grid too if M <= 2."""
    low, high = (math.log(bound) for bound in problem.sparsity)
    M = len(problem.fleet)

    def objective(x):
        sparsity = [math.exp(value) for value in x]
        up, down = pulls(problem, H, sparsity)
        return math.log(energy(problem, H, sparsity)), np.subtract(up, down)

    starts = [[level] * M for level in np.linspace(low, high, levels)]
    if M <= 2:
        starts += grid_starts(problem, H, [(low, high)] * M, lambda _: 0.0)
    best = NOTHING
    for start in starts:
        x = start
        if low < high:
            # Not L-BFGS-B, which is as accurate but wakes the threads of BLAS even for a single variable.
            options = {"ftol": 1e-16, "xtol": 0.0, "gtol": 1e-14, "maxfun": 500}
            bounds = [(low, high)] * M
            found = optimize.minimize(objective, start, jac=True, method="TNC", bounds=bounds, options=options)
            x = found.x
        sparsity = clip(problem, np.exp(x))
        best = min(best, Point(energy(problem, H, sparsity), int(H), sparsity))
    return best


def best(problem):
    """The best point of a small fleet over every H, without deadline and batteries."""
    return min(best_for_local_steps(problem, H) for H in problem.local_steps)


# ---- deadline and batteries, one or two devices ----


def meets_limits(problem, H, sparsity, slack=0.0):
    """Whether deadline and batteries hold, each with a relative slack."""
    K = rounds(problem, H, sparsity)
    batteries = problem.fleet.battery_joules
    in_time = problem.round_seconds is None or all(
        device_seconds(problem, m, H, delta) <= problem.round_seconds * (1 + slack) for m, delta in enumerate(sparsity)
    )
    in_charge = batteries is None or all(
        K * device_joules(problem, m, H, delta) <= batteries[m] * (1 + slack) for m, delta in enumerate(sparsity)
    )
    return in_time and in_charge


def least_sparsity_in_time(problem, m, H):
    """ln of the least sparsity with which device m meets the deadline, None if there is none: bisection."""
    low, high = (math.log(bound) for bound in problem.sparsity)
    if problem.round_seconds is None:
        return low

    def late(x):
        return device_seconds(problem, m, H, math.exp(x)) > problem.round_seconds

    if not late(low):
        return low
    if late(high):
        return None
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if late(middle) else (low, middle)
    return high


def overdraft(problem, H, x):
    """ln(spent / battery) for each device with a battery."""
    sparsity = [math.exp(value) for value in x]
    K = rounds(problem, H, sparsity)
    batteries = problem.fleet.battery_joules
    if batteries is None:
        return []
    return [
        math.log(K * device_joules(problem, m, H, delta) / batteries[m])
        for m, delta in enumerate(sparsity)
        if math.isfinite(batteries[m])
    ]


def grid_starts(problem, H, box, penalty, points=81):
    """Good points of a dense grid over the box (M <= 2): its best one and the best of each half along each axis."""
    model, M = problem.rounds, len(box)
    axes = [np.linspace(low, high, points) for low, high in box]
    spent = [[device_joules(problem, m, H, math.exp(x)) for x in axis] for m, axis in enumerate(axes)]
    powers = [[math.exp(x * power(model)) for x in axis] for axis in axes]
    spent_grids = np.meshgrid(*spent, indexing="ij")
    K = rounds_at(model, sum(np.meshgrid(*powers, indexing="ij")) / M, H, M)
    score = np.log(K * sum(spent_grids)) + penalty([K * grid for grid in spent_grids])
    half = points // 2
    starts = []
    for corner in itertools.product((slice(0, half + 1), slice(half, points)), repeat=M):
        index = np.unravel_index(np.argmin(score[corner]), score[corner].shape)
        starts.append([axes[m][corner[m]][index[m]] for m in range(M)])
    return starts


def best_constrained_for_local_steps(problem, H, margin=1e-10):
    """The best point for one H and one or two devices under deadline and batteries: grid, then SLSQP.

    The deadline only bounds each sparsity from below. SLSQP keeps `margin` inside the batteries, and only points that
    literally meet every limit count.
    """
    M = len(problem.fleet)
    lows = [least_sparsity_in_time(problem, m, H) for m in range(M)]
    if None in lows:
        return NOTHING
    box = [(low, math.log(problem.sparsity[1])) for low in lows]
    batteries = problem.fleet.battery_joules
    batteries = [math.inf] * M if batteries is None else list(batteries)

    def penalty(spent_grids):
        excess = sum(
            np.log(np.maximum(grid / battery, 1.0)) for grid, battery in zip(spent_grids, batteries, strict=True)
        )
        return np.where(excess > 0, 1e3 + 1e3 * excess, 0.0)

    def log_energy(x):
        return math.log(energy(problem, H, [math.exp(value) for value in x]))

    def charge_left(x):
        return -np.array(overdraft(problem, H, x)) - margin

    with_batteries = any(math.isfinite(battery) for battery in batteries)
    starts = [*grid_starts(problem, H, box, penalty), lows, [high for _, high in box]]
    best = NOTHING
    for start in starts:
        found = optimize.minimize(
            log_energy,
            start,
            jac="3-point",
            method="SLSQP",
            bounds=box,
            constraints=[{"type": "ineq", "fun": charge_left}] if with_batteries else [],
            options={"ftol": 1e-15, "maxiter": 200},
        )
        for x in (start, found.x):
            sparsity = [
                min(max(math.exp(value), math.exp(low)), problem.sparsity[1])
                for value, low in zip(x, lows, strict=True)
            ]
            if meets_limits(problem, H, sparsity):
                best = min(best, Point(energy(problem, H, sparsity), int(H), sparsity))
    return best


def best_constrained(problem):
    """The best point over every H under deadline and batteries; NOTHING if none was found."""
    return min(best_constrained_for_local_steps(problem, H) for H in problem.local_steps)
