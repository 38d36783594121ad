"""Drawn channels: the law of the gains, and messages whose expected energy is infinite."""

import numpy as np
import pytest

from fewjoules.physics import channel
from fewjoules.physics.fading import Fading

SNR = 10.0
LAWS = {
    "none": Fading("none", SNR, channel.efficiency_without_fading(SNR)),
    "rayleigh": Fading("rayleigh", SNR, channel.efficiency_rayleigh(SNR)),
    "rician": Fading("rician", SNR, channel.efficiency_rician(SNR, 3.0), 3.0),
    "nakagami": Fading("nakagami", SNR, channel.efficiency_nakagami(SNR, 2.5), 2.5),
    "trace": Fading(
        "trace", SNR, channel.efficiency_trace(SNR, np.array([1.0, 2.0, 6.0])), gains=np.array([1.0, 2.0, 6.0])
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_gains_have_mean_one_and_the_efficiency_of_the_plan(name):
    gains = LAWS[name].draw_gains(np.random.default_rng(0), 400_000)
    assert gains.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log2(1.0 + SNR * gains).mean() == pytest.approx(LAWS[name].efficiency, rel=0.01)


@pytest.mark.parametrize("name", LAWS)
def test_a_message_over_many_fades_goes_at_the_average_rate(name):
    assert LAWS[name].draw_slowdown(np.random.default_rng(0), 200_000) == pytest.approx(1.0, abs=0.02)


def test_without_fading_nothing_is_slower():
    assert LAWS["none"].draw_slowdown(np.random.default_rng(0), 2) == pytest.approx(1.0, rel=1e-12)


def test_laws_whose_messages_cost_infinitely_much_on_average_are_named():
    assert all(law.problem(2) is None for law in LAWS.values())
    deep = Fading("nakagami", SNR, 2.0, 0.5)
    assert "nakagami_m * coherence_blocks must be above 1, got 0.5 * 2" in str(deep.problem(2))
    assert deep.problem(3) is None
    assert "gains of 0" in str(Fading("trace", SNR, 2.0, gains=np.array([0.0, 1.0])).problem(10))
