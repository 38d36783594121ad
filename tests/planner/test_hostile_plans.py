"""Plans that nobody planned: a file is read, or refused in one sentence; a plan that is read can be trained and saved.

Every case starts from a good plan and replaces, repeats or cuts something.
"""

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.planner.plan import PLAN_KEYS, PLAN_VERSION, plans_from_json, plans_to_json
from tests.scenario.test_training_scenario import trained_with
from tests.test_bad_input import run, write

SCENARIO = trained_with("target_accuracy = 0.99")
GOOD = {
    "scheme": "flexible",
    "solver": "pareto",
    "parameters": 650,
    "local_steps": 2,
    "sparsity": [4.0, 4.0, 3.0, 2.0],
    "rounds": 3.0,
    "energy_joules": 2.0,
    "radio_joules": 1.0,
    "compute_joules": 1.0,
    "seconds": 1.0,
    "lower_bound_joules": 1.0,
    "relative_gap": 0.5,
    "downlink_sparsity": 2.0,
    "operating_points": None,
    "joules": {"uplink": {"assumed": 1.0}, "compute": {"measured": 0.5, "assumed": 0.5}},
    "recipe": {"name": "steady", "optimiser": {"learning_rate": 0.1}, "message": {"values": "int8"}},
    "participants": 4,
}
DOCUMENT = {"version": PLAN_VERSION, "plans": [GOOD]}
NUMBERS = [
    1e308,
    -1e308,
    5e-324,
    -0.0,
    0,
    -1,
    0.5,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    10**12,
    10**19,
    -(2**63),
    10**400,
]
OTHERS = [
    "",
    "x",
    "2",
    "\ud800",
    "\0",
    "../../x",
    "x" * 300,
    "[/red]",
    True,
    False,
    None,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
]
DEEP = json.loads("[" * 200 + "]" * 200)
hostile = st.sampled_from(
    [*NUMBERS, *OTHERS, DEEP, [4.0] * 3, [4.0] * 5, [True] * 4, ["4"] * 4, [1e308] * 4]
) | st.lists(st.sampled_from([*NUMBERS, *OTHERS]), min_size=4, max_size=4)


@st.composite
def documents(draw):
    """A good document with one or two keys of its plan replaced, added or left out, or one of its own."""
    plan = dict(GOOD)
    for key in draw(st.lists(st.sampled_from([*GOOD, "luck"]), min_size=1, max_size=2)):
        if draw(st.integers(0, 9)):
            plan[key] = draw(hostile)
        else:
            plan.pop(key, None)
    document = {"version": PLAN_VERSION, "plans": [plan]}
    if not draw(st.integers(0, 4)):
        document[draw(st.sampled_from([*document, "luck"]))] = draw(hostile)
    return document


@st.composite
def files(draw):
    """The bytes of a plan: changed in meaning, cut off, repeated, or with other bytes in it."""
    data = json.dumps(draw(documents() | st.just(DOCUMENT))).encode()
    change = draw(st.sampled_from(["none", "cut", "twice", "bytes", "repeated key", "deep", "long number"]))
    at = draw(st.integers(0, len(data)))
    return {
        "none": data,
        "cut": data[:at],
        "twice": data + data,
        "bytes": data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:],
        "repeated key": data.replace(b'"version"', b'"version": 2, "version"'),
        "deep": data.replace(b"650", b"[" * 100_000),
        "long number": data.replace(b"650", b"6" * 5000),
    }[change]


def test_the_plan_that_every_case_spoils_is_good(tmp_path):
    assert set(GOOD) == set(PLAN_KEYS)
    done = trained(tmp_path, json.dumps(DOCUMENT).encode())
    assert done.exit_code == 0, done.stderr


def trained(folder, data):
    return run("train", write(folder, SCENARIO), "--plan", write(folder, data, "plan.json"), "--out", folder / "out")


@settings(
    deadline=None, derandomize=True, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files())
def test_a_hostile_plan_is_refused_in_one_sentence_or_read_and_saved(tmp_path, data):
    file = write(tmp_path, data, "plan.json")
    plan, sentence = None, ""
    try:
        plan = fj.Plan.load(file)
    except fj.InvalidInputError as refusal:
        sentence = str(refusal)
    if plan is None:
        assert sentence.startswith(f"{file}: ")
        assert "\n" not in sentence
        assert len(sentence) < 500 + len(str(file))
        return
    assert plan.sparsity.min() >= 1.0
    assert plan.sparsity.max() <= 1e12
    (again,) = plans_from_json(plans_to_json([plan]), source="again")
    assert again.to_dict() == plan.to_dict()


@settings(deadline=None, derandomize=True, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files())
def test_a_hostile_plan_is_refused_in_one_line_or_trained(tmp_path, data):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    done = trained(folder, data)
    if done.exit_code == 2:
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "out").exists()
    else:
        assert done.exit_code == 0
        assert json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))["rounds"] == 2


@pytest.mark.parametrize("key", [key for key in GOOD if key not in ("scheme", "solver", "sparsity", "parameters")])
@pytest.mark.parametrize("value", [1e307, 5e-324, 0.0])
def test_any_number_that_a_plan_may_predict_is_trained_and_drawn(tmp_path, key, value):
    plan = GOOD | {"joules": {}} | {key: value}
    plan |= {"energy_joules": plan["radio_joules"] + plan["compute_joules"]} if key != "energy_joules" else {}
    done = trained(tmp_path, json.dumps(DOCUMENT | {"plans": [plan]}).encode())
    refused = key in ("energy_joules", "local_steps", "operating_points", "joules", "downlink_sparsity", "recipe")
    refused = refused or key == "participants" or (key, value) == ("lower_bound_joules", 1e307)
    assert done.exit_code == (2 if refused else 0), done.stderr


def test_a_damaged_plan_in_a_folder_is_refused_on_resume(tmp_path):
    assert trained(tmp_path, json.dumps(DOCUMENT).encode()).exit_code == 0
    (tmp_path / "out" / "run.json").unlink()
    for sparsity in ([1e308] * 4, [4.0] * 3, ["x"] * 4):
        damaged = GOOD | {"sparsity": sparsity, "participants": None}
        write(tmp_path / "out", json.dumps(DOCUMENT | {"plans": [damaged]}), "plan.json")
        done = run("train", "--resume", tmp_path / "out")
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert "sparsity" in done.stderr
