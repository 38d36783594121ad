"""Messages of every compressor are charged as long as the codec writes them."""

import numpy as np
import pytest

from fewjoules import codec
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.compressors import COMPRESSORS
from fewjoules.engine.algorithm.streams import stream
from fewjoules.engine.simulator.cuda.messages import round_values
from fewjoules.errors import InvalidInputError
from tests.engine.orders import order_of

SIZE, KEPT = 5_000, 400
SEED, ROUND, CLIENT = 5, 7, 2


def order(**given):
    return order_of(ROUND, client=CLIENT, k=KEPT, seed=SEED, **given)


def vectors():
    return np.random.default_rng(0).standard_normal((2, SIZE), dtype=np.float32)


def sent_with(given):
    """What a compressor sends of an update and a residual, what it leaves, and the bytes it charges."""
    update, residual = vectors()
    compressor = COMPRESSORS[given.compressor]
    sent, left = compressor.send(update.copy(), residual.copy(), given)
    return update + residual, sent, left, compressor.message_bytes(sent, left[sent.positions], given)


@pytest.mark.parametrize("levels", [1, 15, 127])
def test_qsgd_is_charged_for_the_levels_that_were_drawn(levels):
    total, _, _, charged = sent_with(order(compressor="qsgd", levels=levels))
    whole = SparseUpdate(size=SIZE, positions=np.arange(SIZE), values=total)
    draws = stream(SEED, "compressor", ROUND, CLIENT)
    written = len(codec.encode(whole, values="qsgd", levels=levels, rng=draws))
    assert charged == pytest.approx(written, rel=1e-3)


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16", "int8", "qsgd", "two-bit"])
@pytest.mark.parametrize("compressor", ["top-k", "random-k"])
def test_rounded_values_are_charged_as_they_are_written(compressor, values):
    total, sent, _, charged = sent_with(order(compressor=compressor, values=values))
    exact = SparseUpdate(size=SIZE, positions=sent.positions, values=total[sent.positions])
    draws = stream(SEED, "compressor", ROUND, CLIENT, 1)
    payload = codec.encode(exact, values=values, rng=draws)
    np.testing.assert_array_equal(codec.decode(payload).values, sent.values)
    assert charged == pytest.approx(len(payload), rel=1e-3)


def test_ternary_messages_are_charged_as_they_are_written():
    _, sent, _, charged = sent_with(order(compressor="ternary"))
    assert charged == len(codec.encode(sent, values="ternary"))


@pytest.mark.parametrize("name", COMPRESSORS)
def test_what_is_sent_and_what_is_left_add_to_what_went_in(name):
    total, sent, left, _ = sent_with(order(compressor=name))
    np.testing.assert_allclose(sent.to_dense() + left, total, rtol=0, atol=1e-6)
    assert sent.count == (SIZE if COMPRESSORS[name].dense else KEPT)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_same_order_sends_the_same_and_another_round_or_client_draws_anew(name):
    first, again = (sent_with(order(compressor=name))[1] for _ in range(2))
    assert first == again
    update, residual = vectors()
    others = [order_of(*who, k=KEPT, seed=SEED, compressor=name) for who in ((ROUND + 1,), (ROUND,))]
    others = [COMPRESSORS[name].send(update.copy(), residual.copy(), one)[0] for one in others]
    assert all((other != first) == (name in ("random-k", "qsgd")) for other in others)


@pytest.mark.parametrize(
    "given",
    [{"compressor": "ternary"}, {"values": "int8"}, {"values": "qsgd"}, {"values": "float16"}, {"values": "two-bit"}],
    ids=["ternary", "int8", "qsgd", "float16", "two-bit"],
)
def test_chosen_values_are_rounded_as_in_the_whole_compressor(given):
    chosen = order(**given)
    total, sent, left, _ = sent_with(chosen)
    seen, rest = round_values(total[sent.positions], COMPRESSORS[chosen.compressor].kind_of(chosen), chosen)
    np.testing.assert_array_equal(seen, sent.values)
    np.testing.assert_array_equal(rest, left[sent.positions])


@pytest.mark.parametrize(
    ("name", "values"),
    [("top-k", "ternary"), ("random-k", "ternary"), ("ternary", "int8"), ("qsgd", "float16"), ("none", "ternary")],
)
def test_values_that_a_compressor_cannot_send_are_refused(name, values):
    with pytest.raises(InvalidInputError, match=rf"{name}.*{values}|{values}.*{name}"):
        COMPRESSORS[name].require_values(values)
