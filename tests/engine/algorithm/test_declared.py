"""Each kind of option refuses what it cannot be, in a sentence that names the option and quotes the value."""

import math
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.engine.algorithm.declared import (
    Choice,
    Flag,
    LostUploads,
    Number,
    Rounds,
    Sparsities,
    Whole,
    option,
)
from fewjoules.errors import InvalidInputError

ALLOWED = [
    (Number(), 0.0),
    (Number(), 3),
    (Number(), np.float32(2.5)),
    (Number(0.0, 1.0), 1.0),
    (Number(0.0, 1.0, below=True), 0.0),
    (Number(0.0, above=True), 5e-324),
    (Whole(1, 9), 1),
    (Whole(1, 9), np.int64(9)),
    (Choice(("red", "blue")), "blue"),
    (Flag(), True),
    (Flag(), False),
    (Rounds(9), []),
    (Rounds(9), (1, 9, 3)),
    (Sparsities(), [1.0, 2.0]),
    (Sparsities(), 1),
    (Sparsities(), np.array([1e9])),
    (LostUploads(9), {}),
    (LostUploads(9), {1: {0, 3}, 9: [2], 4: (), 5: frozenset({1})}),
]
REFUSED = [
    (Number(), -0.1, "at least 0"),
    (Number(), math.inf, "finite"),
    (Number(), math.nan, "finite"),
    (Number(), True, "number"),
    (Number(), "one", "number"),
    (Number(), None, "number"),
    (Number(0.0, 1.0), 1.1, "at least 0 and at most 1"),
    (Number(0.0, 1.0, above=True), 0.0, "above 0 and at most 1"),
    (Number(0.0, 1.0, below=True), 1.0, "at least 0 and below 1"),
    (Number(0.0, 1.0, below=True), 1.5, "at least 0 and below 1"),
    (Number(0.0, 1.0, below=True), -0.5, "at least 0"),
    (Whole(1, 9), 0, "from 1 to 9"),
    (Whole(1, 9), 10, "from 1 to 9"),
    (Whole(1, 9), 1.0, "whole number"),
    (Whole(1, 9), True, "whole number"),
    (Choice(("red", "blue")), "green", "red, blue"),
    (Choice(("red", "blue")), None, "red, blue"),
    (Choice(("red", "blue")), ["red"], "red, blue"),
    (Choice(("red", "blue")), {}, "red, blue"),
    (Flag(), 1, "true or false"),
    (Flag(), "no", "true or false"),
    (Flag(), None, "true or false"),
    (Rounds(9), 3, "list of rounds"),
    (Rounds(9), "12", "list of rounds"),
    (Rounds(9), [1, 0], "from 1 to 9"),
    (Rounds(9), (10,), "from 1 to 9"),
    (Rounds(9), [1.5], "whole number"),
    (Sparsities(), [2.0, 0.5], r"\[1\].*at least 1"),
    (Sparsities(), math.nan, "at least 1"),
    (Sparsities(), math.inf, "finite"),
    (Sparsities(), "all", "numbers"),
    (Sparsities(), [[1.0]], "one-dimensional"),
    (LostUploads(9), [1], "mapping of rounds to sets"),
    (LostUploads(9), {1: 0}, "set of clients"),
    (LostUploads(9), {1: "abc"}, "set of clients"),
    (LostUploads(9), {0: {1}}, "round.*from 1 to 9"),
    (LostUploads(9), {10: {1}}, "round.*from 1 to 9"),
    (LostUploads(9), {1.5: {1}}, "round.*whole number"),
]


@pytest.mark.parametrize(("check", "value"), ALLOWED, ids=str)
def test_what_an_option_may_be_is_taken(check, value):
    check.require("thing", value)


@pytest.mark.parametrize(("check", "value", "says"), REFUSED, ids=str)
def test_what_it_may_not_be_is_refused_and_the_option_named(check, value, says):
    with pytest.raises(InvalidInputError, match=rf"^thing.*{says}.*got ") as refusal:
        check.require("thing", value)
    assert "\n" not in str(refusal.value)


@given(st.floats(-10.0, 10.0), st.floats(-10.0, 10.0), st.floats(), st.booleans(), st.booleans())
def test_a_number_is_taken_just_where_it_lies_between_the_ends(low, high, value, above, below):
    inside = (value > low if above else value >= low) and (value < high if below else value <= high)
    check = Number(low, high, above=above, below=below)
    if inside and math.isfinite(value):
        check.require("thing", value)
    else:
        with pytest.raises(InvalidInputError, match="thing"):
            check.require("thing", value)


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-30, 30))
def test_a_whole_number_is_taken_just_where_it_lies_between_the_ends(low, high, value):
    if low <= value <= high:
        Whole(low, high).require("thing", value)
    else:
        with pytest.raises(InvalidInputError, match="thing"):
            Whole(low, high).require("thing", value)


@dataclass
class Declared:
    needed: int = option(Whole(1, 9))
    given: float = option(Number(), 0.5)
    perhaps: str | None = option(Choice(("red",)), optional=True)
    usual: int | None = option(Whole(1, 9), 3, optional=True)
    made: dict = option(LostUploads(9), factory=dict)  # noqa: RUF009 - a field


def test_a_declaration_has_its_check_and_its_default():
    declared = Declared(needed=2)
    assert (declared.given, declared.perhaps, declared.usual, declared.made) == (0.5, None, 3, {})
    assert declared.made is not Declared(needed=2).made
    with pytest.raises(TypeError, match="needed"):
        Declared()
    about = {one.name: one.metadata for one in fields(Declared)}
    assert about["needed"] == {"check": Whole(1, 9), "optional": False}
    assert {name for name, said in about.items() if said["optional"]} == {"perhaps", "usual"}
