"""Whatever is wrong with the input, the command line says so in one line and exits with 2.

Every case starts from one good scenario (or CSV) and spoils it in one place. The line must name what is
wrong: the key, the device or the file, and where it helps the value received or the range allowed.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

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
local_steps = {min = 1, max = 5}

[[device]]
name = "phone"
count = 2
joules_per_bit = 2e-7
joules_per_step = 1e-3

[[device]]
name = "laptop"
[device.radio]
power_watts = 0.2
bandwidth_hertz = 1e6
mean_snr_db = 10.0
fading = "rayleigh"
overhead_scale = 1.0
overhead_bits = 0
[device.gpu]
static_watts = 10.0
memory_watts_per_hertz = 1e-9
core_watts_per_volt2_hertz = 1e-8
static_seconds = 1e-3
memory_cycles = 1e6
core_cycles = 1e7
core_volts = 1.0
core_hertz = 1e9
memory_hertz = 1e9
"""

PHONE_COSTS = "joules_per_bit = 2e-7\njoules_per_step = 1e-3"
LAPTOP_RADIO = SCENARIO[SCENARIO.index("[device.radio]") : SCENARIO.index("[device.gpu]")]
LAPTOP_GPU = SCENARIO[SCENARIO.index("[device.gpu]") :]


class Refusal(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: str | Path) -> Refusal:
    """Run the command line in this process; an exception that escapes it fails the test."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Refusal(result.exit_code, result.stdout, result.stderr)


def run_program(*arguments: str | Path, memory_bytes: int = 0) -> Refusal:
    """Run `python -m fewjoules` in a process of its own, which may be kept from taking more memory."""
    limit = f"resource.setrlimit(resource.RLIMIT_AS, ({memory_bytes}, {memory_bytes})); " if memory_bytes else ""
    start = f"import resource, runpy; {limit}runpy.run_module('fewjoules', run_name='__main__', alter_sys=True)"
    how = ["-c", start] if memory_bytes else ["-m", "fewjoules"]
    command = [sys.executable, *how, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return Refusal(done.returncode, done.stdout, done.stderr)


def assert_refused(refusal: Refusal, *says: str, longest: int = 600) -> None:
    assert refusal.exit_code == 2, refusal
    assert refusal.stdout == ""
    lines = refusal.stderr.splitlines()
    assert len(lines) == 1, refusal.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in lines[0]
    assert len(lines[0]) < longest, "a line that a person can read"
    for part in says:
        assert part.lower() in lines[0].lower(), f"{part!r} is missing from {lines[0]!r}"


def write(folder: Path, text: str | bytes, name: str = "scenario.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def spoiled(old: str, new: str, text: str = SCENARIO) -> str:
    assert old in text, f"the good scenario no longer holds {old!r}"
    return text.replace(old, new, 1)


def bad(title: str, old: str, new: str, *says: str):
    """A case: the good text with `old` replaced by `new`; `says` must be in the message."""
    return pytest.param(old, new, says, id=title)


def test_the_scenario_that_every_case_spoils_is_good(tmp_path):
    assert run("plan", write(tmp_path, SCENARIO)).exit_code == 0


# --- The scenario file

KEYS = [
    bad("unknown key at the top", "version = 1", "version = 1\ncolour = 3", "colour"),
    bad("unknown table", "[model]", "[weather]\nrain = 1\n[model]", "weather"),
    bad("unknown key in model", "[model]", "[model]\ncolour = 3", "model", "colour"),
    bad("unknown key in rounds", "[rounds]", "[rounds]\ncolour = 3", "rounds", "colour"),
    bad(
        "an interval beside its constant",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = [2e-4, 3e-4]}",
        "rounds.intervals",
        "alpha",
        "0.0002",
    ),
    bad(
        "an interval of one number",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = [1e-4]}",
        "rounds.intervals.alpha",
        "two numbers",
    ),
    bad(
        "an interval of three numbers",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = [1e-4, 1e-4, 1e-4]}",
        "rounds.intervals.alpha",
        "two numbers",
    ),
    bad(
        "an interval that is no list",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = 1e-4}",
        "rounds.intervals.alpha",
        "two numbers",
    ),
    bad(
        "an interval of an unknown constant",
        "beta = 100.0",
        "beta = 100.0\nintervals = {gamma = [1.0, 2.0]}",
        "rounds.intervals.gamma",
        "alpha, beta",
    ),
    bad(
        "an interval below the range",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = [-1.0, 1.0]}",
        "rounds.intervals",
        "alpha must be",
        "-1.0",
    ),
    bad(
        "correlations without intervals",
        "beta = 100.0",
        "beta = 100.0\ncorrelations = [0.5]",
        "rounds.intervals",
        "correlations need intervals",
    ),
    bad(
        "a correlation above 1",
        "beta = 100.0",
        "beta = 100.0\nintervals = {alpha = [0.0, 1.0], beta = [1.0, 200.0]}\ncorrelations = [2.0]",
        "correlations must be",
        "2.0",
    ),
    bad("unknown key in limits", "[limits]", "[limits]\ncolour = 3", "limits", "colour"),
    bad("unknown key in sparsity", "max = 100.0", "max = 100.0, mid = 5", "sparsity", "mid"),
    bad("unknown key in local_steps", "max = 5", "max = 5, step = 2", "local_steps", "step"),
    bad("unknown key in a device", "count = 2", "colour = 3", "phone", "colour"),
    bad("unknown key in a radio", "[device.radio]", "[device.radio]\ncolour = 3", "laptop", "colour"),
    bad("unknown key in a gpu", "[device.gpu]", "[device.gpu]\ncolour = 3", "laptop", "colour"),
    bad("misspelt key", "joules_per_step =", "joules_per_stp =", "phone", "joules_per_stp"),
    bad("no model", "[model]\nparameters = 1000\nvalue_bits = 32\n", "", "model"),
    bad("no parameters", "parameters = 1000\n", "", "parameters"),
    bad("no rounds", '[rounds]\nkind = "paper"\nalpha = 1e-4\nbeta = 100.0\n', "", "rounds"),
    bad("no sparsity", "sparsity = {min = 4.0, max = 100.0}\n", "", "sparsity"),
    bad("no sparsity min", "min = 4.0, ", "", "sparsity", "min"),
    bad("no sparsity max", ", max = 100.0", "", "sparsity", "max"),
    bad("no local_steps", "local_steps = {min = 1, max = 5}\n", "", "local_steps"),
    bad("no local_steps max", ", max = 5", "", "local_steps", "max"),
    bad("a radio without its power", "power_watts = 0.2\n", "", "laptop", "power_watts"),
    bad("a radio without its bandwidth", "bandwidth_hertz = 1e6\n", "", "laptop", "bandwidth_hertz"),
    bad("a radio without its SNR", "mean_snr_db = 10.0\n", "", "laptop", "mean_snr_db"),
    bad("a gpu without its voltage", "core_volts = 1.0\n", "", "laptop", "core_volts"),
    bad("a gpu without its cycles", "core_cycles = 1e7\n", "", "laptop", "core_cycles"),
    bad("a number as the model", "[model]\nparameters = 1000\nvalue_bits = 32", "model = 5", "model"),
    bad("a number as a radio", LAPTOP_RADIO, "radio = 5\n", "laptop", "radio"),
]

RADIO, GPU = ("laptop", "joules_per_bit", "radio"), ("laptop", "joules_per_step", "gpu")
COST_FORMS = [
    bad("both forms of the radio cost", LAPTOP_RADIO, "joules_per_bit = 1e-7\n" + LAPTOP_RADIO, *RADIO),
    bad("neither form of the radio cost", LAPTOP_RADIO, "", *RADIO),
    bad("both forms of the step cost", LAPTOP_RADIO, "joules_per_step = 1e-3\n" + LAPTOP_RADIO, *GPU),
    bad("neither form of the step cost", LAPTOP_GPU, "", *GPU),
    bad("a step cost alone", "joules_per_bit = 2e-7\n", "", "phone", "joules_per_bit", "radio"),
    bad("a radio cost alone", "joules_per_step = 1e-3\n", "", "phone", "joules_per_step", "gpu"),
    bad("no cost at all", PHONE_COSTS, "", "phone", "joules_per_"),
    bad(
        "message_joules beside a radio",
        LAPTOP_RADIO,
        "message_joules = 1.0\n" + LAPTOP_RADIO,
        "laptop",
        "message_joules",
    ),
]

# Owner, key and the values that it must refuse; the message must hold all three.
WRONG_VALUES = [
    ("", "version", '2 0 "one" true'),
    ("", "parameters", '0 -7 1000.5 nan inf "many" true'),
    ("", "value_bits", '1 0 -8 16.5 nan "float32" true'),
    ("", "alpha", 'nan inf -0.5 "small" true'),
    ("", "beta", 'nan -inf -3 "large" false'),
    ("", "round_seconds", '0 -30 nan "soon" true'),
    ("phone", "count", '0 -4 1.5 nan "two" true'),
    ("phone", "joules_per_bit", 'nan inf -2.5 "2e-7" false'),
    ("phone", "joules_per_step", 'nan inf -2.5 "1e-3" true'),
    ("phone", "message_joules", 'nan inf -0.5 "none" true'),
    ("phone", "seconds_per_bit", 'nan inf -0.5 "fast" true'),
    ("phone", "seconds_per_step", 'nan inf -0.5 "fast" true'),
    ("phone", "message_seconds", 'nan inf -0.5 "fast" true'),
    ("phone", "battery_joules", '0 -5 nan "full" true'),
    ("laptop", "power_watts", '-0.2 nan inf "high" true'),
    ("laptop", "bandwidth_hertz", '0 -7 nan inf "wide" true'),
    ("laptop", "mean_snr_db", 'nan inf -inf "loud" true'),
    ("laptop", "overhead_scale", '-1.5 nan inf "double" true'),
    ("laptop", "overhead_bits", '-64 nan inf "few" true'),
    ("laptop", "fading", '"fog" 3 true'),
    ("laptop", "static_watts", '-5 nan inf "ten" true'),
    ("laptop", "memory_watts_per_hertz", "-5 nan"),
    ("laptop", "core_watts_per_volt2_hertz", "-5 nan"),
    ("laptop", "static_seconds", "-5 nan"),
    ("laptop", "memory_cycles", "-5 nan"),
    ("laptop", "core_cycles", "-5 nan"),
    ("laptop", "core_volts", "-5 nan"),
    ("laptop", "core_hertz", "0 -5 nan"),
    ("laptop", "memory_hertz", "0 -5 nan"),
]


def with_value(key: str, value: str) -> str:
    """The good scenario with one value changed; a key that it lacks goes to the phone or the limits."""
    text, changes = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", SCENARIO, count=1)
    home = "[limits]" if key == "round_seconds" else "count = 2"
    return text if changes else spoiled(home, f"{home}\n{key} = {value}")


SPARSITIES = [
    ("{min = 0.5, max = 100.0}", "min", "0.5", "1"),
    ("{min = 0, max = 100.0}", "min", "0"),
    ("{min = -4.0, max = 100.0}", "min", "-4"),
    ("{min = 4.0, max = 2.5}", "4", "2.5"),
    ("{min = nan, max = 100.0}", "nan"),
    ("{min = 4.0, max = nan}", "nan"),
    ("{min = inf, max = inf}", "inf"),
    ("{min = 2345.0, max = 3000.0}", "2345", "1000"),
    ('{min = "four", max = 100.0}', "min", "four"),
    ("{min = true, max = 100.0}", "min", "true"),
    ("7",),
]

LOCAL_STEPS = [
    ("{min = 0, max = 5}", "min", "0"),
    ("{min = -3, max = 5}", "min", "-3"),
    ("{min = 1.5, max = 5}", "min", "1.5"),
    ("{min = true, max = 5}", "min", "true"),
    ('{min = "one", max = 5}', "min", "one"),
    ("{min = 7, max = 3}", "7", "3"),
    ("{min = 1, max = inf}", "max", "inf"),
    ("[]",),
    ("[1, 0, 2]", "0"),
    ("[1, -6]", "-6"),
    ("[1, 2.5]", "2.5"),
    ("[1, nan]", "nan"),
    ("[2, true]", "true"),
    ('[1, "two"]', "two"),
    ("5",),
]

BOUND = "smoothness = 1\nsigma = 1\ngradient_bound = 1\ninitial_gap = 1\nbatch = 8\nepsilon = 0.1\n"
ROUNDS = [
    ('kind = "magic"\nalpha = 1\nbeta = 1', "kind", "magic", "power-law"),
    ("kind = 3\nalpha = 1\nbeta = 1", "kind", "3"),
    ("alpha = 1\nbeta = 1", "kind"),
    ('kind = "paper"\nbeta = 1', "alpha"),
    ('kind = "paper"\nalpha = 1', "beta"),
    ('kind = "paper"\nalpha = 1\nbeta = 1\ntau = 5', "tau"),
    ('kind = "paper"\nalpha = 1\nbeta = 1\nsmoothness = 5', "smoothness"),
    ('kind = "bound"\nalpha = 1\nbeta = 1',),
    ('kind = "power-law"\ntau = 9\nc = 1\na = 1\nq = 2\nalpha = 1', "alpha"),
    ('kind = "power-law"\ntau = 9\nc = 1\na = 1', "q"),
    ('kind = "power-law"\nc = 1\na = 1\nq = 2', "tau"),
    ('kind = "power-law"\ntau = 9\nc = 1\na = 1\nq = 0', "q", "0"),
    ('kind = "power-law"\ntau = 9\nc = 1\na = 1\nq = 5e-324', "q", "at least 1e-100 and at most 16", "5e-324"),
    ('kind = "power-law"\ntau = -7\nc = 1\na = 1\nq = 2', "tau", "-7"),
    ('kind = "power-law"\ntau = 9\nc = nan\na = 1\nq = 2', "c", "nan"),
    ('kind = "bound"\n' + BOUND.replace("sigma = 1\n", ""), "sigma"),
    ('kind = "bound"\n' + BOUND.replace("sigma = 1\n", "sigma = 0\n"), "sigma", "0"),
    ('kind = "bound"\n' + BOUND.replace("epsilon = 0.1", "epsilon = -0.1"), "epsilon", "-0.1"),
    ('kind = "bound"\n' + BOUND.replace("smoothness = 1", "smoothness = nan"), "smoothness", "nan"),
    ('kind = "bound"\n' + BOUND + 'form = "approximate"', "form", "approximate", "exact"),
]

FADINGS = [
    ('"fog"', "fading", "rician"),
    ('"rician"', "rician_k"),
    ('"rayleigh"\nrician_k = 3.0', "rician_k"),
    ('"rician"\nrician_k = -3.0', "rician_k", "-3"),
    ('"rician"\nrician_k = nan', "rician_k", "nan"),
    ('"rician"\nrician_k = "strong"', "rician_k", "strong"),
    ('"nakagami"', "nakagami_m"),
    ('"nakagami"\nnakagami_m = 0.25', "nakagami_m", "0.25", "0.5"),
    ('"rician"\nrician_k = 3.0\nnakagami_m = 1.0', "nakagami_m"),
    ('"trace"', "trace"),
    ('"rayleigh"\ntrace = "gains.csv"', "trace", "rayleigh"),
    ('"trace"\ntrace = 5', "trace", "5"),
]

SIZES = [
    bad("a fleet of 10**12", "count = 2", f"count = {10**12}", "phone", "count"),
    bad("a count beyond 64 bits", "count = 2", f"count = {10**30}", "phone", "count"),
    bad("10**9 local steps", "max = 5", f"max = {10**9}", "local_steps"),
    bad("local steps beyond 64 bits", "{min = 1, max = 5}", f"[1, {10**30}]", "local_steps"),
    bad("10**30 parameters", "parameters = 1000", f"parameters = {10**30}", "parameters"),
    bad("parameters beyond any float", "parameters = 1000", f"parameters = {10**400}", "parameters"),
    bad("value_bits beyond any float", "value_bits = 32", f"value_bits = {10**400}", "value_bits"),
    bad("a coefficient beyond any float", "beta = 100.0", f"beta = {10**400}", "beta"),
    bad("a cost beyond any float", "= 1e-3", f"= {10**400}", "phone", "joules_per_step"),
    bad("an SNR beyond any float", "mean_snr_db = 10.0", "mean_snr_db = 1e5", "laptop", "mean_snr_db"),
    bad("an SNR below any float", "mean_snr_db = 10.0", "mean_snr_db = -1e5", "laptop", "mean_snr_db"),
]


@pytest.mark.parametrize(("old", "new", "says"), KEYS)
def test_a_scenario_with_missing_unknown_or_misplaced_keys_is_refused_by_name(tmp_path, old, new, says):
    assert_refused(run("plan", write(tmp_path, spoiled(old, new))), *says)


@pytest.mark.parametrize(("old", "new", "says"), COST_FORMS)
def test_a_device_needs_exactly_one_form_of_each_joule_cost(tmp_path, old, new, says):
    assert_refused(run("plan", write(tmp_path, spoiled(old, new))), *says)


@pytest.mark.parametrize(
    ("owner", "key", "value"),
    [(owner, key, value) for owner, key, values in WRONG_VALUES for value in values.split()],
)
def test_a_value_out_of_range_or_of_the_wrong_type_is_refused_and_quoted(tmp_path, owner, key, value):
    refusal = run("plan", write(tmp_path, with_value(key, value)))
    assert_refused(refusal, owner, key, value.strip('"'))


@pytest.mark.parametrize(("value", "says"), [(value, says) for value, *says in SPARSITIES])
def test_sparsity_limits_must_be_ordered_and_between_1_and_the_parameters(tmp_path, value, says):
    assert_refused(run("plan", write(tmp_path, with_value("sparsity", value))), "sparsity", *says)


@pytest.mark.parametrize(("value", "says"), [(value, says) for value, *says in LOCAL_STEPS])
def test_local_steps_must_be_positive_integers_and_at_least_one_of_them(tmp_path, value, says):
    assert_refused(run("plan", write(tmp_path, with_value("local_steps", value))), "local_steps", *says)


@pytest.mark.parametrize(("keys", "says"), [(keys, says) for keys, *says in ROUNDS])
def test_a_rounds_model_takes_its_own_keys_all_of_them_and_no_other(tmp_path, keys, says):
    text = spoiled('kind = "paper"\nalpha = 1e-4\nbeta = 100.0', keys)
    assert_refused(run("plan", write(tmp_path, text)), "rounds", *says)


@pytest.mark.parametrize(("fading", "says"), [(fading, says) for fading, *says in FADINGS])
def test_a_fading_takes_its_own_key_and_no_other(tmp_path, fading, says):
    assert_refused(run("plan", write(tmp_path, with_value("fading", fading))), "laptop", *says)


@pytest.mark.parametrize(("old", "new", "says"), SIZES)
def test_absurd_sizes_are_refused_before_memory_is_taken(tmp_path, old, new, says):
    assert_refused(run("plan", write(tmp_path, spoiled(old, new))), *says)


def test_counts_that_are_fine_alone_but_too_many_together_are_refused(tmp_path):
    many = spoiled("count = 2", "count = 6_000_000")
    many = spoiled('name = "laptop"', 'name = "laptop"\ncount = 6_000_000', many)
    assert_refused(run("plan", write(tmp_path, many)), "count", "10")


def test_a_fleet_without_devices_is_refused(tmp_path):
    assert_refused(run("plan", write(tmp_path, SCENARIO[: SCENARIO.index("[[device]]")])), "device")


def test_an_empty_list_of_devices_is_refused(tmp_path):
    text = "device = []\n" + SCENARIO[: SCENARIO.index("[[device]]")]
    assert_refused(run("plan", write(tmp_path, text)), "device")


def test_one_pair_of_brackets_too_few_around_device_is_refused(tmp_path):
    text = SCENARIO[: SCENARIO.index("[[device]]")] + f"[device]\n{PHONE_COSTS}\n"
    assert_refused(run("plan", write(tmp_path, text)), "device")


def test_a_device_without_a_name_is_still_pointed_at(tmp_path):
    refusal = run("plan", write(tmp_path, spoiled('name = "phone"\ncount = 2', "count = 0")))
    assert_refused(refusal, "device", "count", "0")


def test_a_cost_that_overflows_the_joules_of_a_round_is_refused_not_planned(tmp_path):
    text = spoiled("joules_per_step = 1e-3", "joules_per_step = 1e308", spoiled("beta = 100.0", "beta = 1e300"))
    assert_refused(run("plan", write(tmp_path, text), "--json"))


# --- The file itself


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("", ["model"], id="empty"),
        pytest.param("# nothing here\n", ["model"], id="only a comment"),
        pytest.param("version = = 1\n", ["scenario.toml"], id="not TOML"),
        pytest.param(SCENARIO + "\n[[device]\n", ["scenario.toml"], id="a bracket left open"),
        pytest.param("version = 1\n" + SCENARIO, ["scenario.toml"], id="a key given twice"),
        pytest.param('{"version": 1}', ["scenario.toml"], id="JSON"),
        pytest.param(SCENARIO.replace("phone", "phöne").encode("latin-1"), ["scenario.toml", "utf-8"], id="Latin-1"),
        pytest.param(SCENARIO.encode("utf-16"), ["scenario.toml", "utf-8"], id="UTF-16"),
        pytest.param(bytes(range(256)), ["scenario.toml"], id="binary"),
        pytest.param(b"\0" * 64, ["scenario.toml"], id="null bytes"),
        pytest.param("a = " + "[" * 100_000, ["scenario.toml"], id="brackets without end"),
        pytest.param("version = " + "1" * 10_000, ["scenario.toml"], id="an integer of 10,000 digits"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path, content, says):
    assert_refused(run("plan", write(tmp_path, content)), *says)


def test_a_name_with_a_line_break_does_not_break_the_one_line(tmp_path):
    text = spoiled('name = "phone"', 'name = "pho\\nne"')
    assert_refused(run("plan", write(tmp_path, text)), "name", "printable", r"pho\nne")


def test_a_key_with_a_line_break_does_not_break_the_one_line(tmp_path):
    assert_refused(run("plan", write(tmp_path, spoiled("version = 1", '"col\\nour" = 1'))), "our")


def test_rich_markup_in_a_name_reaches_the_message_unchanged(tmp_path):
    text = spoiled('name = "phone"\ncount = 2', 'name = "[bold]phone[/red]"\ncount = 0')
    assert_refused(run("plan", write(tmp_path, text)), "[bold]phone[/red]", "count")


def test_a_file_far_too_large_to_be_a_scenario_is_refused_without_being_read(tmp_path):
    path = tmp_path / "disk-image.toml"
    with path.open("wb") as file:
        file.truncate(8 << 30)  # sparse: it takes no room on the disk
    assert_refused(run_program("plan", path, memory_bytes=3 << 30), "disk-image.toml")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a file without end")
def test_a_file_without_end_is_refused_before_memory_is_full():
    assert_refused(run_program("plan", "/dev/zero", memory_bytes=3 << 30), "/dev/zero")


def test_a_missing_scenario_is_named(tmp_path):
    assert_refused(run("plan", tmp_path / "nowhere.toml"), "nowhere.toml")


def test_a_folder_given_as_scenario_is_named(tmp_path):
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    assert_refused(run("plan", folder), "folder.toml")


def test_a_scenario_in_a_missing_folder_is_named_in_full(tmp_path):
    assert_refused(run("plan", tmp_path / "no such folder" / "s.toml"), "no such folder", "s.toml")


# --- Channel traces

TRACE = spoiled('"rayleigh"', '"trace"\ntrace = "channel.csv"')


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("", [], id="empty file"),
        pytest.param("gain\n", [], id="header only"),
        pytest.param("loss\n0.5\n1.5\n", ["gain"], id="wrong header"),
        pytest.param("0.5\n1.5\n", ["gain"], id="no header"),
        pytest.param("gain\n0.5\nloud\n", ["line 3", "gain", "got text"], id="not a number"),
        pytest.param("gain\n0.5\n-1.5\n", ["-1.5"], id="negative gain"),
        pytest.param("gain\n0.5\nnan\n", ["nan"], id="NaN gain"),
        pytest.param("gain\n0.5\ninf\n", ["inf"], id="infinite gain"),
        pytest.param("gain\n0.0\n0.0\n", [], id="a channel that is never open"),
        pytest.param("time,gain\n1,0.5\n2\n", [], id="a row too short"),
        pytest.param(bytes(range(256)), [], id="binary bytes"),
        pytest.param("gain\n0.5\n1.5\n".encode("utf-16"), [], id="UTF-16"),
        pytest.param(b"gain\n0.5\n\0\0\0\n", [], id="null bytes"),
        pytest.param("gain,gain\n0.5,0.5\n", ["gain"], id="gain given twice"),
    ],
)
def test_a_malformed_trace_is_refused_by_file(tmp_path, content, says):
    write(tmp_path, content, "channel.csv")
    assert_refused(run("plan", write(tmp_path, TRACE)), "channel.csv", *says)


@pytest.mark.parametrize("value", ["nan", "inf", "loud", "1e9"])
def test_an_snr_trace_with_a_value_that_is_no_snr_is_refused_by_file(tmp_path, value):
    write(tmp_path, f"snr_db\n10.0\n{value}\n", "channel.csv")
    text = spoiled("mean_snr_db = 10.0\n", "", TRACE)
    assert_refused(run("plan", write(tmp_path, text)), "channel.csv")


def test_a_missing_trace_names_the_device_and_the_file(tmp_path):
    assert_refused(run("plan", write(tmp_path, TRACE)), "laptop", "channel.csv")


def test_a_folder_given_as_trace_is_named(tmp_path):
    (tmp_path / "channel.csv").mkdir()
    assert_refused(run("plan", write(tmp_path, TRACE)), "channel.csv")


def test_an_absolute_snr_trace_beside_a_mean_snr_is_refused(tmp_path):
    write(tmp_path, "snr_db\n9.0\n11.0\n", "channel.csv")
    assert_refused(run("plan", write(tmp_path, TRACE)), "laptop", "mean_snr_db", "snr_db")


def test_a_gain_trace_without_a_mean_snr_is_refused(tmp_path):
    write(tmp_path, "gain\n0.5\n1.5\n", "channel.csv")
    text = spoiled("mean_snr_db = 10.0\n", "", TRACE)
    assert_refused(run("plan", write(tmp_path, text)), "laptop", "mean_snr_db")


# --- Plans that cannot be

TIMED = spoiled("count = 2", "count = 2\nseconds_per_bit = 1e-6\nseconds_per_step = 1e-3")


def with_deadline(seconds: float, text: str = TIMED) -> str:
    return spoiled("[limits]", f"[limits]\nround_seconds = {seconds}", text)


def test_the_deadline_that_the_cases_below_tighten_is_good(tmp_path):
    assert run("plan", write(tmp_path, with_deadline(100.0))).exit_code == 0


def test_an_impossible_deadline_names_the_slowest_device(tmp_path):
    slow_phone = spoiled("seconds_per_step = 1e-3", "seconds_per_step = 50.0", TIMED)
    assert_refused(run("plan", write(tmp_path, with_deadline(10.0, slow_phone))), "phone", "round_seconds", "10")


def test_a_deadline_that_a_message_alone_overruns_names_the_device(tmp_path):
    slow_message = spoiled("count = 2", "count = 2\nmessage_seconds = 11.0", TIMED)
    assert_refused(run("plan", write(tmp_path, with_deadline(10.0, slow_message))), "phone", "round_seconds")


def test_a_battery_too_small_for_any_plan_names_the_device(tmp_path):
    text = spoiled("count = 2", "count = 2\nbattery_joules = 1e-9")
    assert_refused(run("plan", write(tmp_path, text)), "phone", "battery_joules")


def test_a_deadline_for_a_device_of_unknown_speed_names_the_device(tmp_path):
    refusal = run("plan", write(tmp_path, with_deadline(10.0, SCENARIO)))
    assert_refused(refusal, "phone", "round_seconds", "seconds_per_")


@pytest.mark.parametrize("missing", ["seconds_per_bit = 1e-6\n", "seconds_per_step = 1e-3\n"])
def test_a_deadline_with_half_of_the_times_names_the_missing_key(tmp_path, missing):
    text = with_deadline(10.0, spoiled(missing, "", TIMED))
    assert_refused(run("plan", write(tmp_path, text)), "phone", missing.split(" = ")[0])


def test_benders_refuses_a_deadline(tmp_path):
    path = write(tmp_path, with_deadline(100.0))
    assert_refused(run("plan", path, "--solver", "benders"), "benders", "round_seconds")


def test_benders_refuses_a_battery(tmp_path):
    path = write(tmp_path, spoiled("count = 2", "battery_joules = 1e9"))
    assert_refused(run("plan", path, "--solver", "benders"), "benders", "battery_joules")


@pytest.mark.parametrize("scheme", ["flexible", "unified", "greedy", "synchronous", "dense", "fedavg"])
def test_every_scheme_refuses_an_impossible_deadline(tmp_path, scheme):
    slow_phone = spoiled("seconds_per_step = 1e-3", "seconds_per_step = 50.0", TIMED)
    refusal = run("plan", write(tmp_path, with_deadline(10.0, slow_phone)), "--scheme", scheme, "--json")
    assert_refused(refusal, "phone", "round_seconds")


@pytest.mark.parametrize("scheme", ["flexible", "unified", "greedy", "synchronous", "dense", "fedavg"])
def test_every_scheme_refuses_a_battery_too_small(tmp_path, scheme):
    path = write(tmp_path, spoiled("count = 2", "battery_joules = 1e-9"))
    assert_refused(run("plan", path, "--scheme", scheme), "phone", "battery_joules")


# --- Options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(["--scheme", "magic"], ["magic", "scheme", "flexible", "fedavg"], id="unknown scheme"),
        pytest.param(["--scheme", ""], ["scheme"], id="empty scheme"),
        pytest.param(["--solver", "magic"], ["magic", "solver", "pareto", "benders"], id="unknown solver"),
        pytest.param(["--plot", "{folder}/plan.xyz"], ["plan.xyz", "png"], id="unknown extension"),
        pytest.param(["--plot", "{folder}/plan"], ["plan", "png"], id="no extension"),
        pytest.param(["--plot", "{folder}/missing/plan.png"], ["missing"], id="missing folder"),
        pytest.param(["--plot", "{folder}/scenario.toml/plan.png"], ["scenario.toml"], id="a file as folder"),
        pytest.param(["--plot", "{folder}/taken.png"], ["taken.png"], id="a folder in the place of the plot"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_is_written(tmp_path, options, says):
    path = write(tmp_path, SCENARIO)
    (tmp_path / "taken.png").mkdir()
    assert_refused(run("plan", path, *[o.format(folder=tmp_path) for o in options]), *says)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["scenario.toml", "taken.png"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--colour"],
        ["plan", "one.toml", "two.toml"],
        ["nonsense"],
        ["calibrate", "gpu"],
        ["calibrate", "tea", "x.csv"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_parsed_exits_with_2(arguments):
    assert run(*arguments).exit_code == 2


# --- Calibration

VOLTS_AND_HERTZ = [
    (0.8, 0.6e9, 1.0e9),
    (0.9, 0.9e9, 1.6e9),
    (1.0, 1.2e9, 1.2e9),
    (1.1, 1.5e9, 2.0e9),
    (0.8, 0.7e9, 2.2e9),
    (1.0, 1.1e9, 0.8e9),
]


def gpu_csv(core_watts=2e-8, memory_watts=1e-9, core_cycles=1e7, memory_cycles=2e6, rows=VOLTS_AND_HERTZ) -> str:
    """Measurements without noise: P = 5 + a f_memory + b V^2 f_core, T = 0.01 + c/f_memory + d/f_core."""
    lines = ["core_volts,core_hertz,memory_hertz,power_watts,step_seconds"]
    for volts, core, memory in rows:
        power_watts = 5.0 + memory_watts * memory + core_watts * volts**2 * core
        step_seconds = 0.01 + memory_cycles / memory + core_cycles / core
        lines.append(f"{volts},{core},{memory},{power_watts!r},{step_seconds!r}")
    return "\n".join(lines) + "\n"


def rounds_csv(alpha=1e-3, beta=300.0, cells=((5, 1), (5, 4), (20, 1), (20, 4), (50, 2), (50, 8))) -> str:
    """Pilot runs without noise on 4 devices: K = alpha H M delta^2 + beta / (sqrt(M) H)."""
    lines = ["sparsity,local_steps,rounds"]
    lines += [f"{delta},{H},{alpha * H * 4 * delta**2 + beta / (2 * H)!r}" for delta, H in cells]
    return "\n".join(lines) + "\n"


GPU_CSV = gpu_csv()
ROUNDS_CSV = rounds_csv()
FIRST_GPU_ROW = GPU_CSV.splitlines()[1]
FIRST_ROUNDS_ROW = ROUNDS_CSV.splitlines()[1]
KINDS = [("--kind", "paper", "--devices", "4"), ("--kind", "power-law")]


def test_the_measurements_that_every_case_spoils_are_good(tmp_path):
    assert run("calibrate", "gpu", write(tmp_path, GPU_CSV, "gpu.csv")).exit_code == 0
    for kind in KINDS:
        assert run("calibrate", "rounds", write(tmp_path, ROUNDS_CSV, "pilot.csv"), *kind).exit_code == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("", [], id="empty file"),
        pytest.param(GPU_CSV.splitlines()[0] + "\n", [], id="header only"),
        pytest.param("\n".join(GPU_CSV.splitlines()[1:]), ["core_volts"], id="no header"),
        pytest.param(GPU_CSV.replace("core_volts", "volts"), ["core_volts"], id="missing column core_volts"),
        pytest.param(GPU_CSV.replace("step_seconds", "seconds"), ["step_seconds"], id="missing column step_seconds"),
        pytest.param("\n".join(GPU_CSV.splitlines()[:2]), ["got 1"], id="one row"),
        pytest.param("\n".join(GPU_CSV.splitlines()[:3]), ["got 2"], id="two rows"),
        pytest.param(GPU_CSV.replace("0.8,", "nan,", 1), ["core_volts", "nan"], id="NaN"),
        pytest.param(GPU_CSV.replace("0.8,", "inf,", 1), ["core_volts", "inf"], id="infinite"),
        pytest.param(GPU_CSV.replace("0.8,", "-0.8,", 1), ["core_volts", "-0.8"], id="negative volts"),
        pytest.param(GPU_CSV.replace("0.8,", "low,", 1), ["core_volts", "got text"], id="a word"),
        pytest.param(GPU_CSV.replace("0.8,", ",", 1), ["core_volts"], id="an empty cell"),
        pytest.param(GPU_CSV.replace("600000000.0", "0", 1), ["core_hertz", "0"], id="zero hertz"),
        pytest.param(GPU_CSV.replace(FIRST_GPU_ROW, "0.8,6e8"), [], id="a row too short"),
        pytest.param(GPU_CSV.replace(FIRST_GPU_ROW, FIRST_GPU_ROW + ",7,8"), [], id="a row too long"),
        pytest.param(
            gpu_csv(rows=[(v, c, 1e9) for v, c, _ in VOLTS_AND_HERTZ]),
            ["memory_hertz"],
            id="memory_hertz never varies",
        ),
        pytest.param(
            gpu_csv(rows=[(1.0, 1e9, m) for _, _, m in VOLTS_AND_HERTZ]),
            ["core_hertz"],
            id="core_hertz never varies",
        ),
        pytest.param(gpu_csv(rows=VOLTS_AND_HERTZ[:1] * 6), [], id="one setting measured six times"),
        pytest.param(gpu_csv(core_watts=-3e-9), ["core_watts_per_volt2_hertz"], id="power falls with the core clock"),
        pytest.param(gpu_csv(memory_watts=-1e-9), ["memory_watts_per_hertz"], id="power falls with the memory clock"),
        pytest.param(gpu_csv(core_cycles=-4e6), ["core_cycles"], id="steps slow down with the core clock"),
        pytest.param(gpu_csv(memory_cycles=-4e6), ["memory_cycles"], id="steps slow down with the memory clock"),
        pytest.param(bytes(range(256)), [], id="binary bytes"),
        pytest.param(GPU_CSV.encode("utf-16"), [], id="UTF-16"),
    ],
)
def test_gpu_measurements_that_imply_no_gpu_are_refused_by_file(tmp_path, content, says):
    assert_refused(run("calibrate", "gpu", write(tmp_path, content, "gpu.csv")), "gpu.csv", *says)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[1])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("", [], id="empty file"),
        pytest.param("sparsity,local_steps,rounds\n", [], id="header only"),
        pytest.param(ROUNDS_CSV.replace("sparsity", "delta"), ["sparsity"], id="missing column sparsity"),
        pytest.param(ROUNDS_CSV.replace("rounds", "K"), ["rounds"], id="missing column rounds"),
        pytest.param("\n".join(ROUNDS_CSV.splitlines()[:2]), ["got 1"], id="one row"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,1,nan"), ["rounds", "nan"], id="NaN"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "inf,1,100"), ["sparsity", "inf"], id="infinite"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,1,-100"), ["rounds", "-100"], id="negative rounds"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "0.5,1,100"), ["sparsity", "0.5"], id="sparsity below 1"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,0,100"), ["local_steps", "0"], id="zero local_steps"),
        pytest.param(
            ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,1.5,100"),
            ["local_steps", "1.5"],
            id="fractional local_steps",
        ),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,one,100"), ["local_steps", "got text"], id="a word"),
        pytest.param(ROUNDS_CSV.replace(FIRST_ROUNDS_ROW, "5,1"), [], id="a row too short"),
        pytest.param(rounds_csv(cells=[(5, 2)] * 8), [], id="one cell run eight times"),
        pytest.param(bytes(range(256)), [], id="binary bytes"),
    ],
)
def test_pilot_runs_that_imply_no_rounds_model_are_refused_by_file(tmp_path, kind, content, says):
    assert_refused(run("calibrate", "rounds", write(tmp_path, content, "pilot.csv"), *kind), "pilot.csv", *says)


def test_pilot_runs_that_sparsity_speeds_up_imply_no_positive_alpha(tmp_path):
    path = write(tmp_path, rounds_csv(alpha=-1e-5, beta=3000.0), "pilot.csv")
    assert_refused(run("calibrate", "rounds", path, *KINDS[0]), "pilot.csv", "alpha", "-")


def test_pilot_runs_that_local_steps_do_not_help_imply_no_positive_beta(tmp_path):
    path = write(tmp_path, rounds_csv(alpha=1.0, beta=-20.0), "pilot.csv")
    assert_refused(run("calibrate", "rounds", path, *KINDS[0]), "pilot.csv", "beta", "-")


@pytest.mark.parametrize(
    ("cells", "column"),
    [([(10, H) for H in range(1, 9)], "sparsity"), ([(delta, 3) for delta in range(2, 10)], "local_steps")],
)
def test_a_power_law_needs_pilot_runs_in_which_every_column_varies(tmp_path, cells, column):
    path = write(tmp_path, rounds_csv(cells=cells), "pilot.csv")
    assert_refused(run("calibrate", "rounds", path, *KINDS[1]), "pilot.csv", column)


@pytest.mark.parametrize("command", [["gpu"], ["rounds", *KINDS[0]], ["rounds", *KINDS[1]]], ids=" ".join)
def test_measurements_that_are_missing_or_a_folder_are_named(tmp_path, command):
    what, *options = command
    assert_refused(run("calibrate", what, tmp_path / "nowhere.csv", *options), "nowhere.csv")
    (tmp_path / "folder.csv").mkdir()
    assert_refused(run("calibrate", what, tmp_path / "folder.csv", *options), "folder.csv")


def test_an_unknown_kind_of_rounds_model_is_named(tmp_path):
    path = write(tmp_path, ROUNDS_CSV, "pilot.csv")
    assert_refused(run("calibrate", "rounds", path, "--kind", "magic"), "kind", "magic", "paper", "power-law")


@pytest.mark.parametrize("devices", ["0", "-3"])
def test_a_pilot_fleet_without_devices_is_refused(tmp_path, devices):
    path = write(tmp_path, ROUNDS_CSV, "pilot.csv")
    assert_refused(run("calibrate", "rounds", path, "--kind", "paper", "--devices", devices), "devices", devices)


# --- The real program


def test_the_program_refuses_an_unknown_key_in_one_line(tmp_path):
    text = spoiled("count = 2", "count = 2\ncolour = 3")
    assert_refused(run_program("plan", write(tmp_path, text), "--json"), "phone", "colour")


def test_the_program_refuses_a_missing_file_in_one_line_even_if_the_path_is_long(tmp_path):
    name = "a-name-longer-than-a-terminal-is-wide-" * 4 + "nowhere.toml"
    assert_refused(run_program("plan", tmp_path / name), name)


def test_the_program_refuses_an_infeasible_battery_in_one_line(tmp_path):
    text = spoiled("count = 2", "count = 2\nbattery_joules = 1e-9")
    assert_refused(run_program("plan", write(tmp_path, text)), "phone", "battery_joules")
