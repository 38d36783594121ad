"""What the page shows agrees with the planner, for small fleets and large ones."""

import copy
import json
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fewjoules.cli import app
from fewjoules.errors import FewJoulesError
from fewjoules.planner.plan import plans_from_json
from fewjoules.provenance import KINDS
from fewjoules.scenario import Scenario
from fewjoules.scenario.planning import ScenarioPlans
from fewjoules.studio.access import Workspace
from fewjoules.studio.plan.edited import Edited
from fewjoules.studio.plan.files import example, load
from fewjoules.studio.plan.parts import all_parts
from fewjoules.studio.plan.standing import standing

EXAMPLES = Workspace.of(Path(__file__).parents[3] / "examples")
SOURCES = {
    "embedded": example("embedded"),
    "lte-phone": example("lte-phone"),
    **{
        name: load(EXAMPLES, name)
        for name in ("measured-costs.toml", "phones-and-jetsons.toml", "paper-four-groups.toml")
    },
}
EDITS = st.fixed_dictionaries(
    {
        "source": st.sampled_from(sorted(SOURCES)),
        "most_steps": st.sampled_from([3, 8, 20]),
        "most_sparsity": st.sampled_from([1.0, 30.0, 900.0]),
        "deadline": st.sampled_from([None, None, 50.0, 1000.0]),
        "battery": st.sampled_from([None, None, 1e6]),
        "counts": st.lists(st.integers(1, 40), min_size=4, max_size=4),
        "times": st.sampled_from([1, 7]),
        "prices": st.dictionaries(st.sampled_from(["bit", "step", "tail"]), st.sampled_from([0.1, 3.0, 40.0])),
    }
)


def posted_of(edits):
    """Return what the page would post after these edits."""
    posted = copy.deepcopy(SOURCES[edits["source"]])
    limits = posted["scenario"]["limits"]
    limits["local_steps"] = {"min": 1, "max": edits["most_steps"]}
    limits["sparsity"] = {"min": 1.0, "max": edits["most_sparsity"]}
    limits.pop("round_seconds", None)
    if edits["deadline"] is not None:
        limits["round_seconds"] = edits["deadline"]
    for device, count in zip(posted["scenario"]["device"], cycle(edits["counts"]), strict=False):
        device["count"] = count * edits["times"]
        device.pop("battery_joules", None)
    if edits["battery"] is not None:
        posted["scenario"]["device"][0]["battery_joules"] = edits["battery"]
    return posted | {"prices": edits["prices"]}


def refused(act):
    """Return the sentence of a refusal without the name of the file; None if there was none."""
    try:
        act()
    except FewJoulesError as error:
        return str(error).split(".toml: ")[-1]
    return None


def parts_of(posted):
    return {part["part"]: part for part in all_parts(Edited.of(posted, EXAMPLES))}


@settings(max_examples=20, deadline=None)
@given(EDITS)
def test_the_page_tells_what_the_command_plans_with_the_saved_file(tmp_path_factory, edits):
    posted = posted_of(edits)
    file = tmp_path_factory.mktemp("saved") / "fleet.toml"
    file.write_text(Edited.of(posted, EXAMPLES).text(), encoding="utf-8")
    answer = CliRunner().invoke(app, ["plan", str(file), "--scheme", "all", "--json"])
    sentence = refused(lambda: parts_of(posted))
    if sentence is not None:
        assert answer.exit_code == 2
        assert answer.stderr.rstrip().endswith(sentence)
        return
    parts = parts_of(posted)
    assert parts["plan"]["toml"] == file.read_text(encoding="utf-8")
    assert answer.exit_code == 0, answer.output
    plans = {plan.scheme: plan for plan in plans_from_json(answer.stdout, source="stdout")}
    shown = {row["scheme"]: row for row in parts["schemes"]["schemes"]}
    assert shown.keys() == plans.keys()
    for scheme, plan in plans.items():
        row = shown[scheme]
        assert row["local_steps"] == plan.local_steps
        assert row["rounds"] == pytest.approx(plan.rounds, rel=1e-6)
        assert row["joules"] == pytest.approx(plan.energy_joules, rel=1e-8)
        assert row["seconds"] == (None if plan.seconds is None else pytest.approx(plan.seconds, rel=1e-5))
    assert parts["plan"]["plan"]["joules"] == shown[parts["plan"]["plan"]["scheme"]]["joules"]


@settings(max_examples=20, deadline=None)
@given(EDITS)
def test_groups_and_kinds_sum_to_the_plan(edits):
    assume(refused(lambda: parts_of(posted_of(edits))) is None)
    parts = parts_of(posted_of(edits))
    plan, groups = parts["plan"]["plan"], parts["plan"]["groups"]
    assert sum(row["count"] for row in groups) == parts["plan"]["devices"]
    total = sum(joules for row in groups for joules in row["joules"].values())
    assert total == pytest.approx(plan["joules"], rel=1e-9)
    for kind in KINDS:
        told = parts["plan"]["joules"].get(kind, {})
        by_mark = {}
        for row in groups:
            by_mark[row["marks"][kind]] = by_mark.get(row["marks"][kind], 0.0) + row["joules"][kind]
        for mark, joules in told.items():
            assert by_mark[mark] == pytest.approx(joules, rel=1e-9, abs=1e-300)
    for row in parts["constraints"]["constraints"]:
        assert row["without"] <= row["with"] * (1.0 + 1e-9)
    assert json.dumps(parts, allow_nan=False)


@settings(max_examples=20, deadline=None)
@given(EDITS, st.integers(2, 60))
def test_a_device_that_stands_for_many_plans_what_they_plan(edits, each):
    """The large fleet, planned device by device, against the small one whose joules are multiplied."""
    posted = posted_of(edits | {"times": each})
    assume(refused(lambda: parts_of(posted)) is None)
    small = standing(Edited.of(posted, EXAMPLES))
    whole = ScenarioPlans(Scenario.from_text(Edited.of(posted, EXAMPLES).text(), "whole", EXAMPLES.root))
    scheme = "fewest" if whole.scenario.recipe is not None else "flexible"
    by_small, by_whole = small.whole(small.planning.plan(scheme)), whole.plan(scheme)
    exact = edits["source"] != "paper-four-groups.toml"  # its law knows the number of devices
    assert small.each % each == 0 if exact else small.each == 1
    assert small.devices == len(whole.scenario.fleet)
    assert by_small.local_steps == by_whole.local_steps
    assert by_small.energy_joules == pytest.approx(by_whole.energy_joules, rel=1e-8)
    assert by_small.rounds == pytest.approx(by_whole.rounds, rel=1e-6)


def test_with_partial_participation_every_device_is_planned():
    posted = copy.deepcopy(SOURCES["lte-phone"])
    posted["scenario"]["training"]["participation"] = 0.5
    assert standing(Edited.of(posted, EXAMPLES)).each == 1


@pytest.mark.parametrize("source", sorted(SOURCES))
@pytest.mark.parametrize(
    ("price", "kinds"), [("bit", ("uplink", "downlink")), ("step", ("compute",)), ("tail", ("tail",))]
)
def test_a_price_multiplies_the_joules_of_its_kind_in_every_form(source, price, kinds):
    """At one plan: H and sparsity are limited to one choice, so that only prices differ."""
    posted = copy.deepcopy(SOURCES[source])
    posted["scenario"].pop("recipe", None)
    posted["scenario"]["limits"] = {"sparsity": {"min": 5.0, "max": 5.0}, "local_steps": [3]}
    for device in posted["scenario"]["device"]:
        device.pop("battery_joules", None)
    before, after = (parts_of(posted | {"prices": prices})["plan"]["joules"] for prices in ({}, {price: 7.0}))
    assert before
    for kind in before:
        factor = 7.0 if kind in kinds else 1.0
        assert sum(after[kind].values()) == pytest.approx(factor * sum(before[kind].values()), rel=1e-9)


def test_an_edited_price_is_no_longer_that_of_the_profile():
    marks = [
        parts_of(SOURCES["lte-phone"] | {"prices": prices})["plan"]["groups"][0]["marks"]["uplink"]
        for prices in ({}, {"bit": 2.0})
    ]
    assert marks == ["profile", "assumed"]


def test_a_deadline_and_batteries_are_priced_apart_and_together():
    posted = copy.deepcopy(SOURCES["measured-costs.toml"])
    posted["scenario"]["limits"]["round_seconds"] = 8.0
    rows = parts_of(posted)["constraints"]["constraints"]
    assert [row["constraint"] for row in rows] == ["deadline of 8 s for a round", "batteries", "deadline and batteries"]
    assert all(row["with"] == rows[0]["with"] for row in rows)
    assert rows[2]["without"] < rows[2]["with"]
    assert rows[2]["without"] <= min(rows[0]["without"], rows[1]["without"]) * (1.0 + 1e-9)


def test_names_are_escaped_in_figures_and_told_apart_if_groups_share_one():
    posted = copy.deepcopy(SOURCES["embedded"])
    for device in posted["scenario"]["device"]:
        device["name"] = "<b>x</b>"
    part = parts_of(posted)["plan"]
    names = part["figure"]["layout"]["yaxis"]["ticktext"]
    assert names[0] == "&lt;b&gt;x&lt;/b&gt;"
    assert len(set(names)) == 4
    assert "<" not in json.dumps([part["figure"]["layout"], part["figure"]["data"]]).replace("<extra>", "").replace(
        "</extra>", ""
    )
