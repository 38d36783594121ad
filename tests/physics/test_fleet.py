"""A fleet is a set of checked arrays of one length."""

import numpy as np
import pytest

from fedjoule import Fleet, InvalidInputError


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
