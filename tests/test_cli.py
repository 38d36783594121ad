"""What the command line promises when the input is good: JSON of a fixed shape, a table, plots, help."""

import itertools
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fewjoules as fj
from fewjoules.cli import app

SCENARIO = """\
version = 1

[model]
parameters = 1000
value_bits = 32

[rounds]
kind = "paper"
alpha = 1e-4
beta = 100.0

[limits]
sparsity = {min = 4.0, max = 100.0}
local_steps = {min = 1, max = 8}

[[device]]
name = "phone"
count = 3
joules_per_bit = 2e-7
message_joules = 1e-4
joules_per_step = 1e-3
seconds_per_bit = 1e-6
message_seconds = 0.01
seconds_per_step = 2e-3

[[device]]
name = "gateway"
joules_per_step = 5e-3
seconds_per_step = 4e-3
[device.radio]
power_watts = 0.5
bandwidth_hertz = 2e5
mean_snr_db = 10.0
fading = "none"
overhead_scale = 1.5
overhead_bits = 640
"""

PLAN_KEYS = {
    "scheme",
    "solver",
    "parameters",
    "local_steps",
    "sparsity",
    "rounds",
    "energy_joules",
    "radio_joules",
    "compute_joules",
    "seconds",
    "lower_bound_joules",
    "relative_gap",
    "downlink_sparsity",
    "operating_points",
    "joules",
    "recipe",
    "participants",
}
SCHEMES = ["flexible", "unified", "greedy", "synchronous", "dense", "fedavg"]

# The fleet of SCENARIO by hand. The gateway sends at R = B log2(1 + snr) with snr = 10 (10 dB).
GATEWAY_RATE = 2e5 * math.log2(11.0)
JOULES_PER_BIT = np.array([2e-7, 2e-7, 2e-7, 0.5 * 1.5 / GATEWAY_RATE])
MESSAGE_JOULES = np.array([1e-4, 1e-4, 1e-4, 0.5 * 640 / GATEWAY_RATE])
JOULES_PER_STEP = np.array([1e-3, 1e-3, 1e-3, 5e-3])
SECONDS_PER_BIT = np.array([1e-6, 1e-6, 1e-6, 1.5 / GATEWAY_RATE])
MESSAGE_SECONDS = np.array([0.01, 0.01, 0.01, 640 / GATEWAY_RATE])
SECONDS_PER_STEP = np.array([2e-3, 2e-3, 2e-3, 4e-3])


def edited(*edits: tuple[str, str]) -> str:
    text = SCENARIO
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def run(*arguments: str | Path) -> str:
    """The standard output of a run that must succeed and say nothing on standard error."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def run_program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fewjoules", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def strict_json(text: str):
    """Parse JSON as the standard has it: NaN and Infinity are refused."""

    def refuse(name: str):
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def plans(*arguments: str | Path) -> list[dict]:
    return strict_json(run("plan", *arguments, "--json"))["plans"]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    return write(tmp_path, SCENARIO)


def write(folder: Path, text: str, name: str = "scenario.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- JSON


def test_json_has_exactly_the_promised_shape(scenario):
    document = strict_json(run("plan", scenario, "--json"))
    assert set(document) == {"version", "plans"}
    assert document["version"] == 5
    (plan,) = document["plans"]
    assert set(plan) == PLAN_KEYS
    assert (plan["scheme"], plan["solver"]) == ("flexible", "pareto")
    assert type(plan["local_steps"]) is int
    numbers = ["rounds", "energy_joules", "radio_joules", "compute_joules", "seconds", "lower_bound_joules"]
    assert all(plan[key] > 0 for key in numbers)


def test_sparsity_has_one_number_a_device_in_file_order_after_expanding_count(scenario):
    (plan,) = plans(scenario)
    assert len(plan["sparsity"]) == 4
    phones, gateway = plan["sparsity"][:3], plan["sparsity"][3]
    assert phones[0] == phones[1] == phones[2]
    assert gateway > phones[0], "the costly radio is compressed more"


def test_scheme_all_returns_the_six_schemes(scenario):
    assert sorted(plan["scheme"] for plan in plans(scenario, "--scheme", "all")) == sorted(SCHEMES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_scheme_alone_is_the_same_plan_as_in_all(scenario, scheme):
    (alone,) = plans(scenario, "--scheme", scheme)
    (among_all,) = [plan for plan in plans(scenario, "--scheme", "all") if plan["scheme"] == scheme]
    assert alone == among_all


def test_each_scheme_leaves_open_what_the_design_says(scenario):
    by_name = {plan["scheme"]: plan for plan in plans(scenario, "--scheme", "all")}
    assert len(set(by_name["unified"]["sparsity"])) == 1
    assert by_name["greedy"]["sparsity"] == [100.0] * 4
    assert by_name["greedy"]["local_steps"] == 1
    assert by_name["synchronous"]["local_steps"] == 1
    assert by_name["dense"]["local_steps"] == 1
    assert by_name["dense"]["sparsity"] == by_name["fedavg"]["sparsity"] == [1.0] * 4
    cheapest = by_name["flexible"]["energy_joules"]
    assert all(cheapest <= plan["energy_joules"] * (1 + 1e-9) for plan in by_name.values())


def test_the_numbers_of_every_plan_are_the_formulas_at_its_sparsity(scenario):
    d, kappa, M = 1000, 33, 4
    for plan in plans(scenario, "--scheme", "all"):
        delta, H = np.array(plan["sparsity"]), plan["local_steps"]
        bits = d / delta * (np.log2(delta) + kappa)  # formula (25)
        rounds = 1e-4 * H * M * np.mean(delta**2) + 100.0 / (math.sqrt(M) * H)
        round_seconds = np.max(SECONDS_PER_BIT * bits + MESSAGE_SECONDS + H * SECONDS_PER_STEP)
        radio_joules = rounds * np.sum(JOULES_PER_BIT * bits + MESSAGE_JOULES)
        compute_joules = rounds * H * np.sum(JOULES_PER_STEP)
        assert plan["rounds"] == pytest.approx(rounds, rel=1e-9)
        assert plan["radio_joules"] == pytest.approx(radio_joules, rel=1e-9)
        assert plan["compute_joules"] == pytest.approx(compute_joules, rel=1e-9)
        assert plan["energy_joules"] == pytest.approx(radio_joules + compute_joules, rel=1e-9)  # (27)
        assert plan["seconds"] == pytest.approx(rounds * round_seconds, rel=1e-9)


def test_the_flexible_plan_is_proved_optimal(scenario):
    (plan,) = plans(scenario)
    assert plan["lower_bound_joules"] <= plan["energy_joules"] * (1 + 1e-12)
    assert abs(plan["relative_gap"]) <= 1e-6


def test_the_gap_is_that_of_the_bound_and_both_are_null_where_nothing_is_proved(scenario):
    for plan in plans(scenario, "--scheme", "all"):
        if plan["lower_bound_joules"] is None:
            assert plan["relative_gap"] is None
        else:
            gap = 1.0 - plan["lower_bound_joules"] / plan["energy_joules"]
            assert plan["relative_gap"] == pytest.approx(gap, abs=1e-12)


def test_seconds_are_null_when_a_time_is_unknown(tmp_path):
    (plan,) = plans(write(tmp_path, edited(("seconds_per_step = 2e-3\n", ""))))
    assert plan["seconds"] is None


def test_the_papers_algorithm_never_goes_below_the_bound_that_pareto_proves(scenario):
    (pareto,), (benders,) = plans(scenario), plans(scenario, "--solver", "benders")
    assert (pareto["solver"], benders["solver"]) == ("pareto", "benders")
    assert benders["energy_joules"] >= pareto["lower_bound_joules"] * (1 - 1e-12)
    assert len(benders["sparsity"]) == 4


def test_planning_twice_prints_the_same_bytes(scenario):
    assert run("plan", scenario, "--scheme", "all", "--json") == run("plan", scenario, "--scheme", "all", "--json")


# --- The file and the Python API build the same problem


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_command_prints_the_very_numbers_of_the_python_api(scenario, scheme):
    plan = fj.schemes.SCHEMES[scheme](fj.Scenario.from_toml(scenario).problem())
    (printed,) = plans(scenario, "--scheme", scheme)
    assert printed == {
        "scheme": scheme,
        "solver": plan.solver,
        "parameters": plan.parameters,
        "local_steps": plan.local_steps,
        "sparsity": plan.sparsity.tolist(),
        "rounds": plan.rounds,
        "energy_joules": plan.energy_joules,
        "radio_joules": plan.radio_joules,
        "compute_joules": plan.compute_joules,
        "seconds": plan.seconds,
        "lower_bound_joules": plan.lower_bound_joules,
        "relative_gap": plan.relative_gap,
        "downlink_sparsity": plan.downlink_sparsity,
        "operating_points": plan.operating_points,
        "joules": plan.joules,
        "recipe": None,
        "participants": plan.participants,
    }
    assert plan.participants == len(plan.sparsity)


def test_solve_gives_the_plan_of_the_default_scheme(scenario):
    plan = fj.solve(fj.Scenario.from_toml(scenario).problem())
    (printed,) = plans(scenario)
    assert printed["energy_joules"] == plan.energy_joules
    assert printed["sparsity"] == plan.sparsity.tolist()


def test_a_scenario_is_the_problem_that_one_would_write_by_hand(scenario):
    by_hand = fj.ControlProblem(
        fleet=fj.Fleet(
            joules_per_bit=JOULES_PER_BIT,
            joules_per_step=JOULES_PER_STEP,
            message_joules=MESSAGE_JOULES,
            seconds_per_bit=SECONDS_PER_BIT,
            seconds_per_step=SECONDS_PER_STEP,
            message_seconds=MESSAGE_SECONDS,
        ),
        rounds=fj.PaperRounds(alpha=1e-4, beta=100.0),
        parameters=1000,
        value_bits=32,
        sparsity=(4.0, 100.0),
        local_steps=range(1, 9),
    )
    (printed,) = plans(scenario)
    expected = fj.solve(by_hand)
    assert printed["local_steps"] == expected.local_steps
    assert printed["sparsity"] == pytest.approx(expected.sparsity.tolist(), rel=1e-9)
    assert printed["energy_joules"] == pytest.approx(expected.energy_joules, rel=1e-9)
    assert printed["seconds"] == pytest.approx(expected.seconds, rel=1e-9)


def test_a_path_may_be_a_string(scenario):
    assert len(fj.Scenario.from_toml(str(scenario)).problem().fleet) == 4


def test_a_refused_scenario_raises_an_error_of_the_package_in_python_too(tmp_path):
    path = write(tmp_path, edited(("count = 3", "count = 0")))
    with pytest.raises(fj.InvalidInputError, match="count"):
        fj.Scenario.from_toml(path)


@pytest.mark.parametrize(
    "edit",
    [
        ("version = 1\n", ""),
        ("value_bits = 32\n", ""),
        ("{min = 1, max = 8}", "[8, 1, 7, 2, 6, 3, 5, 4]"),
        ("{min = 1, max = 8}", "[1, 2, 3, 4, 5, 6, 7, 8, 8]"),
        ("[model]", "[training]\nseed = 0\n\n[model]"),
        ("alpha = 1e-4", "alpha = 0.0001"),
        ("beta = 100.0", "beta = 100"),
        ("[model]", "# a comment\n\n[model]"),
    ],
    ids=["no version", "no value_bits", "shuffled", "repeated", "training", "decimal", "integer", "comment"],
)
def test_other_ways_to_write_the_same_scenario_give_the_same_plan(scenario, tmp_path, edit):
    assert plans(write(tmp_path, edited(edit), "other.toml")) == plans(scenario)


def test_local_steps_as_a_list_allow_these_and_no_other(tmp_path):
    (plan,) = plans(write(tmp_path, edited(("{min = 1, max = 8}", "[3]"))))
    assert plan["local_steps"] == 3


def test_synchronous_takes_one_local_step_even_if_not_in_the_limits(tmp_path):
    path = write(tmp_path, edited(("{min = 1, max = 8}", "{min = 4, max = 8}")))
    assert plans(path, "--scheme", "synchronous")[0]["local_steps"] == 1


def test_a_gpu_table_costs_watts_times_seconds_of_a_step(tmp_path):
    gpu = """[device.gpu]
static_watts = 10.0
memory_watts_per_hertz = 1e-9
core_watts_per_volt2_hertz = 1e-8
static_seconds = 1e-3
memory_cycles = 2e6
core_cycles = 3e6
core_volts = 0.9
core_hertz = 1.5e9
memory_hertz = 2e9
"""
    # P = 10 + 1e-9 * 2e9 + 1e-8 * 0.81 * 1.5e9 = 24.15 W, T = 1e-3 + 2e6/2e9 + 3e6/1.5e9 = 4e-3 s
    costs = "joules_per_step = 5e-3\nseconds_per_step = 4e-3\n"
    with_gpu = edited((costs, ""), ("[device.radio]", gpu + "[device.radio]"))
    by_hand = edited((costs, "joules_per_step = 96.6e-3\nseconds_per_step = 4e-3\n"))
    assert_same_plan(write(tmp_path, with_gpu, "gpu.toml"), write(tmp_path, by_hand, "hand.toml"))


def assert_same_plan(one: Path, other: Path) -> None:
    (a,), (b,) = plans(one), plans(other)
    assert a["local_steps"] == b["local_steps"]
    assert a["sparsity"] == pytest.approx(b["sparsity"], rel=1e-7)
    for key in ["rounds", "energy_joules", "radio_joules", "compute_joules", "seconds"]:
        assert a[key] == pytest.approx(b[key], rel=1e-9)


# --- Channel traces


def gateway_sending_at(rate: float) -> str:
    """SCENARIO with the gateway's radio replaced by what it costs at a rate in bits per second."""
    costs = {
        "joules_per_bit": 0.5 * 1.5 / rate,
        "message_joules": 0.5 * 640 / rate,
        "seconds_per_bit": 1.5 / rate,
        "message_seconds": 640 / rate,
    }
    text = SCENARIO[: SCENARIO.index("[device.radio]")]
    return text + "".join(f"{key} = {value!r}\n" for key, value in costs.items())


def test_a_trace_of_gains_is_averaged_in_capacity_and_found_beside_the_scenario(tmp_path):
    gains = np.array([0.25, 0.5, 1.0, 2.25])  # mean 1
    write(tmp_path, "gain\n" + "\n".join(map(str, gains)) + "\n", "channel.csv")
    trace = edited(('fading = "none"', 'fading = "trace"\ntrace = "channel.csv"'))
    rate = 2e5 * np.mean(np.log2(1.0 + 10.0 * gains))
    by_hand = gateway_sending_at(float(rate))
    assert_same_plan(write(tmp_path, trace, "trace.toml"), write(tmp_path, by_hand, "hand.toml"))


def test_a_trace_in_a_folder_below_is_relative_to_the_scenario(tmp_path):
    (tmp_path / "measured").mkdir()
    write(tmp_path / "measured", "gain\n1.0\n1.0\n", "channel.csv")
    trace = edited(('fading = "none"', 'fading = "trace"\ntrace = "measured/channel.csv"'))
    assert_same_plan(write(tmp_path, trace, "trace.toml"), write(tmp_path, SCENARIO, "none.toml"))


def test_a_trace_of_snr_is_absolute(tmp_path):
    write(tmp_path, "time,snr_db\n0,5.0\n1,15.0\n", "channel.csv")
    edits = [("mean_snr_db = 10.0\n", ""), ('fading = "none"', 'fading = "trace"\ntrace = "channel.csv"')]
    rate = 2e5 * (math.log2(1.0 + 10**0.5) + math.log2(1.0 + 10**1.5)) / 2
    by_hand = gateway_sending_at(rate)
    assert_same_plan(write(tmp_path, edited(*edits), "trace.toml"), write(tmp_path, by_hand, "hand.toml"))


@pytest.mark.parametrize(
    "fading",
    ['"rayleigh"', '"rician"\nrician_k = 3.0', '"nakagami"\nnakagami_m = 2.0'],
    ids=["rayleigh", "rician", "nakagami"],
)
def test_fading_costs_capacity(tmp_path, scenario, fading):
    faded = write(tmp_path, edited(('"none"', fading)), "faded.toml")
    assert plans(faded)[0]["energy_joules"] > plans(scenario)[0]["energy_joules"]


# --- The table


def test_the_table_shows_local_steps_rounds_joules_and_the_gap(scenario):
    (plan,) = plans(scenario)
    text = run("plan", scenario)
    assert re.search(r"\bH\b|local[ _]steps", text)
    assert re.search(rf"\b{plan['local_steps']}\b", text)
    for word in ["flexible", "rounds", "gap"]:
        assert word in text.lower()
    assert re.search(r"joules|\bm?J\b", text)


def test_the_table_of_all_schemes_names_each_of_them(scenario):
    text = run("plan", scenario, "--scheme", "all")
    assert all(scheme in text for scheme in SCHEMES)


def test_the_table_shows_the_sparsity_of_each_kind_of_device_by_name(scenario):
    text = run("plan", scenario)
    assert "phone" in text
    assert "gateway" in text


@pytest.mark.parametrize("name", ["[red]phone", "phone[/red]", "phone [3]"])
def test_square_brackets_in_a_device_name_are_printed_not_read_as_markup(tmp_path, name):
    assert name in run("plan", write(tmp_path, edited(('"phone"', f'"{name}"'))))


def test_the_table_holds_no_colour_codes_when_it_is_not_a_terminal(scenario):
    done = run_program("plan", scenario)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


INTERVALS = "beta = 100.0\nintervals = {alpha = [5e-5, 2e-4], beta = [80.0, 120.0]}"


def last_sentence(*arguments: str | Path) -> str:
    return " ".join(run("plan", *arguments).split("\n\n")[-1].split())


def test_the_plan_says_what_is_at_its_limit(tmp_path):
    text = last_sentence(
        write(tmp_path, edited(("max = 8", "max = 3"), ("max = 100.0", "max = 5.0"))), "--scheme", "all"
    )
    assert "flexible, unified, fedavg: H = 3 is at its upper limit." in text
    assert "flexible, unified, synchronous: all 4 devices are at max sparsity 5." in text


def test_without_intervals_the_joules_are_as_good_as_the_constants(scenario):
    assert last_sentence(scenario).endswith(
        "The joules are as good as the constants of the rounds law, which have no intervals here."
    )


def test_with_intervals_the_plan_shows_a_band_of_joules_and_what_would_win(tmp_path):
    path = write(tmp_path, edited(("beta = 100.0", INTERVALS)))
    (plan,) = plans(path)
    found = re.search(
        r"flexible costs (\S+) to (\S+) J; somewhere in them other plans cost less: (.*)", last_sentence(path)
    )
    assert found is not None
    # K is linear in alpha and beta, so the ends are those of the formula
    delta, H = np.array(plan["sparsity"]), plan["local_steps"]
    for text, alpha, beta in ((found[1], 5e-5, 80.0), (found[2], 2e-4, 120.0)):
        rounds = alpha * H * np.sum(delta**2) + beta / (2 * H)
        assert float(text) == pytest.approx(plan["energy_joules"] * rounds / plan["rounds"], rel=1e-3)
    assert re.fullmatch(r"the best plan there \(H = \d+, sparsity .*\) by up to [\d.]+ %\.", found[3])


def test_intervals_change_no_plan(tmp_path, scenario):
    assert plans(write(tmp_path, edited(("beta = 100.0", INTERVALS)), "with.toml")) == plans(scenario)


def test_a_law_that_is_not_identified_gets_no_band(tmp_path):
    intervals = "beta = 100.0\nintervals = {alpha = [1e-6, 1e-2], beta = [80.0, 120.0]}\ncorrelations = [-0.5]"
    assert last_sentence(write(tmp_path, edited(("beta = 100.0", intervals)))).endswith(
        "The joules may be far off: of the rounds law alpha is not identified (interval 1e-06 to 0.01)."
    )


@pytest.mark.parametrize("scheme", ["flexible", "all"])
def test_plans_of_benders_stand_beside_the_optimum(tmp_path, scheme):
    path = write(tmp_path, edited(("beta = 100.0", "beta = 3000.0"), ("max = 8", "max = 50")))
    (optimum,), (benders,) = plans(path), plans(path, "--solver", "benders")
    ratio = benders["energy_joules"] / optimum["energy_joules"]
    assert ratio > 1.0005, "the paper's algorithm misses the optimum here"
    text = run("plan", path, "--solver", "benders", "--scheme", scheme)
    (flexible,) = re.findall(r"(?m)^flexible +\d.* (\S+)$", text)
    (best,) = re.findall(r"(?m)^optimum +(\d+) .* (\S+)$", text)
    assert "x optimum" in text
    assert float(flexible) == pytest.approx(ratio, abs=6e-4)
    assert best == (str(optimum["local_steps"]), "1.000")


# --- Plots


@pytest.mark.parametrize(("extension", "magic"), [("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF-")])
def test_a_plot_is_written_in_the_format_of_its_extension(scenario, tmp_path, extension, magic):
    figure = tmp_path / f"out.{extension}"
    run("plan", scenario, "--plot", figure)
    assert figure.read_bytes().startswith(magic)
    assert sorted(p.name for p in tmp_path.iterdir()) == [figure.name, "scenario.toml"]


def test_with_a_plot_standard_output_still_holds_the_json_alone(scenario, tmp_path):
    (plan,) = plans(scenario, "--plot", tmp_path / "out.png")
    assert plan["scheme"] == "flexible"
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_all_schemes_can_be_plotted(scenario, tmp_path):
    run("plan", scenario, "--scheme", "all", "--plot", tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_a_plan_that_fails_leaves_an_older_plot_as_it_was_and_nothing_half_written(tmp_path):
    figure = tmp_path / "out.png"
    figure.write_bytes(b"an older plot")
    path = write(tmp_path, edited(("count = 3", "count = 3\nbattery_joules = 1e-9")))
    result = CliRunner().invoke(app, ["plan", str(path), "--plot", str(figure)])
    assert result.exit_code == 2
    assert figure.read_bytes() == b"an older plot"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.png", "scenario.toml"]


# --- Around the plan


def test_without_a_scenario_the_embedded_one_is_planned():
    (plan,) = plans()
    assert len(plan["sparsity"]) == 12
    assert plan["energy_joules"] > 0


def test_help_shows_an_example():
    text = run("plan", "--help")
    assert re.search(r"fewjoules plan \S+\.toml", text)
    assert all(option in text for option in ["--scheme", "--solver", "--json", "--plot"])


def test_help_of_the_program_lists_its_commands():
    text = run("--help")
    assert "plan" in text
    assert "calibrate" in text


def test_the_program_tells_its_version():
    done = run_program("--version")
    assert done.returncode == 0
    assert fj.__version__ in done.stdout


def test_sparsity_above_the_parameters_is_lowered_with_a_warning_that_leaves_the_json_alone(tmp_path):
    path = write(tmp_path, edited(("max = 100.0", "max = 54321.0")))
    done = run_program("plan", path, "--scheme", "all", "--json")
    assert done.returncode == 0
    by_name = {plan["scheme"]: plan for plan in strict_json(done.stdout)["plans"]}
    assert by_name["greedy"]["sparsity"] == [1000.0] * 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: ")
    assert all(part in line.replace(",", "") for part in ["sparsity", "54321", "1000"])


def test_a_fleet_of_one_device_can_be_planned(tmp_path):
    text = SCENARIO[: SCENARIO.rindex("[[device]]")].replace("count = 3\n", "")
    (plan,) = plans(write(tmp_path, text))
    assert len(plan["sparsity"]) == 1


def test_a_deadline_that_binds_is_kept_by_every_device(tmp_path, scenario):
    (free,) = plans(scenario)
    deadline = 0.7 * free["seconds"] / free["rounds"]
    path = write(tmp_path, edited(("[limits]", f"[limits]\nround_seconds = {deadline!r}")), "tight.toml")
    (tight,) = plans(path)
    assert tight["seconds"] / tight["rounds"] <= deadline * (1 + 1e-9)
    assert tight["energy_joules"] >= free["energy_joules"] * (1 - 1e-9)


# --- Calibration


def test_calibrate_gpu_recovers_the_gpu_that_was_measured(tmp_path):
    lines = ["core_volts,core_hertz,memory_hertz,power_watts,step_seconds"]
    for volts, core, memory in [
        (0.8, 6e8, 1e9),
        (0.9, 9e8, 1.6e9),
        (1.0, 1.2e9, 1.2e9),
        (1.1, 1.5e9, 2e9),
        (0.8, 7e8, 2.2e9),
    ]:
        power_watts = 5.0 + 1e-9 * memory + 2e-8 * volts**2 * core
        step_seconds = 0.01 + 2e6 / memory + 1e7 / core
        lines.append(f"{volts},{core},{memory},{power_watts!r},{step_seconds!r}")
    text = run("calibrate", "gpu", write(tmp_path, "\n".join(lines), "gpu.csv"))
    expected = {
        "static_watts": 5.0,
        "memory_watts_per_hertz": 1e-9,
        "core_watts_per_volt2_hertz": 2e-8,
        "static_seconds": 0.01,
        "memory_cycles": 2e6,
        "core_cycles": 1e7,
    }
    assert {key: printed_number(text, key) for key in expected} == pytest.approx(expected, rel=1e-2)


def test_calibrate_rounds_recovers_both_models_from_runs_that_follow_them(tmp_path):
    cells = [(5, 1), (5, 4), (20, 1), (20, 4), (50, 2), (50, 8)]
    # K = alpha H M delta^2 + beta / (sqrt(M) H) on M = 4 devices is the power law tau/H (1 + c H^2 delta^2)
    rows = [f"{delta},{H},{1e-3 * H * 4 * delta**2 + 300.0 / (2 * H)!r}" for delta, H in cells]
    path = write(tmp_path, "\n".join(["sparsity,local_steps,rounds", *rows]), "pilot.csv")
    paper = run("calibrate", "rounds", path, "--kind", "paper", "--devices", "4")
    assert printed_number(paper, "alpha") == pytest.approx(1e-3, rel=1e-2)
    assert printed_number(paper, "beta") == pytest.approx(300.0, rel=1e-2)
    power_law = run("calibrate", "rounds", path, "--kind", "power-law")
    expected = {"tau": 150.0, "c": 4e-3 / 150.0, "a": 2.0, "q": 2.0}
    assert {key: printed_number(power_law, key) for key in expected} == pytest.approx(expected, rel=1e-2)


POOR_PILOTS = "sparsity,local_steps,rounds\n1,1,1020\n10,1,1086\n100,1,1310\n500,1,1800\n1000,1,2241\n5,2,527\n"


def test_calibrate_rounds_says_first_which_constant_is_not_identified_and_which_run_to_add(tmp_path):
    path = write(tmp_path, POOR_PILOTS, "pilot.csv")
    first, *table = run("calibrate", "rounds", path).splitlines()
    assert first == "# a is not identified by these runs (interval -1.15 to 1.1); add a run at H = 20, sparsity 1000"
    assert tomllib.loads("\n".join(table))["rounds"]["kind"] == "power-law"
    limited = run("calibrate", "rounds", path, "--max-local-steps", "8", "--max-sparsity", "300")
    assert limited.splitlines()[0].endswith("add a run at H = 8, sparsity 300")


@pytest.mark.parametrize("kind", ["power-law", "paper"])
def test_what_calibrate_rounds_prints_is_a_table_that_plan_reads(tmp_path, kind):
    pilots = Path(__file__).parents[1] / "examples" / "pilot-runs-digits.csv"
    table = run("calibrate", "rounds", pilots, "--kind", kind)
    text = SCENARIO.replace('[rounds]\nkind = "paper"\nalpha = 1e-4\nbeta = 100.0\n', table)
    chosen = fj.Scenario.from_toml(write(tmp_path, text))
    assert chosen.rounds_intervals is not None
    assert len(chosen.rounds_intervals.intervals) == (4 if kind == "power-law" else 2)
    assert chosen.rounds_intervals.correlations is not None
    assert "Within the intervals" in run("plan", tmp_path / "scenario.toml")


def test_even_a_poor_fit_prints_a_table_that_plan_reads(tmp_path):
    rounds = [2089, 2147, 2173, 996, 1083, 1110]  # the intervals of tau and c reach from 0 to infinity
    rows = [f"{d},{h},{k}" for (h, d), k in zip(itertools.product([1, 2], [1, 10, 50]), rounds, strict=True)]
    table = run("calibrate", "rounds", write(tmp_path, "\n".join(["sparsity,local_steps,rounds", *rows]), "p.csv"))
    text = SCENARIO.replace('[rounds]\nkind = "paper"\nalpha = 1e-4\nbeta = 100.0\n', table)
    assert "The joules may be far off" in run("plan", write(tmp_path, text))


@pytest.mark.parametrize("option", ["--max-local-steps", "--max-sparsity"])
def test_calibrate_rounds_refuses_limits_below_one(tmp_path, option):
    result = CliRunner().invoke(app, ["calibrate", "rounds", str(write(tmp_path, POOR_PILOTS)), option, "0"])
    assert result.exit_code == 2
    assert f"error: {option} must be" in result.stderr


def test_calibrate_rounds_gives_no_advice_where_the_runs_identify_the_law():
    assert "not identified" not in run("calibrate", "rounds", Path(__file__).parents[1] / "examples" / "pilot-runs.csv")


def printed_number(text: str, key: str) -> float:
    found = re.search(rf"(?m)^\s*{key}\s*=\s*([-+.\deE]+)", text)
    assert found, f"no line `{key} = ...` in {text!r}"
    return float(found[1])
