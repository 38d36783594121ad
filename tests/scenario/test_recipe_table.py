"""[recipe] of a scenario: read, planned with its own law, limits and batch, and refused by name where it is wrong."""

from pathlib import Path

import pytest

import fewjoules as fj
from fewjoules.engine.algorithm.options import TrainingOptions, overridden
from fewjoules.physics.message_size import MessageSize

FLEET = """
[model]
architecture = "softmax"
[limits]
sparsity = {min = 1.0, max = 100.0}
local_steps = {min = 1, max = 20}
[training]
data = "digits"
learning_rate = 0.1
inner = "momentum"
momentum = 0.9
batch_size = 16
[[device]]
count = 3
joules_per_step = 0.001
joules_per_sample = 0.0001
joules_per_bit = 1e-6
"""
ROUNDS = """
[rounds]
kind = "paper"
alpha = 1e-4
beta = 100.0
"""
RECIPE = """
[recipe]
name = "server momentum"
[recipe.optimiser]
learning_rate = 0.2
outer = "nesterov"
outer_momentum = 0.8
batch_size = 4
[recipe.message]
compressor = "ternary"
[recipe.rounds]
kind = "power-law"
tau = 164.3
c = 0.0221
a = 0.568
q = 0.564
intervals = {tau = [151.2, 178.6]}
"""
OWN_LIMITS = """
[recipe.limits]
sparsity = {min = 5.0, max = 50.0}
local_steps = [2, 4]
"""
SIZES = """
[recipe.message_size]
fixed_bits = 100
scale = 0.9
entry_bits = 4.5
[recipe.downlink_message_size]
fixed_bits = 200.0
scale = 1.0
entry_bits = 33.0
"""


def scenario(*parts):
    return fj.Scenario.from_text("".join(parts), "fleet.toml", Path())


def test_a_recipe_is_read():
    recipe = scenario(FLEET, ROUNDS, RECIPE).recipe
    assert recipe == fj.Recipe(
        "server momentum",
        {"learning_rate": 0.2, "outer": "nesterov", "outer_momentum": 0.8, "batch_size": 4},
        {"compressor": "ternary"},
    )


def test_a_scenario_without_a_recipe_has_none():
    plain = scenario(FLEET, ROUNDS)
    assert plain.recipe is None
    with pytest.raises(fj.InvalidInputError, match=r"^fleet.toml: scheme fewest needs \[recipe\], which is missing"):
        plain.recipe_problem()


def test_the_problem_of_a_recipe_has_its_law_and_its_batch():
    found = scenario(FLEET, ROUNDS, RECIPE)
    plain, own = found.problem(), found.recipe_problem()
    assert own.rounds == fj.PowerLawRounds(tau=164.3, c=0.0221, a=0.568, q=0.564)
    assert plain.rounds == fj.PaperRounds(alpha=1e-4, beta=100.0)
    assert plain.fleet.joules_per_step == pytest.approx([0.001 + 16 * 0.0001] * 3)
    assert own.fleet.joules_per_step == pytest.approx([0.001 + 4 * 0.0001] * 3)
    assert own.sparsity == plain.sparsity
    assert own.local_steps == plain.local_steps
    assert found.under_recipe().rounds_intervals.intervals == {"tau": (151.2, 178.6)}
    assert found.rounds_intervals is None


def test_a_recipe_without_a_batch_plans_with_that_of_the_training():
    found = scenario(FLEET, RECIPE.replace("batch_size = 4\n", ""))
    assert found.recipe_problem().fleet.joules_per_step == pytest.approx([0.001 + 16 * 0.0001] * 3)


def test_a_recipe_may_have_limits_of_its_own():
    found = scenario(FLEET, ROUNDS, RECIPE, OWN_LIMITS)
    assert found.recipe_problem().sparsity == (5.0, 50.0)
    assert found.recipe_problem().local_steps == (2, 4)
    assert found.problem().sparsity == (1.0, 100.0)


def test_a_recipe_plans_with_its_own_sizes_of_messages():
    found = scenario(FLEET, RECIPE, SIZES)
    under = found.under_recipe()
    assert under.message_size == MessageSize(fixed_bits=100.0, scale=0.9, entry_bits=4.5)
    assert under.downlink_message_size == MessageSize(fixed_bits=200.0, scale=1.0, entry_bits=33.0)
    assert found.message_size is None
    assert found.recipe_problem().message == under.message_size
    assert scenario(FLEET, RECIPE).under_recipe().message_size is None


def test_all_samples_are_a_word_in_a_file():
    found = scenario(FLEET, RECIPE.replace("batch_size = 4", 'batch_size = "all"'))
    assert found.recipe.optimiser["batch_size"] is None
    with pytest.raises(fj.InvalidInputError, match=r"need training\.batch_size, a number, .*, got 'all'"):
        found.recipe_problem()


def test_a_file_with_a_recipe_needs_no_rounds():
    found = scenario(FLEET, RECIPE)
    assert found.rounds is None
    assert fj.solve(found.recipe_problem()).relative_gap <= 1e-9
    with pytest.raises(fj.InvalidInputError, match=r"^fleet.toml: \[rounds\] is missing; only scheme fewest can be"):
        found.problem()


def test_a_file_with_neither_is_read_and_says_what_finds_them():
    found = scenario(FLEET)
    for problem in (found.problem, found.recipe_problem):
        with pytest.raises(
            fj.InvalidInputError,
            match=r"^fleet.toml: \[rounds\] and \[recipe\] are missing; fewjoules tune finds them$",
        ):
            problem()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "server momentum"\n', "", "recipe.name is missing"),
        ("learning_rate = 0.2\n", "", "recipe.optimiser.learning_rate is missing"),
        ("learning_rate = 0.2", "learning_rate = -1.0", r"recipe.optimiser.learning_rate must be above 0, got -1\.0"),
        (
            "batch_size = 4",
            "batch_size = 0",
            "recipe.optimiser.batch_size must be a whole number from 1 .* 'all', got 0",
        ),
        ("learning_rate = 0.2", "learning_rate = 0.2\nlr = 1", "recipe.optimiser.lr is not a known key; the nearest"),
        (
            'compressor = "ternary"',
            "sparsity = 3",
            "recipe.message.sparsity is not a known key; allowed are compressor",
        ),
        ('compressor = "ternary"', 'compressor = "zip"', "recipe.message.compressor must be .*top-k.*, got 'zip'"),
        (
            'kind = "power-law"',
            'kind = "luck"',
            "recipe.rounds.kind must be 'paper', 'bound' or 'power-law', got 'luck'",
        ),
        ("q = 0.564", "q = 0.564\nz = 1", "recipe.rounds.z is not a known key; allowed are kind, tau"),
        ("[151.2, 178.6]", "[1.0]", r"recipe.rounds.intervals.tau must be two numbers, \[low, high\]"),
        ("[151.2, 178.6]", "[1.0, 2.0]", "recipe.rounds.intervals: the interval of tau must hold tau = 164.3"),
        ('compressor = "ternary"', 'values = "ternary"', "recipe: values = 'ternary' needs compressor = 'ternary'"),
        ("outer_momentum = 0.8", 'schedule = "step"', "recipe: decay_rounds and schedule = 'step' go together"),
        ("[recipe.rounds]", "[recipe.law]", "recipe.law is not a known key; allowed are name, optimiser"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(old, new, message):
    assert old in RECIPE
    with pytest.raises(fj.InvalidInputError, match=f"^fleet.toml: {message}"):
        scenario(FLEET, RECIPE.replace(old, new))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            "sparsity = {min = 5.0, max = 50.0}\nlocal_steps = {min = 4, max = 2}",
            "recipe.limits.local_steps.min must be",
        ),
        ("sparsity = {min = 5.0, max = 50.0}", "recipe.limits.local_steps is missing"),
        (
            "sparsity = {min = 5.0, max = 50.0}\nlocal_steps = [2]\nround_seconds = 9.0",
            "device 'device-1': seconds_per_bit is missing, but recipe.limits.round_seconds = 9 needs it",
        ),
    ],
)
def test_wrong_limits_of_a_recipe_are_refused_by_name(limits, message):
    with pytest.raises(fj.InvalidInputError, match=f"^fleet.toml: {message}"):
        scenario(FLEET, RECIPE, "[recipe.limits]\n", limits)


def test_a_recipe_that_contradicts_what_stays_of_the_training_is_refused():
    with pytest.raises(fj.InvalidInputError, match=r"^fleet.toml: recipe: momentum_state = 'cleared' goes with inner"):
        scenario(
            FLEET.replace('inner = "momentum"', 'inner = "adamw"'),
            RECIPE.replace("outer_momentum = 0.8", 'momentum_state = "cleared"'),
        )


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"learning_rate": 1.0}, {"inner": "momentum", "momentum": 0.5, "learning_rate": 1.0}),
        ({"inner": "sgd"}, {"inner": "sgd", "learning_rate": 0.1}),
        ({"inner": "momentum"}, {"inner": "momentum", "momentum": 0.5, "learning_rate": 0.1}),
        ({"inner": "adamw", "momentum": 0.8}, {"inner": "adamw", "momentum": 0.8, "learning_rate": 0.1}),
    ],
)
def test_constants_of_a_replaced_optimiser_do_not_stay(changes, left):
    assert overridden({"inner": "momentum", "momentum": 0.5, "learning_rate": 0.1}, changes) == left
    TrainingOptions.of(**left, local_steps=1, sparsity=[1.0], rounds=1)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"schedule": "step", "decay_rounds": (3,), "decay_factor": 0.5}, {"schedule": "cosine"}),
        ({"compressor": "ternary"}, {"compressor": "top-k", "values": "int8"}),
        ({"values": "int8", "levels": 3}, {"compressor": "ternary"}),
        ({"outer": "adam", "outer_rate": 0.01}, {"outer": "nesterov"}),
    ],
)
def test_companions_of_a_replaced_option_do_not_stay(options, changes):
    assert overridden(options, changes) == changes
