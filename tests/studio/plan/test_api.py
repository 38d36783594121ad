"""The addresses of the plan view: sources, streamed plans, and errors as one sentence beside their field."""

import copy
import json

import pytest

from fewjoules.scenario import Scenario
from fewjoules.studio.access import Workspace
from fewjoules.studio.plan.fields import field_of
from fewjoules.studio.plan.files import example, load, scenario_files
from tests.studio.client import with_studio

EMBEDDED = example("embedded")


def planned(folder, posted):
    """Return the parts that the studio streams, and the status of its answer."""

    async def ask(studio):
        response = await studio.post("/api/plan", posted)
        return [json.loads(line) for line in (await response.text()).splitlines()], response.status

    return with_studio(folder, ask)


def changed(path, value):
    """Return the embedded scenario with one value changed."""
    posted = copy.deepcopy(EMBEDDED)
    table = posted["scenario"]
    for key in path[:-1]:
        table = table.setdefault(key, {}) if isinstance(table, dict) else table[key]
    table[path[-1]] = value
    return posted


def test_a_plan_is_streamed_in_parts(tmp_path):
    parts, status = planned(tmp_path, EMBEDDED)
    assert status == 200
    assert [part["part"] for part in parts] == ["plan", "ridge", "schemes", "constraints", "remarks"]
    assert parts[0]["plan"]["scheme"] == "fewest"
    assert parts[0]["command"] == "fewjoules plan four-groups.toml --scheme all"
    assert all(part["milliseconds"] > 0.0 for part in parts)


ERRORS = [
    (("limits", "local_steps", "max"), 0, "limits.local_steps.max"),
    (("limits", "local_steps", "min"), 60, "limits.local_steps.min"),
    (("limits", "sparsity", "min"), 500.0, "limits.sparsity.max"),
    (("limits", "round_seconds"), 1e-9, "limits.round_seconds"),
    (("rounds", "tau"), -1.0, "rounds.tau"),
    (("model", "value_bits"), 1, "model.value_bits"),
    (("device", 1, "count"), 0, "device.1.count"),
    (("device", 2, "battery_joules"), 1e-9, "device.2.battery_joules"),
    (("device", 3, "joules_per_bit"), 1.0, "device.3"),
    (("device", 0, "profile"), "nokia", "device.0.profile"),
    (("device", 0, "radio", "power_watts"), "much", "device.0.radio.power_watts"),
    (("surprise",), 1, "surprise"),
]


@pytest.mark.parametrize(("path", "value", "field"), ERRORS)
def test_an_error_is_the_sentence_of_the_command_line_beside_its_field(tmp_path, path, value, field):
    posted = changed(path, value)
    parts, status = planned(tmp_path, posted)
    assert status == 200
    assert len(parts) == 1
    assert parts[0]["field"] == field
    assert parts[0]["error"].startswith("four-groups.toml: ") or "four-groups" not in parts[0]["error"]
    assert "\n" not in parts[0]["error"]


@pytest.mark.parametrize("kind", ["bit", "step", "tail"])
@pytest.mark.parametrize("price", [0, "much", 1e9])
def test_a_wrong_price_is_explained_beside_its_field(tmp_path, kind, price):
    parts, status = planned(tmp_path, EMBEDDED | {"prices": {kind: price}})
    assert (status, len(parts)) == (200, 1)
    assert parts[0]["field"] == f"prices.{kind}"
    assert parts[0]["error"].startswith(f"the price of a {kind} must be a finite number")


def test_the_saved_file_is_the_one_that_the_command_names(tmp_path):
    parts, _ = planned(tmp_path, EMBEDDED | {"name": "my fleet.toml"})
    assert parts[0]["file"] == "my fleet.toml"
    assert parts[0]["command"] == "fewjoules plan 'my fleet.toml' --scheme all"


def test_a_request_in_an_unknown_charset_is_refused_in_one_sentence(tmp_path):
    async def ask(studio):
        headers = studio.headers | {"Content-Type": "application/json; charset=nope"}
        response = await studio.client.post("/api/plan", data=b"{}", headers=headers)
        return await response.json(), response.status

    assert with_studio(tmp_path, ask) == ({"error": "the request must be JSON"}, 422)


def nested(depth):
    table = {}
    for _ in range(depth):
        table = {"deeper": table}
    return table


@pytest.mark.parametrize(
    ("posted", "words"),
    [
        (changed(("device", 0, "joules_per_step"), 10**400) | {"prices": {"step": 2.0}}, "too large"),
        (changed(("model", "deep"), nested(600)), "deep"),
        (changed(("device",), []), "device"),
        (changed(("device",), [1]), "device"),
        (changed(("device",), {"name": "x"}), "device"),
        (changed(("model",), None), "TOML"),
        (changed(("device", 0, "count"), 10**9), "count must be at most"),
        (changed(("device", 0, "count"), True), "count must be"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(tmp_path, posted, words):
    parts, status = planned(tmp_path, posted)
    assert status == 200
    assert len(parts) == 1
    assert words in parts[0]["error"]
    assert "\n" not in parts[0]["error"]


def test_no_fleet_may_be_larger_than_a_file_allows_although_few_devices_stand_for_it(tmp_path):
    posted = copy.deepcopy(EMBEDDED)
    for device in posted["scenario"]["device"]:
        device["count"] = 5_000_000
    parts, _ = planned(tmp_path, posted)
    assert "the counts of all devices must sum to 1 to 10000000, got 20000000" in parts[0]["error"]


def test_a_scheme_that_is_infeasible_is_left_out_with_a_remark(tmp_path):
    posted = load(Workspace.of(tmp_path), _saved(tmp_path, "measured-costs.toml"))
    posted["scenario"]["limits"]["round_seconds"] = 8.0
    parts, _ = planned(tmp_path, posted)
    shown = [row["scheme"] for row in parts[2]["schemes"]]
    assert "dense" not in shown
    assert any("scheme dense is left out" in remark for remark in parts[4]["remarks"])


def _saved(folder, name):
    from pathlib import Path

    text = (Path(__file__).parents[3] / "examples" / name).read_text(encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    return name


@pytest.mark.parametrize(
    "posted",
    [
        {},
        {"scenario": []},
        {"scenario": {}, "prices": {"bits": 2.0}},
        {"scenario": {}, "folder": "../.."},
        {"scenario": {}, "folder": 3},
        {"scenario": {}, "name": "a\nb"},
        [1],
        "text",
    ],
)
def test_a_request_that_is_no_scenario_is_refused_in_one_sentence(tmp_path, posted):
    async def ask(studio):
        return await studio.json("/api/plan", posted)

    answer, status = with_studio(tmp_path, ask)
    assert status == 422
    assert "\n" not in answer["error"]


def test_code_of_a_scenario_is_not_run(tmp_path):
    (tmp_path / "trap.py").write_text("raise SystemExit('run')\n")
    for path, field in ((("model", "architecture"), "model.architecture"), (("training", "data"), "training.data")):
        parts, _ = planned(tmp_path, changed(path, "trap:network"))
        assert "which the studio does not run" in parts[0]["error"]
        assert parts[0]["field"] == field


def test_files_that_a_scenario_names_must_lie_in_its_folder(tmp_path):
    folder = tmp_path / "studio"
    folder.mkdir()
    (tmp_path / "own.toml").write_text("secret = 1\n")
    parts, _ = planned(folder, changed(("device", 0, "profile"), "../own.toml"))
    assert "must name a file below the folder" in parts[0]["error"]
    assert "secret" not in parts[0]["error"]


def test_sources_are_scenario_files_of_the_folder_alone(tmp_path):
    name = _saved(tmp_path, "measured-costs.toml")
    (tmp_path / "deep").mkdir()
    _saved(tmp_path / "deep", "shakespeare.toml")
    (tmp_path / ".hidden").mkdir()
    _saved(tmp_path / ".hidden", "shakespeare.toml")
    (tmp_path / "other.toml").write_text("[tool]\nx = 1\n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert scenario_files(Workspace.of(tmp_path)) == [name, "deep/shakespeare.toml"]

    async def ask(studio):
        return [
            await studio.json("/api/plan/sources"),
            await studio.json("/api/plan/source?file=deep/shakespeare.toml"),
            await studio.json("/api/plan/source?file=../x.toml"),
            await studio.json("/api/plan/source?file=other.txt"),
            await studio.json("/api/plan/source?example=nokia"),
        ]

    (sources, _), (deep, status), *refused = with_studio(tmp_path, ask)
    assert sources["files"] == [name, "deep/shakespeare.toml"]
    assert "lte-phone" in sources["profiles"]
    assert status == 200
    assert deep["folder"] == "deep"
    assert [code for _, code in refused] == [422, 422, 422]
    assert str(tmp_path) not in json.dumps(refused)


@pytest.mark.parametrize("text", ["x = 1979-05-27", "x = inf", "x = nan"])
def test_a_file_with_values_that_no_scenario_has_is_refused(tmp_path, text):
    (tmp_path / "odd.toml").write_text(text)

    async def ask(studio):
        return await studio.json("/api/plan/source?file=odd.toml")

    answer, status = with_studio(tmp_path, ask)
    assert status == 422
    assert "must hold finite numbers" in answer["error"]


@pytest.mark.parametrize("name", ["embedded", "lte-phone", "5g-phone", "wifi-phone", "jetson-orin", "raspberry-pi"])
def test_every_example_plans(tmp_path, name):
    parts, _ = planned(tmp_path, example(name))
    assert len(parts) == 5
    scenario = Scenario.from_text(parts[0]["toml"], name, tmp_path)
    assert len(scenario.fleet) == parts[0]["devices"]


def test_an_error_that_names_no_key_has_no_field():
    assert field_of("fleet.toml: must be TOML (x)", "fleet.toml", {}) is None
    assert field_of("device 'gone': count must be 1", "fleet.toml", {"device": [{"name": "here"}]}) is None
