"""``message_size`` and ``downlink_message_size`` of [model]: what a plan takes from them, and what is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import fewjoules as fj
from fewjoules.cli import app

LAWS = """\
message_size = {fixed_bits = 250.0, scale = 1.1, entry_bits = 3.5}
downlink_message_size = {entry_bits = 30.0}
"""


def text(*, laws=LAWS, sparsity="{min = 1.0, max = 400.0}"):
    usual = fj.Scenario.embedded().text.replace("sparsity = {min = 1.0, max = 400.0}", f"sparsity = {sparsity}")
    return usual.replace("[model]\n", f"[model]\n{laws}", 1)


def scenario(**changes):
    return fj.Scenario.from_text(text(**changes), "laws.toml", Path())


def test_plans_charge_messages_by_the_laws_of_the_file():
    problem = scenario().problem()
    assert problem.message == fj.MessageSize(fixed_bits=250.0, scale=1.1, entry_bits=3.5)
    assert problem.server.message == fj.MessageSize(fixed_bits=0.0, scale=1.0, entry_bits=30.0)
    plan, usual = fj.solve(problem), fj.solve(fj.Scenario.embedded().problem())
    assert plan.energy_joules < usual.energy_joules, "entries of 3.5 bits are cheaper than those of 33"


def test_without_laws_plans_charge_formula_25():
    problem = scenario(laws="").problem()
    assert problem.message is None
    assert problem.message_size == problem.server.message_size == fj.MessageSize.formula_25(32)


@pytest.mark.parametrize(
    ("laws", "says"),
    [
        ("message_size = {scale = 1.0}\n", "model.message_size.entry_bits is missing"),
        ("message_size = {entry_bits = 9.0, scale = 0.0}\n", "model.message_size.scale must be above 0"),
        ("message_size = {entry_bits = nan}\n", "model.message_size.entry_bits"),
        ("message_size = {entry_bits = 9.0, bits = 3}\n", "model.message_size.bits is not a known key; allowed are"),
        ("downlink_message_size = {entry_bits = 9, bits = 3}\n", "model.downlink_message_size.bits is not a known key"),
        ("downlink_message_size = {entry_bits = 9.0, fixed_bits = -5}\n", "model.downlink_message_size.fixed_bits"),
        ("message_size = 9.0\n", "model.message_size"),
    ],
)
def test_a_law_that_no_message_has_is_refused_with_its_key(laws, says):
    with pytest.raises(fj.InvalidInputError) as caught:
        scenario(laws=laws)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_refuses_a_law_that_it_cannot_plan_with(tmp_path):
    file = tmp_path / "laws.toml"
    laws = "message_size = {entry_bits = 2.0}\n"
    file.write_text(text(laws=laws, sparsity="{min = 2.0, max = 400.0}"))
    assert CliRunner().invoke(app, ["plan", str(file), "--scheme", "flexible"]).exit_code == 0
    file.write_text(text(laws=laws))
    refused = CliRunner().invoke(app, ["plan", str(file), "--scheme", "flexible"])
    assert refused.exit_code == 2
    assert "entry_bits of messages must be at least 2.429 for sparsities from 1 on, got 2.0" in refused.output
