"""Hypothesis strategies for fleets, rounds models and control problems, and ways to change a drawn one.

Costs are drawn by exponent, so that every order of magnitude is as likely as the next. Problems are drawn around a
pivot, a sparsity and an H at which the two terms of K are alike and radio and compute cost alike: elsewhere one side
drowns the other, every sparsity ends at a limit and there is little to plan.
"""

import numpy as np
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.physics.message_size import MessageSize


def magnitudes(low, high):
    """Positive floats between 10^low and 10^high, spread evenly in the exponent."""
    return st.integers(0, 1000).map(lambda part: 10.0 ** (low + (high - low) * part / 1000))


def arrays(elements, size):
    return st.lists(elements, min_size=size, max_size=size).map(np.array)


# ---- rounds models: `pivot` and `local_steps` make the two terms of K alike, up to a factor of ten ----


@st.composite
def paper_rounds(draw, devices=3, pivot=30.0, local_steps=5):
    beta = draw(magnitudes(0, 5))
    return fj.PaperRounds(alpha=beta / (local_steps**2 * devices**1.5 * pivot**2) * draw(magnitudes(-1, 1)), beta=beta)


@st.composite
def power_law_rounds(draw, devices=3, pivot=30.0, local_steps=5):
    a, q = draw(st.floats(0.05, 1.5)), draw(st.floats(0.3, 3.0))
    return fj.PowerLawRounds(
        tau=draw(magnitudes(2, 5)), c=draw(magnitudes(-1, 1)) / (local_steps**a * pivot**q), a=a, q=q
    )


@st.composite
def bound_rounds(draw, devices=3, pivot=30.0, local_steps=5):
    sigma = draw(magnitudes(-1, 2))
    gradient_bound = sigma * draw(magnitudes(0, 1))
    batch = draw(st.integers(1, 64))
    epsilon = 2.25 * sigma**4 / (batch * devices * gradient_bound * local_steps * pivot) ** 2
    return fj.BoundRounds(
        smoothness=draw(magnitudes(-1, 2)),
        sigma=sigma,
        gradient_bound=gradient_bound,
        initial_gap=draw(magnitudes(-1, 2)),
        batch=batch,
        epsilon=epsilon * draw(magnitudes(-1, 1)),
        form=draw(st.sampled_from(["exact", "printed"])),
    )


def rounds_models(devices=3, pivot=30.0, local_steps=5):
    kinds = (paper_rounds, power_law_rounds, bound_rounds)
    return st.sampled_from(kinds).flatmap(lambda kind: kind(devices, pivot, local_steps))


# ---- fleets ----


@st.composite
def fleets(draw, min_devices=1, max_devices=5, step_joules=1e-3, timed=False):
    """Fleets whose devices differ a hundredfold, with and without costs of a message."""
    size = draw(st.integers(min_devices, max_devices))
    times = {}
    if timed:
        times = {
            "seconds_per_bit": draw(arrays(magnitudes(-8, -6), size)),
            "seconds_per_step": draw(arrays(magnitudes(-3, -1), size)),
            "message_seconds": draw(arrays(st.sampled_from([0.0, 0.01, 0.1]), size)),
        }
    return fj.Fleet(
        joules_per_bit=draw(arrays(magnitudes(-10, -8), size)),
        joules_per_step=step_joules * draw(arrays(magnitudes(-1, 1), size)),
        message_joules=step_joules * draw(arrays(st.sampled_from([0.0, 0.1, 1.0]), size)),
        **times,
    )


@st.composite
def extreme_fleets(draw, max_devices=5):
    """Costs over 12 orders of magnitude; compute free; radio free; some devices that pay nothing for the radio."""
    size = draw(st.integers(1, max_devices))
    joules_per_bit = draw(arrays(magnitudes(-15, -3), size))
    joules_per_step = draw(arrays(magnitudes(-10, 2), size))
    kind = draw(st.sampled_from(["wide", "compute free", "radio free", "some radios free"]))
    if kind == "radio free":
        joules_per_bit = np.zeros(size)
    if kind == "some radios free":
        joules_per_bit = joules_per_bit * draw(arrays(st.sampled_from([0.0, 1.0]), size))
    if kind == "compute free":
        joules_per_step = np.zeros(size)
    return fj.Fleet(joules_per_bit=joules_per_bit, joules_per_step=joules_per_step)


# ---- limits and problems ----


@st.composite
def sparsity_limits(draw, parameters):
    low = draw(magnitudes(0, 1))
    return low, min(low * draw(magnitudes(0.5, 3.5)), float(parameters))


def touching_limits():
    return st.floats(1.0, 50.0).map(lambda bound: (bound, bound))


def local_step_sets(max_size=20):
    """Every H of a range, or a few scattered ones."""
    ranges = st.tuples(st.integers(1, 5), st.integers(2, max_size)).map(lambda pair: range(pair[0], sum(pair)))
    scattered = st.sets(st.integers(1, 60), min_size=2, max_size=min(6, max_size))
    return (ranges | scattered).map(lambda steps: tuple(sorted(steps)))


@st.composite
def message_sizes(draw, least_entry_bits=2.886):
    """Laws of messages; from 2.886 bits of an entry on they suit every problem."""
    return MessageSize(
        fixed_bits=draw(st.sampled_from([0.0, 240.0, 1e4])),
        scale=draw(st.floats(0.5, 2.0)),
        entry_bits=least_entry_bits + draw(st.sampled_from([0.0, 0.5, 5.0, 30.0])),
    )


@st.composite
def problems(draw, fleet=None, sparsity=None, local_steps=None, **fleet_options):
    """Ordinary problems: fleets that exist, limits that leave room, a trade-off between radio, compute and rounds."""
    parameters = draw(magnitudes(4, 7).map(int))
    value_bits = draw(st.sampled_from([2, 8, 16, 32, 64]))
    limits = draw(sparsity_limits(parameters) if sparsity is None else sparsity)
    steps = draw(local_step_sets() if local_steps is None else local_steps)
    part = draw(st.integers(0, 1000)) / 1000
    pivot, pivot_steps = limits[0] ** (1 - part) * limits[1] ** part, draw(st.sampled_from(steps))
    message = draw(st.none() | message_sizes())
    bits = (message or MessageSize.formula_25(value_bits)).bits(parameters, pivot)
    step_joules = 1e-9 * bits / pivot_steps
    chosen = draw(fleets(step_joules=step_joules, **fleet_options) if fleet is None else fleet)
    return fj.ControlProblem(
        fleet=chosen,
        rounds=draw(rounds_models(len(chosen), pivot, pivot_steps)),
        parameters=parameters,
        value_bits=value_bits,
        message=message,
        sparsity=limits,
        local_steps=steps,
    )


def extreme_problems():
    """One thing at a time at its limit, and all of them together."""
    singleton = st.integers(1, 1000).map(lambda steps: (steps,))
    return st.one_of(
        problems(fleet=extreme_fleets()),
        problems(sparsity=touching_limits()),
        problems(max_devices=1),
        problems(local_steps=singleton),
        problems(fleet=extreme_fleets(), sparsity=touching_limits(), local_steps=singleton),
    )


# ---- changes ----

FLEET_FIELDS = (
    "joules_per_bit",
    "joules_per_step",
    "message_joules",
    "seconds_per_bit",
    "seconds_per_step",
    "message_seconds",
    "battery_joules",
    "names",
)
PROBLEM_FIELDS = ("fleet", "rounds", "parameters", "value_bits", "message", "sparsity", "local_steps", "round_seconds")


def changed_fleet(fleet, **fields):
    """The fleet with some fields replaced."""
    return fj.Fleet(**({name: getattr(fleet, name) for name in FLEET_FIELDS} | fields))


def selected(fleet, devices):
    """The fleet of the given devices, in that order, repeats allowed."""
    fields = {name: getattr(fleet, name) for name in FLEET_FIELDS}
    return fj.Fleet(
        **{name: None if values is None else np.asarray(values)[devices] for name, values in fields.items()}
    )


def changed(problem, **fields):
    """The problem with some fields replaced."""
    return fj.ControlProblem(**({name: getattr(problem, name) for name in PROBLEM_FIELDS} | fields))


def with_costs(problem, **fields):
    """The problem with some costs of its fleet replaced."""
    return changed(problem, fleet=changed_fleet(problem.fleet, **fields))


# ---- recipes ----


@st.composite
def recipes(draw):
    """Recipes that training accepts: a step size, and other options at random that do not contradict each other."""
    optimiser = {"learning_rate": draw(magnitudes(-4, 1))}
    optimiser |= draw(
        st.sampled_from(
            [{}, {"inner": "sgd"}, {"momentum": 0.5}, {"inner": "adamw", "adam_beta2": 0.95, "adam_epsilon": 1e-06}]
        )
    )
    optimiser |= draw(
        st.sampled_from(
            [{}, {"schedule": "cosine"}, {"schedule": "step", "decay_rounds": (3, 70), "decay_factor": 0.3}]
        )
    )
    optimiser |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "outer": st.sampled_from(["none", "momentum", "nesterov", "adam"]),
                "outer_momentum": st.floats(0.0, 0.999),
                "outer_rate": magnitudes(-3, 1),
                "warmup_rounds": st.integers(0, 50),
                "weight_decay": st.floats(0.0, 1e-2),
                "gradient_clip": magnitudes(-3, 3),
                "residual_decay": st.floats(0.0, 1.0),
                "error_feedback": st.booleans(),
                "batch_size": st.none() | st.integers(1, 4096),
                "batch_growth": st.floats(1.0, 1.1),
            },
        )
    )
    message = draw(
        st.sampled_from(
            [{}, {"compressor": "ternary"}, {"compressor": "top-k", "values": "int8"}, {"values": "qsgd", "levels": 7}]
        )
    )
    message |= draw(st.sampled_from([{}, {"downlink_values": "two-bit"}]))
    name = draw(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30))
    return fj.Recipe(name, optimiser, message)
