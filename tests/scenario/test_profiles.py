"""A [[device]] that names a profile takes the keys that it does not give itself, and remembers which those are."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.profiles import keys_of, profile_names, shipped_profile
from fewjoules.provenance import KINDS, MARKS
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.profiles import with_profiles
from fewjoules.scenario.scenario import read_device
from fewjoules.scenario.schema.sentences import require_fitting
from fewjoules.scenario.schema.tables import DevicesTable
from tests.test_bad_input import assert_refused, run, write

HEAD = """
[model]
architecture = "cnn"
[rounds]
kind = "power-law"
tau = 100.0
c = 0.03
a = 0.5
q = 0.5
[limits]
sparsity = {min = 1.0, max = 50.0}
local_steps = {min = 1, max = 3}
[training]
data = "digits"
learning_rate = 0.1
"""
CNN_FLOPS = 6 * (64 * 9 * 16 + 16 * 9 * 16 * 32 + 32 * 4 * 64 + 64 * 10)
MINE = """
description = "my phone"
[device]
joules_per_step = 0.5
[device.radio]
power_watts = 2.0
bandwidth_hertz = 1e6
[sources]
joules_per_step = {mark = "measured", source = "a meter"}
[sources.radio]
power_watts = {mark = "fitted", source = "a fit"}
bandwidth_hertz = {mark = "assumed", source = "a guess"}
"""
MY_DEVICE = 'profile = "mine.toml"\n[device.radio]\nmean_snr_db = 10.0\n'


def scenario(device, name="phone"):
    return f'{HEAD}[[device]]\nname = "{name}"\n{device}'


def fleet_of(folder, device):
    return fj.Scenario.from_toml(write(folder, scenario(device))).fleet


def taken(entry, folder=Path()):
    (completed,), (keys,) = with_profiles([entry], ScenarioFolder(folder))
    return completed, keys


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_has_keys_of_a_device_and_says_what_it_is(name):
    profile = shipped_profile(name)
    require_fitting(DevicesTable, {"device": [{"name": name, **profile.device}]})
    assert profile.description
    assert set(profile.sources) == set(keys_of(profile.device))


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_is_enough_for_a_device(tmp_path, name):
    fleet = fleet_of(tmp_path, f'profile = "{name}"\ncount = 2\n')
    device = shipped_profile(name).device
    assert len(fleet) == 2
    assert fleet.joules_per_bit[1] == device["joules_per_bit"]
    assert fleet.tail_seconds[1] == device["tail_seconds"]
    assert fleet.joules_per_sample[1] == pytest.approx(device["joules_per_flop"] * CNN_FLOPS)
    assert fleet.seconds_per_sample[1] == pytest.approx(device["seconds_per_flop"] * CNN_FLOPS)


def test_every_source_of_a_shipped_profile_is_listed():
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
    texts = [source.source for name in profile_names() for source in shipped_profile(name).sources.values()]
    cited = {key for text in texts for key in re.findall(r"\[[A-Z]+\d*\]", text)}
    assert len(cited) >= 5
    assert {key for key in cited if f"| {key} |" not in page} == set()


def test_a_key_of_the_device_wins_over_its_profile(tmp_path):
    fleet = fleet_of(tmp_path, 'profile = "lte-phone"\njoules_per_bit = 3e-7\n')
    assert fleet.joules_per_bit[0] == 3e-7
    assert fleet.seconds_per_bit[0] == shipped_profile("lte-phone").device["seconds_per_bit"]


def test_a_device_without_costs_of_samples_and_coding_leaves_those_of_others(tmp_path):
    other = "[[device]]\njoules_per_step = 1.0\nseconds_per_step = 1.0\njoules_per_bit = 1.0\n"
    fleet = fleet_of(tmp_path, f'profile = "lte-phone"\n{other}')
    for cost in ("joules_per_sample", "seconds_per_sample", "codec_joules_per_entry", "codec_seconds_per_parameter"):
        assert getattr(fleet, cost)[0] > 0.0
        assert getattr(fleet, cost)[1] == 0.0


def test_the_keys_that_came_from_the_profile_are_known():
    completed, keys = taken({"name": "a", "profile": "lte-phone", "joules_per_bit": 1.0, "tail_watts": 0.5})
    assert keys == set(shipped_profile("lte-phone").sources) - {"joules_per_bit", "tail_watts"}
    assert (completed["joules_per_bit"], completed["tail_watts"]) == (1.0, 0.5)


def test_a_device_without_a_profile_has_no_keys_from_one():
    assert taken({"name": "a", "joules_per_bit": 1.0}) == ({"name": "a", "joules_per_bit": 1.0}, frozenset())


def test_a_radio_of_its_own_takes_the_place_of_the_profile_s_uplink_but_not_of_its_tail():
    radio = {"power_watts": 1.5, "bandwidth_hertz": 1e6, "mean_snr_db": 10.0}
    completed, keys = taken({"name": "a", "profile": "lte-phone", "radio": radio})
    assert keys.isdisjoint({"joules_per_bit", "seconds_per_bit"})
    assert {"tail_watts", "downlink_joules_per_bit", "joules_per_flop"} <= keys
    assert "joules_per_bit" not in completed


OWN = st.fixed_dictionaries(
    {"name": st.just("a"), "profile": st.sampled_from(profile_names())},
    optional=dict.fromkeys(shipped_profile("jetson-orin").device, st.just(7.0))
    | {"gpu": st.just({"core_volts": 1.0}), "radio": st.just({"power_watts": 1.0, "tail_watts": 2.0})},
)


@given(OWN)
def test_every_key_is_the_device_s_or_else_the_profile_s_and_costs_have_one_form(entry):
    before = dict(entry)
    completed, keys = taken(entry)
    assert entry == before
    assert before.items() <= completed.items()
    assert {key: completed[key] for key in keys} == {key: shipped_profile(entry["profile"]).value(key) for key in keys}
    assert completed.keys() - before.keys() == keys
    for one, other in (("radio", "joules_per_bit"), ("gpu", "joules_per_flop"), ("gpu", "joules_per_step")):
        assert (one in completed and other in completed) == (one in before and other in before)


def test_a_tail_in_a_radio_of_its_own_takes_the_place_of_the_profile_s():
    completed, keys = taken({"name": "a", "profile": "lte-phone", "radio": {"power_watts": 1.5, "tail_watts": 0.2}})
    assert "tail_watts" not in completed
    assert "tail_seconds" in keys


@pytest.mark.parametrize("own", [{"joules_per_step": 0.1}, {"gpu": {"core_volts": 1.0}}])
def test_computing_in_another_form_takes_the_place_of_the_profile_s(own):
    completed, _ = taken({"name": "a", "profile": "jetson-orin", **own})
    compute = {key for key in completed if "flop" in key or "step" in key or key == "gpu"}
    assert compute == set(own)


def test_operations_of_its_own_keep_the_rest_of_the_profile_s():
    completed, keys = taken({"name": "a", "profile": "jetson-orin", "joules_per_flop": 1e-9})
    assert completed["joules_per_flop"] == 1e-9
    assert {"seconds_per_flop", "joules_per_step", "seconds_per_step"} <= keys


def test_a_profile_of_one_s_own_completes_a_table_key_by_key(tmp_path):
    write(tmp_path, MINE, "mine.toml")
    _, keys = taken({"name": "a", "profile": "mine.toml", "radio": {"power_watts": 1.0, "mean_snr_db": 10.0}}, tmp_path)
    assert keys == {"joules_per_step", "radio.bandwidth_hertz"}
    fleet = fleet_of(tmp_path, MY_DEVICE)
    whole = "[device.radio]\npower_watts = 2.0\nbandwidth_hertz = 1e6\nmean_snr_db = 10.0\n"
    assert fleet.joules_per_bit[0] == fleet_of(tmp_path, f"joules_per_step = 0.5\n{whole}").joules_per_bit[0]


def test_bits_of_its_own_take_the_place_of_the_profile_s_radio(tmp_path):
    write(tmp_path, MINE, "mine.toml")
    completed, keys = taken({"name": "a", "profile": "mine.toml", "joules_per_bit": 1e-7}, tmp_path)
    assert "radio" not in completed
    assert keys == {"joules_per_step"}


@pytest.mark.parametrize(
    ("device", "marks"),
    [
        ('profile = "lte-phone"', {}),
        ('profile = "lte-phone"\njoules_per_bit = 1e-7', {"uplink": "assumed"}),
        ('profile = "lte-phone"\ntail_seconds = 5.0', {"tail": "assumed"}),
        ('profile = "lte-phone"\nseconds_per_bit = 1e-7', {}),
        ('profile = "lte-phone"\njoules_per_flop = 1e-9', {"compute": "assumed"}),
        ('profile = "lte-phone"\nprovenance = "measured"', dict.fromkeys(KINDS, "measured")),
        (
            'profile = "lte-phone"\n[device.radio]\npower_watts = 1.0\nbandwidth_hertz = 1e6\nmean_snr_db = 1.0',
            {"uplink": "fitted"},
        ),
    ],
)
def test_joules_that_the_profile_gives_alone_are_marked(tmp_path, device, marks):
    provenance = fleet_of(tmp_path, device + "\n").provenance
    assert {kind: MARKS[codes[0]] for kind, codes in provenance.items()} == dict.fromkeys(KINDS, "profile") | marks


def test_a_radio_is_of_the_profile_only_if_all_of_it_is(tmp_path):
    with_snr = MINE.replace("bandwidth_hertz = 1e6", "bandwidth_hertz = 1e6\nmean_snr_db = 10.0")
    write(tmp_path, with_snr + 'mean_snr_db = {mark = "assumed", source = "b"}\n', "mine.toml")
    for device, mark in ((MY_DEVICE, "fitted"), ('profile = "mine.toml"\n', "profile")):
        assert MARKS[fleet_of(tmp_path, device).provenance["uplink"][0]] == mark


@pytest.mark.parametrize("key", ["tail_watts", "downlink_watts"])
def test_a_profile_keeps_tail_and_downlink_out_of_the_radio(tmp_path, key):
    text = MINE.replace("[sources]\n", f"{key} = 1.0\n[sources]\n") + f'{key} = {{mark = "assumed", source = "b"}}\n'
    write(tmp_path, text, "mine.toml")
    assert_refused(run("plan", write(tmp_path, scenario(MY_DEVICE))), f"radio.{key} must stand in [device]")


def test_a_downlink_in_a_radio_of_its_own_takes_the_place_of_the_profile_s():
    radio = {"power_watts": 1.5, "downlink_watts": 1.0, "downlink_bits_per_second": 1e6}
    completed, _ = taken({"name": "a", "profile": "lte-phone", "radio": radio})
    assert completed.keys().isdisjoint({"downlink_joules_per_bit", "downlink_seconds_per_bit"})


def test_a_node_s_file_may_name_a_profile(tmp_path):
    told = '[model]\nflops_per_sample = 1e6\n[[device]]\nprofile = "lte-phone"\n'
    profile = shipped_profile("lte-phone").device
    costs = read_device(write(tmp_path, told)).costs
    assert costs["joules_per_sample"] == pytest.approx(1e6 * profile["joules_per_flop"])
    assert costs["tail_watts"] == profile["tail_watts"]
    with pytest.raises(fj.InvalidInputError, match=r"joules_per_flop needs flops_per_sample in \[model\]"):
        read_device(write(tmp_path, '[[device]]\nprofile = "lte-phone"\n'))


def test_a_node_s_file_tells_which_joules_come_from_its_profile(tmp_path):
    told = '[model]\nflops_per_sample = 1e6\n[[device]]\nprofile = "lte-phone"\njoules_per_bit = 2e-7\n'
    marks = read_device(write(tmp_path, told)).marks
    assert (marks["uplink"], marks["compute"], marks["tail"]) == ("assumed", "profile", "profile")


def test_an_unknown_profile_is_refused_with_the_names_of_all(tmp_path):
    refusal = run("plan", write(tmp_path, scenario('profile = "lte-fone"\n')))
    assert_refused(refusal, "device 'phone'", "lte-fone", *profile_names(), ".toml")


def test_a_profile_that_is_no_text_is_refused(tmp_path):
    assert_refused(run("plan", write(tmp_path, scenario("profile = 3\n"))), "device 'phone': profile", "string")


def test_a_file_cannot_say_which_keys_came_from_a_profile(tmp_path):
    text = scenario('profile = "lte-phone"\nprofile_keys = ["tail_watts"]\n')
    assert_refused(run("plan", write(tmp_path, text)), "profile_keys is not a known key")


def test_a_profile_outside_of_the_folder_is_read_only_where_the_user_allows_it(tmp_path):
    folder = tmp_path / "scenario"
    folder.mkdir()
    write(tmp_path, MINE, "mine.toml")
    path = write(folder, scenario(MY_DEVICE.replace("mine.toml", "../mine.toml")))
    assert_refused(run("plan", path), "device 'phone'", "profile", "below the folder of the scenario")
    assert run("plan", path, "--allow-outside").exit_code == 0


BAD = [
    ("no file", None, "cannot be read"),
    ("no TOML", "[device", "must be TOML"),
    ("no device", '[sources]\na = {mark = "assumed", source = "b"}', "[device]"),
    ("another file", 'password = "hunter2"', "needs a table [device], got nothing"),
    ("no sources", "[device]\njoules_per_step = 1.0", "[sources]"),
    ("endless nesting", f"[device]\n{'a.' * 5000}b = 1\n[sources]\n", "nested less deeply"),
    ("an unknown table", MINE + "[extra]\n", "extra is not a known key"),
    ("an unknown key", MINE.replace("joules_per_step", "joules_per_stp"), "joules_per_stp is not a known key"),
    ("a number out of range", MINE.replace("0.5", "-0.5"), "joules_per_step must be at least 0, got -0.5"),
    ("text in place of a number", MINE.replace("0.5", '"0.5"'), "joules_per_step"),
    (
        "a key without a source",
        MINE.replace('power_watts = {mark = "fitted", source = "a fit"}', ""),
        "radio.power_watts",
    ),
    ("a source without a key", MINE.replace("power_watts = 2.0", ""), "radio.power_watts"),
    ("an unknown mark", MINE.replace('"fitted"', '"guessed"'), "measured, fitted, assumed, got 'guessed'"),
    ("a source without words", MINE.replace('"a guess"', '" "'), "radio.bandwidth_hertz.source"),
    ("a source of two lines", MINE.replace('"a guess"', '"a\\nguess"'), "radio.bandwidth_hertz.source"),
    ("a source without a mark", MINE.replace('mark = "fitted", ', ""), "radio.power_watts must be {mark"),
    ("a description of two lines", MINE.replace("my phone", "my\\nphone"), "description"),
    (
        "a name",
        MINE.replace("[device]", '[device]\nname = "x"').replace(
            "[sources]", '[sources]\nname = {mark = "assumed", source = "b"}'
        ),
        "name belongs in [[device]]",
    ),
]


@pytest.mark.parametrize(("text", "says"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_profile_is_refused_in_one_sentence(tmp_path, text, says):
    if text is not None:
        write(tmp_path, text, "mine.toml")
    assert_refused(run("plan", write(tmp_path, scenario(MY_DEVICE))), "device 'phone'", "mine.toml", says)
