"""[training] of a scenario file: whatever is wrong with it is said in one line, and the exit code is 2.

Every case starts from one good scenario and spoils it in one place. A refusal leaves no folder behind: whoever
corrects the file can give the same --out again.
"""

import itertools

import pytest

from fewjoules.scenario.schema.training import TrainingTable
from tests.test_bad_input import assert_refused, run, spoiled, write

SCENARIO = """\
version = 1

[model]
architecture = "softmax"

[rounds]
kind = "power-law"
tau = 20.0
c = 0.0043
a = 0.50
q = 0.60

[limits]
sparsity = {min = 2.0, max = 50.0}
local_steps = {min = 1, max = 5}

[training]
data = "digits"
learning_rate = 0.1
rounds = 2

[[device]]
name = "far"
count = 2
joules_per_step = 5e-4
seconds_per_step = 2e-3
downlink_joules_per_bit = 1e-8
downlink_seconds_per_bit = 1e-7
[device.radio]
power_watts = 0.2
bandwidth_hertz = 7e5
mean_snr_db = 10.0

[[device]]
name = "near"
count = 2
joules_per_step = 5e-4
seconds_per_step = 2e-3
downlink_joules_per_bit = 1e-8
downlink_seconds_per_bit = 1e-7
[device.radio]
power_watts = 0.2
bandwidth_hertz = 1.3e6
mean_snr_db = 10.0
"""
DATA = 'data = "digits"'
RATE = "learning_rate = 0.1"
ROUNDS = "rounds = 2"
TRAINING = SCENARIO[SCENARIO.index("[training]") : SCENARIO.index("[[device]]")]
NEAR_RADIO = SCENARIO[SCENARIO.rindex("[device.radio]") :]
DOWNLINK_JOULES = "downlink_joules_per_bit = 1e-8\n"


def trained_with(*lines: str) -> str:
    """The good scenario with more lines in [training]."""
    return spoiled(DATA, "\n".join((DATA, *lines)), SCENARIO)


def bad(key: str, value: str, *says: str, beside: str = ""):
    """A case: one key of [training] with this value, and what the sentence must say."""
    title = f"{key} = {value[:24]}" + (f", {beside}" if beside else "")
    lines = [f"{key} = {value}", *([beside] if beside else [])]
    return pytest.param(trained_with(*lines), (key, *says), id=title)


def test_the_scenario_that_every_case_spoils_is_good(tmp_path):
    assert run("train", write(tmp_path, SCENARIO), "--out", tmp_path / "out").exit_code == 0


# What a single key may not be; the schema refuses it before anything is loaded.
ONE_KEY = [
    bad("partition", '"alphabetical"', "iid", "dirichlet", "shards", "writers", "file", "alphabetical"),
    bad("data_memory_gib", "-1.0", "at least 0", "got -1.0"),
    bad("partition_file", "3", "string", "got 3", beside='partition = "file"'),
    bad("dirichlet_concentration", "0.0", "above 0", "0.0", beside='partition = "dirichlet"'),
    bad("dirichlet_concentration", "nan", "finite", "nan", beside='partition = "dirichlet"'),
    bad("shards_per_client", "0", "1", "got 0", beside='partition = "shards"'),
    bad("schedule", '"linear"', "constant", "cosine", "step", "linear"),
    bad("decay_rounds", "[3, 0]", "[1]", "got 0", beside='schedule = "step"'),
    bad("decay_rounds", "3", "list", "got 3", beside='schedule = "step"'),
    bad("decay_factor", "0.0", "above 0"),
    bad("decay_factor", "inf", "finite"),
    bad("warmup_rounds", "-1", "0", "got -1"),
    bad("preset", '"best"', "ft-lsgd-db", "best"),
    bad("inner", '"lion"', "sgd", "momentum", "adamw", "lion"),
    bad("momentum", "1.0", "below 1", "got 1.0"),
    bad("momentum", "-0.1", "0", "got -0.1"),
    bad("momentum_state", '"shared"', "reset", "kept", "cleared", "shared"),
    bad("adam_beta2", "1.0", "below 1", "got 1.0"),
    bad("adam_epsilon", "0.0", "above 0"),
    bad("weight_decay", "-0.1", "0", "got -0.1"),
    bad("weight_decay", "inf", "finite"),
    bad("gradient_clip", "0.0", "above 0"),
    bad("outer", '"lion"', "none", "momentum", "nesterov", "adam", "lion"),
    bad("outer_momentum", "1.0", "below 1", "got 1.0"),
    bad("outer_rate", "0.0", "above 0"),
    bad("outer_rate", "1e39", "at most 3e+38", "got 1e+39"),
    bad("outer_beta2", "-0.1", "0", "got -0.1"),
    bad("outer_epsilon", "0.0", "above 0"),
    bad("averaging", "1.01", "at most 1", "got 1.01"),
    bad("averaging", "-0.01", "0", "got -0.01"),
    bad("batch_size", "0", "got 0"),
    bad("batch_size", '"some"', "some"),
    bad("batch_size", "1.5", "got 1.5"),
    bad("batch_growth", "0.99", "at least 1", "got 0.99"),
    bad("batch_growth", "inf", "finite"),
    bad("error_feedback", '"yes"', "boolean", "yes"),
    bad("residual_decay", "1.01", "1", "got 1.01"),
    bad("residual_decay", "-0.01", "0", "got -0.01"),
    bad("clients_at_a_time", "0", "got 0"),
    bad("kept_values", '"float64"', "float32", "bfloat16", "float64"),
    bad("compressor", '"zip"', "top-k", "random-k", "ternary", "qsgd", "none", "zip"),
    bad("values", '"float64"', "float32", "bfloat16", "float64"),
    bad("levels", "0", "1", "got 0"),
    bad("levels", "128", "127", "got 128"),
    bad("weighting", '"fair"', "equal", "samples", "fair"),
    bad("participation", "0.0", "above 0"),
    bad("participation", "1.01", "at most 1", "got 1.01"),
    bad("sampling", '"luck"', "uniform", "battery", "energy", "luck"),
    bad("availability_trace", "3", "string", "got 3"),
    bad("availability_period_seconds", "0.0", "above 0"),
    bad("failure_probability", "-0.01", "0", "got -0.01"),
    bad("failure_probability", "1.01", "1", "got 1.01"),
    bad("failure_trace", "3", "string", "got 3"),
    bad("downlink", '"cheap"', "free", "charged", "cheap"),
    bad("downlink_sparsity", "0.99", "at least 1", "got 0.99"),
    bad("downlink_sparsity", "1e13", "at most 1e+12", "got 10000000000000"),
    bad("downlink_values", '"float64"', "float32", "ternary", "float64"),
    bad("channel", '"clear"', "average", "drawn", "clear"),
    bad("coherence_blocks", "1", "2", "got 1"),
    bad("coherence_blocks", "1000001", "1000000", "got 1000001"),
    bad("target_accuracy", "1.01", "1", "got 1.01"),
    bad("target_accuracy", "-0.01", "0", "got -0.01"),
    bad("target_loss", "0.0", "above 0", "got 0"),
    bad("target_perplexity", "1.0", "above 1", "got 1"),
    bad("target_metric", '"f1 > 0.5"', "a metric, >= or <=, and a number", "got 'f1 > 0.5'"),
    bad("guard", '"on"', "guard"),
    bad("energy_budget_joules", "0.0", "above 0"),
    bad("energy_budget_joules", "nan", "finite"),
    bad("time_budget_seconds", "-1.0", "above 0", "got -1.0"),
    bad("evaluate_every", "0", "1", "got 0"),
    bad("precision", '"float16"', "float32", "tf32", "bf16", "float16"),
    bad("seed", "-1", "0", "got -1"),
    bad("seed", str(2**63), str(2**63 - 1)),
]

# What does not go together, or not with the data, the fleet or this machine.
TOGETHER = [
    bad("partition", '"dirichlet"', "dirichlet_concentration", "missing"),
    bad("partition", '"shards"', "shards_per_client", "missing"),
    bad("partition", '"writers"', "qmnist", "digits"),
    bad("partition", '"file"', "partition_file", "missing"),
    bad("partition_file", '"clients.csv"', "unused", "'iid'"),
    bad("dirichlet_concentration", "0.5", "unused", "'iid'"),
    bad("shards_per_client", "2", "unused", "'iid'"),
    bad("schedule", '"step"', "decay_rounds"),
    bad("decay_rounds", "[2]", "'constant'"),
    bad("sampling", '"battery"', "battery_joules", "got none"),
    bad("availability_period_seconds", "60", "needs", "availability_trace"),
    bad("momentum", "0.5", "'momentum'", "'adamw'", "'sgd'", beside='inner = "sgd"'),
    bad("momentum_state", '"cleared"', "'momentum'", "'adamw'", beside='inner = "adamw"'),
    pytest.param(
        trained_with('partition = "dirichlet"', "dirichlet_concentration = 1e-9"),
        ("concentration", "1e-06", "1e-09"),
        id="a concentration below what can be drawn",
    ),
    pytest.param(
        trained_with('partition = "shards"', "shards_per_client = 500"),
        ("samples", "shards (2000)", "1437"),
        id="more shards than samples",
    ),
    pytest.param(
        spoiled("count = 2", "count = 2000", SCENARIO), ("samples", "clients (2002)", "1437"), id="too few samples"
    ),
    pytest.param(spoiled(DATA, "", SCENARIO), ("training.data",), id="no data"),
    pytest.param(
        spoiled(DATA, "", SCENARIO).replace("softmax", "resnet20"), ("training.data", "missing"), id="no data 2"
    ),
    pytest.param(spoiled("digits", "imagenet", SCENARIO), ("training.data", "digits", "imagenet"), id="unknown data"),
    pytest.param(spoiled(RATE, "", SCENARIO), ("training.learning_rate", "missing"), id="no learning rate"),
    pytest.param(spoiled(RATE, "learning_rate = 0.0", SCENARIO), ("learning_rate", "above 0"), id="rate 0"),
    pytest.param(spoiled(RATE, "learning_rate = nan", SCENARIO), ("learning_rate", "finite", "nan"), id="rate nan"),
    pytest.param(spoiled(ROUNDS, "rounds = 0", SCENARIO), ("training.rounds", "1", "got 0"), id="rounds 0"),
    pytest.param(spoiled(ROUNDS, "rounds = 10000001", SCENARIO), ("training.rounds", "10000000"), id="many rounds"),
    pytest.param(
        spoiled('architecture = "softmax"', "parameters = 650", SCENARIO),
        ("model.architecture", "model.parameters"),
        id="parameters instead of an architecture",
    ),
    pytest.param(spoiled("softmax", "lenet5", SCENARIO), ("lenet5", "larger images", "digits"), id="lenet5 on digits"),
    pytest.param(
        trained_with('downlink = "charged"').replace(DOWNLINK_JOULES, "", 1),
        ("downlink = 'charged'", "downlink_joules_per_bit", "device"),
        id="a charged downlink that one device has no cost of",
    ),
    pytest.param(spoiled("softmax", "vgg", SCENARIO), ("model.architecture", "softmax", "vgg"), id="unknown model"),
]

# Refused only when the run is put together.
LATE = [
    bad("values", '"ternary"', "compressor", "top-k"),
    bad("precision", '"tf32"', "gpu", "float32"),
    pytest.param(
        trained_with('channel = "drawn"').replace(NEAR_RADIO, "joules_per_bit = 1e-7\n"),
        ("channel = 'drawn'", "[device.radio]", "'near'"),
        id="a drawn channel without a radio",
    ),
    pytest.param(
        trained_with('downlink = "charged"').replace(DOWNLINK_JOULES, ""),
        ("downlink = 'charged'", "downlink_joules_per_bit"),
        id="a charged downlink without its cost",
    ),
    pytest.param(
        trained_with("time_budget_seconds = 1.0").replace(NEAR_RADIO, "joules_per_bit = 1e-7\n"),
        ("time_budget_seconds",),
        id="a time budget without the time of a bit",
    ),
]


@pytest.mark.parametrize(("text", "says"), [*ONE_KEY, *TOGETHER])
def test_bad_training_is_refused_in_one_sentence_and_leaves_no_folder(text, says, tmp_path):
    assert_refused(run("train", write(tmp_path, text), "--out", tmp_path / "out"), *says)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["scenario.toml"]


@pytest.mark.parametrize(("text", "says"), LATE)
def test_what_does_not_fit_the_fleet_or_the_machine_is_refused_in_one_sentence(text, says, tmp_path):
    refusal = run("train", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "out")
    assert_refused(refusal, *says)


@pytest.mark.parametrize(("text", "says"), LATE)
def test_a_late_refusal_leaves_no_folder(text, says, tmp_path):
    run("train", write(tmp_path, text), "--device", "cpu", "--out", tmp_path / "out")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["scenario.toml"]


@pytest.mark.parametrize(("text", "says"), [*TOGETHER, *LATE])
def test_compare_refuses_what_train_refuses(text, says, tmp_path):
    options = ["--schemes", "dense", "--device", "cpu", "--out", tmp_path / "out"]
    assert_refused(run("compare", write(tmp_path, text), *options), *says)


def test_an_unknown_key_is_named_with_those_that_are_most_like_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, trained_with("batchsize = 32"))
    refusal = run("train", "scenario.toml", "--out", "out")
    number = str(len(TrainingTable.model_fields))
    assert_refused(refusal, "scenario.toml: training.batchsize", "not a known key", "batch_size", number)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", ["0", '"some"', "1.5"])
def test_a_bad_batch_size_is_named_as_it_is_written(value, tmp_path):
    text = trained_with(f"batch_size = {value}")
    assert_refused(run("train", write(tmp_path, text), "--out", tmp_path / "out"), "training.batch_size must be")


def test_a_word_for_the_batch_size_is_told_the_one_that_is_known(tmp_path):
    text = trained_with('batch_size = "some"')
    assert_refused(run("train", write(tmp_path, text), "--out", tmp_path / "out"), "batch_size", "'all'")


def test_a_time_budget_needs_the_time_of_a_step(tmp_path):
    text = trained_with("time_budget_seconds = 1e-6").replace("seconds_per_step = 2e-3\n", "")
    refusal = run("train", write(tmp_path, text), "--out", tmp_path / "out")
    assert_refused(refusal, "time_budget_seconds", "seconds_per_step")


@pytest.mark.parametrize("value", ["1e39", "1e300"])
def test_a_learning_rate_beyond_float32_is_refused_or_diverges(value, tmp_path):
    text = spoiled(RATE, f"learning_rate = {value}", SCENARIO)
    refusal = run("train", write(tmp_path, text), "--out", tmp_path / "out")
    assert refusal.exit_code in (1, 2)
    assert refusal.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("round,client\n1,0\n", ("header must name device once", "got 0 such among 2 columns")),
        ("", ("header must name round once",)),
        ("round,device\n", ("at least one row",)),
        ("round,device\n0,0\n", ("round must be a whole number from 1",)),
        ("round,device\n1.5,0\n", ("whole number", "1.5")),
        ("round,device\n1,0.5\n", ("whole number", "0.5")),
        ("round,device\n1,-1\n", ("line 2", "device", "-1")),
        ("round,device\n1,x\n", ("line 2", "device", "got text")),
        ("round,device\n1,0,0\n", ("line 2", "2 cells", "got 3")),
        ("round,device\n1,4\n", ("device", "0 to 3", "got 4")),
        ("round,device\n10000001,0\n", ("round", "10000000", "got 10000001")),
    ],
)
def test_a_bad_failure_trace_is_refused(table, says, tmp_path):
    write(tmp_path, table, "lost.csv")
    text = trained_with('failure_trace = "lost.csv"')
    assert_refused(run("train", write(tmp_path, text), "--out", tmp_path / "out"), *says)


def test_a_failure_trace_that_is_not_there_is_named(tmp_path):
    text = trained_with('failure_trace = "lost.csv"')
    refusal = run("train", write(tmp_path, text), "--out", tmp_path / "out")
    assert_refused(refusal, str(tmp_path / "lost.csv"), "cannot be read")


def test_a_bad_failure_trace_leaves_no_folder(tmp_path):
    run("train", write(tmp_path, trained_with('failure_trace = "lost.csv"')), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_key_with_a_range_has_a_case():
    free = {"data", "learning_rate", "rounds"}  # in TOGETHER
    tried = {says[0] for _, says in (case.values for case in itertools.chain(ONE_KEY, TOGETHER))}
    assert set(TrainingTable.model_fields) - free <= tried
