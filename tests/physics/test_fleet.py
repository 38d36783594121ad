"""A fleet is a set of checked arrays of one length."""

import numpy as np
import pytest

from fewjoules import Fleet, InvalidInputError
from fewjoules.physics.fleet import COSTS


def test_scalars_broadcast_to_the_longest_array():
    fleet = Fleet(joules_per_bit=[1e-9, 2e-9, 3e-9], joules_per_step=1e-3)
    assert len(fleet) == 3
    assert fleet.joules_per_step.tolist() == [1e-3] * 3
    assert fleet.message_joules.tolist() == [0.0] * 3
    assert fleet.seconds_per_bit is None


def test_arrays_are_copied_and_cannot_be_written():
    costs = np.array([1.0, 2.0])
    fleet = Fleet(joules_per_bit=costs, joules_per_step=1.0)
    costs[0] = 9.0
    assert fleet.joules_per_bit[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        fleet.joules_per_bit[0] = 3.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"joules_per_bit": [1.0, -1.0]}, r"joules_per_bit\[1\] must be .* got -1.0"),
        ({"joules_per_bit": [1.0, float("nan")]}, r"joules_per_bit\[1\]"),
        ({"joules_per_bit": float("inf")}, "joules_per_bit must be a finite number"),
        ({"joules_per_bit": "much"}, "joules_per_bit must hold numbers"),
        ({"joules_per_bit": None}, "joules_per_bit must be finite numbers of at least 0, .* got None"),
        ({"joules_per_bit": 1.0, "joules_per_step": None}, "joules_per_step must be finite numbers .* got None"),
        ({"joules_per_bit": 1.0, "message_joules": None}, "message_joules must be finite numbers .* got None"),
        ({"joules_per_bit": 1.0, "tail_seconds": None}, "tail_seconds must be finite numbers .* got None"),
        ({"joules_per_bit": 1.0 + 1.0j}, r"joules_per_bit must hold numbers only, got \(1\+1j\)"),
        ({"joules_per_bit": 1.0, "names": 5}, "names must be a list with an entry for each device, got 5"),
        ({"joules_per_bit": 1.0, "fading": 5}, "fading must be a list with an entry for each device, got 5"),
        ({"joules_per_bit": 1.0, "operating_points": 5}, r"operating_points must be a fewjoules\.Operating.*, got 5"),
        ({"joules_per_bit": 1.0, "provenance": 5}, "provenance must be a mark or a mapping of kinds to marks, got 5"),
        ({"joules_per_bit": []}, "joules_per_bit must have 1 to"),
        ({"joules_per_bit": [[1.0]]}, "one-dimensional"),
        ({"joules_per_bit": [1.0, 2.0], "seconds_per_bit": [1.0, 2.0, 3.0]}, "joules_per_bit must have 3 entries"),
        ({"joules_per_bit": [1.0, 2.0], "names": ["a"]}, "names must have 2"),
    ],
)
def test_a_bad_array_is_refused_by_name(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Fleet(**({"joules_per_step": 1.0} | arguments))


def test_messages_call_a_device_by_its_name():
    assert Fleet(joules_per_bit=1.0, joules_per_step=1.0, names=["phone"]).device_name(0) == "'phone'"
    assert Fleet(joules_per_bit=1.0, joules_per_step=1.0).device_name(0) == "0"


def test_bits_of_every_message_cost_what_a_bit_costs():
    fleet = Fleet(
        joules_per_bit=[1e-9, 2e-9],
        joules_per_step=0.5,
        message_joules=[0.25, 0.0],
        seconds_per_bit=[1e-8, 3e-8],
        message_seconds=0.125,
        battery_joules=[9.0, np.inf],
        names=["a", "b"],
    )
    heavier = fleet.with_message_bits(1000.0)
    np.testing.assert_allclose(heavier.message_joules, [0.25 + 1e-6, 2e-6], rtol=1e-15)
    np.testing.assert_allclose(heavier.message_seconds, [0.125 + 1e-5, 0.125 + 3e-5], rtol=1e-15)
    for name in {*COSTS, "names"} - {"message_joules", "message_seconds"}:
        np.testing.assert_array_equal(getattr(heavier, name), getattr(fleet, name))
    for kind, codes in fleet.provenance.items():
        np.testing.assert_array_equal(heavier.provenance[kind], codes)


def test_unknown_times_stay_unknown_with_heavier_messages():
    heavier = Fleet(joules_per_bit=1e-9, joules_per_step=0.5).with_message_bits(1000.0)
    assert heavier.seconds_per_bit is None
    assert heavier.message_seconds.tolist() == [0.0]


@pytest.mark.parametrize("name", ["joules_per_bit", "seconds_per_bit"])
def test_bits_of_every_message_must_have_a_finite_cost(name):
    costs = {"joules_per_bit": 1e-9, "joules_per_step": 0.5, "seconds_per_bit": 1e-9} | {name: 1e305}
    with pytest.raises(InvalidInputError, match=rf"{name} times 44032 bits of a message must be finite, got 1e\+305"):
        Fleet(**costs).with_message_bits(44032)
