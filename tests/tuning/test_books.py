import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.tuning.books import USUAL_TRAININGS, Books, Budget, saving, trainings_to_pay
from tests.tuning.curves import result_of, spec_of

FOLLOWED = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.2]),  # step size
        st.sampled_from([1, 5, 12]),  # local steps
        st.sampled_from([(8.0, 8.0), (2.0, 50.0)]),
        st.integers(1, 40),  # rounds
        st.booleans(),  # to the target
    ),
    max_size=20,
)


def round_joules(spec):
    return 0.1 * spec.local_steps + 1.0 / spec.sparsity[0]


def booked(followed):
    books = Books(clients=3, round_joules=round_joules)
    for rate, local_steps, sparsity, rounds, to_target in followed:
        spec = spec_of(
            options={"learning_rate": rate},
            local_steps=local_steps,
            sparsity=sparsity,
            steps=rounds * local_steps,
            to_target=to_target,
        )
        books.add(result_of([rounds * local_steps], [1.0], spec=spec, rounds=rounds))
    return books


@given(FOLLOWED)
def test_every_round_is_booked_once_however_often_a_training_is_followed(followed):
    longest = {}
    for rate, local_steps, sparsity, rounds, _ in followed:
        training = rate, local_steps, sparsity
        longest[training] = max(rounds, longest.get(training, 0))
    books = booked(followed)
    assert books.client_steps == sum(3 * steps * rounds for (_, steps, _), rounds in longest.items())
    joules = sum(rounds * (0.1 * steps + 1.0 / delta[0]) for (_, steps, delta), rounds in longest.items())
    assert books.joules == pytest.approx(joules)


@given(FOLLOWED, st.randoms())
def test_the_order_of_pilots_does_not_change_the_books(followed, random):
    shuffled = list(followed)
    random.shuffle(shuffled)
    assert booked(shuffled).client_steps == booked(followed).client_steps
    assert booked(shuffled).joules == pytest.approx(booked(followed).joules)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (None, Budget()),
        ("5000", Budget(client_steps=5000.0)),
        ("5000 steps", Budget(client_steps=5000.0)),
        (" 5e3client-steps ", Budget(client_steps=5000.0)),
        ("5E3 Client-Step", Budget(client_steps=5000.0)),
        ("1 step", Budget(client_steps=1.0)),
        ("7 STEPS", Budget(client_steps=7.0)),
        ("5 j", Budget(joules=5.0)),
        ("5 Joule", Budget(joules=5.0)),
        ("80 J", Budget(joules=80.0)),
        ("0.5joules", Budget(joules=0.5)),
    ],
)
def test_budgets_are_read(text, budget):
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0",
        "-5",
        "+-5",
        "1e",
        "e5",
        "nan",
        "inf",
        "1e999",
        "0 J",
        "5 kJ",
        "5 steps J",
        "5 j j",
        "5 \N{LATIN SMALL LETTER LONG S}teps",
        "five",
        "5;rm",
        "\N{ARABIC-INDIC DIGIT FIVE}",
        "5\x00",
        2000,
    ],
)
def test_what_is_no_budget_is_refused_in_one_sentence(text):
    with pytest.raises(InvalidInputError) as caught:
        Budget.parse(text)
    message = str(caught.value)
    assert message.startswith("the budget must be")
    assert "'80 J'" in message
    assert repr(text) in message
    assert "\n" not in message


@given(st.text(max_size=30))
def test_any_text_is_a_budget_or_refused(text):
    try:
        budget = Budget.parse(text)
    except InvalidInputError:
        return
    assert (budget.client_steps or 0.0) + (budget.joules or 0.0) > 0.0


def test_what_is_left_is_in_local_steps_of_each_client():
    books = Books(clients=4, round_joules=round_joules, client_steps=400, joules=20.0)
    assert Budget().steps_left(books, 1000.0, 0.1) == pytest.approx(USUAL_TRAININGS * 1000.0 - 100.0)
    assert Budget(client_steps=1000).steps_left(books, 1000.0, 0.1) == pytest.approx(150.0)
    assert Budget(joules=30.0).steps_left(books, 1000.0, 0.1) == pytest.approx(100.0)


def test_what_is_spent_beyond_the_budget_is_less_than_nothing():
    books = Books(clients=4, round_joules=round_joules, client_steps=400, joules=20.0)
    assert Budget(client_steps=200).steps_left(books, 1000.0, 0.1) == pytest.approx(-50.0)
    assert Budget(joules=10.0).steps_left(books, 1000.0, 0.1) == pytest.approx(-100.0)


@pytest.mark.parametrize(("saved", "trainings"), [(4.5, 5), (22.5, 1), (100.0, 1), (0.0, None), (-1.0, None)])
def test_the_trainings_that_pay_for_pilots(saved, trainings):
    assert trainings_to_pay(22.5, saved) == trainings


@pytest.mark.parametrize(
    ("before", "after", "saved"), [(100.0, 60.0, 40.0), (100.0, 99.8, 0.2), (60.0, 100.0, -40.0), (0.0, 1.0, -1.0)]
)
def test_what_a_training_saves(before, after, saved):
    assert saving(before, after) == pytest.approx(saved)


@pytest.mark.parametrize("after", [100.0 - 1e-14, 99.91, 100.0, 100.09])
def test_a_thousandth_of_the_joules_is_no_saving(after):
    assert saving(100.0, after) == 0.0
