"""``fewjoules profiles`` lists the profiles and shows each number with its source."""

import json

import pytest

from fewjoules.profiles import profile_names, shipped_profile
from tests.scenario.test_profiles import MINE
from tests.test_bad_input import assert_refused, run, write


def test_all_profiles_are_listed_with_their_main_figures():
    result = run("profiles")
    assert result.exit_code == 0
    assert len(profile_names()) >= 5
    for name in profile_names():
        assert shipped_profile(name).description in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("lte-phone ") and "A phone" not in line]
    assert line.split()[1:5] == ["277", "104", "11", "0.209"]


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_is_shown_with_every_number_its_mark_and_its_source(name):
    result = run("profiles", name)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for key, source in shipped_profile(name).sources.items():
        (row,) = [line for line in result.stdout.splitlines() if line.startswith(f"{key} ")]
        assert float(row.split()[1]) == pytest.approx(shipped_profile(name).value(key), rel=1e-3)
        assert row.split()[2] == source.mark
        assert source.source.split()[0] in words


def test_profiles_in_json_hold_everything():
    document = json.loads(run("profiles", "--json").stdout)
    assert document["version"] == 1
    assert [profile["name"] for profile in document["profiles"]] == profile_names()
    (one,) = json.loads(run("profiles", "lte-phone", "--json").stdout)["profiles"]
    assert one == next(profile for profile in document["profiles"] if profile["name"] == "lte-phone")
    assert one["device"] == shipped_profile("lte-phone").device
    assert one["sources"]["tail_watts"]["mark"] == "measured"


def test_a_profile_of_one_s_own_is_shown(tmp_path):
    result = run("profiles", write(tmp_path, MINE, "mine.toml"))
    assert result.exit_code == 0
    assert "radio.power_watts" in result.stdout


def test_an_unknown_or_bad_profile_is_refused(tmp_path):
    assert_refused(run("profiles", "lte-fone"), "lte-fone", *profile_names())
    assert_refused(run("profiles", tmp_path / "missing.toml"), "missing.toml", "cannot be read")
