"""Messages of every compressor are charged as long as the codec writes them."""

import numpy as np
import pytest
from fewjoules.engine.algorithm.uploads import compressor_of, message_bytes, round_values

from fewjoules import codec
from fewjoules.codec.update import SparseUpdate
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.streams import stream

SIZE, KEPT = 5_000, 400


def options(**given):
    return TrainingOptions(local_steps=1, sparsity=np.ones(3), rounds=1, learning_rate=0.1, seed=5, **given)


def vectors():
    return np.random.default_rng(0).standard_normal((2, SIZE), dtype=np.float32)


@pytest.mark.parametrize("levels", [1, 15, 127])
def test_qsgd_is_charged_for_the_levels_that_were_drawn(levels):
    chosen = options(compressor="qsgd", levels=levels)
    update, memory = vectors()
    sent, left = compressor_of(chosen, KEPT, 2, 7)(update, memory.copy())
    whole = SparseUpdate(size=SIZE, positions=np.arange(SIZE), values=update + memory)
    draws = stream(chosen.seed, "compressor", 7, 2)
    written = len(codec.encode(whole, values="qsgd", levels=levels, rng=draws))
    assert message_bytes(chosen, sent, left[sent.positions], 2, 7) == pytest.approx(written, rel=1e-3)


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16", "int8", "qsgd"])
@pytest.mark.parametrize("compressor", ["top-k", "random-k"])
def test_rounded_values_are_charged_as_they_are_written(compressor, values):
    chosen = options(compressor=compressor, values=values)
    update, memory = vectors()
    sent, left = compressor_of(chosen, KEPT, 2, 7)(update, memory.copy())
    exact = SparseUpdate(size=SIZE, positions=sent.positions, values=(update + memory)[sent.positions])
    draws = stream(chosen.seed, "compressor", 7, 2, 1)
    payload = codec.encode(exact, values=values, rng=draws)
    np.testing.assert_array_equal(codec.decode(payload).values, sent.values)
    assert message_bytes(chosen, sent, left[sent.positions], 2, 7) == pytest.approx(len(payload), rel=1e-3)


def test_ternary_messages_are_charged_as_they_are_written():
    chosen = options(compressor="ternary")
    update, memory = vectors()
    sent, left = compressor_of(chosen, KEPT, 2, 7)(update, memory.copy())
    assert message_bytes(chosen, sent, left[sent.positions], 2, 7) == len(codec.encode(sent, values="ternary"))


@pytest.mark.parametrize(
    "given",
    [{"compressor": "ternary"}, {"values": "int8"}, {"values": "qsgd"}, {"values": "float16"}],
    ids=["ternary", "int8", "qsgd", "float16"],
)
def test_chosen_values_are_rounded_as_in_the_whole_compressor(given):
    chosen = options(**given)
    update, memory = vectors()
    sent, left = compressor_of(chosen, KEPT, 2, 7)(update, memory.copy())
    seen, rest = round_values(chosen, (update + memory)[sent.positions], 2, 7)
    np.testing.assert_array_equal(seen, sent.values)
    np.testing.assert_array_equal(rest, left[sent.positions])
