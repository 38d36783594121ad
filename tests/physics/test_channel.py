"""Average spectral efficiency against integration of the fading densities."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.physics import channel

DECIBELS = [-60.0, -37.3, -20.0, -3.0, 0.0, 4.7, 13.0, 30.0, 60.0]


def integrated_efficiency(snr: float, density, breaks: list[float]) -> float:
    """E[log2(1 + snr g)] with the density of g, to 30 digits."""
    with mpmath.workdps(30):
        integral = mpmath.quad(lambda g: mpmath.log1p(snr * g) * density(g), breaks)
        return float(integral / mpmath.log(2))


def rician_density(k: float):
    return lambda g: (1 + k) * mpmath.exp(-k - (1 + k) * g) * mpmath.besseli(0, 2 * mpmath.sqrt(k * (1 + k) * g))


def nakagami_density(m: float):
    return lambda g: mpmath.mpf(m) ** m * g ** (m - 1) * mpmath.exp(-m * g) / mpmath.gamma(m)


BREAKS = [0, 1e-7, 1e-5, 1e-3, 0.1, 0.5, 1, 2, 4, 8, 16, 40, 120]


@pytest.mark.parametrize("decibels", DECIBELS)
def test_rayleigh_closed_form_equals_integration(decibels):
    snr = channel.snr_from_decibels(decibels)
    expected = integrated_efficiency(snr, lambda g: mpmath.exp(-g), BREAKS)
    assert channel.efficiency_rayleigh(snr) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("decibels", DECIBELS)
@pytest.mark.parametrize("k", [0.3, 5.0, 30.0])
def test_rician_quadrature_equals_integration(decibels, k):
    snr = channel.snr_from_decibels(decibels)
    expected = integrated_efficiency(snr, rician_density(k), [b for b in BREAKS if b <= 40])
    assert channel.efficiency_rician(snr, k) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("decibels", DECIBELS)
@pytest.mark.parametrize("m", [0.5, 1.7, 12.0])
def test_nakagami_quadrature_equals_integration(decibels, m):
    snr = channel.snr_from_decibels(decibels)
    expected = integrated_efficiency(snr, nakagami_density(m), BREAKS)
    assert channel.efficiency_nakagami(snr, m) == pytest.approx(expected, rel=1e-9 if m < 1 else 1e-11)


@pytest.mark.parametrize("decibels", DECIBELS)
def test_special_cases_agree_with_each_other(decibels):
    snr = channel.snr_from_decibels(decibels)
    rayleigh = channel.efficiency_rayleigh(snr)
    assert channel.efficiency_rician(snr, 0.0) == pytest.approx(rayleigh, rel=1e-13)
    assert channel.efficiency_nakagami(snr, 1.0) == pytest.approx(rayleigh, rel=1e-13)
    still = channel.efficiency_without_fading(snr)
    assert channel.efficiency_nakagami(snr, 1e9) == pytest.approx(still, rel=1e-8)
    assert channel.efficiency_rician(snr, 1e9) == pytest.approx(still, rel=1e-8)


@settings(deadline=None, max_examples=60)
@given(decibels=st.floats(-60, 60), k=st.floats(0, 50), m=st.floats(0.5, 50))
def test_fading_never_helps_on_average(decibels, k, m):
    snr = channel.snr_from_decibels(decibels)
    still = channel.efficiency_without_fading(snr)
    for faded in (channel.efficiency_rician(snr, k), channel.efficiency_nakagami(snr, m)):
        assert 0.0 < faded <= still * (1 + 1e-12)


def test_no_signal_carries_nothing():
    assert channel.efficiency_rayleigh(0.0) == channel.efficiency_rician(0.0, 2.0) == 0.0


@settings(deadline=None)
@given(st.floats(-60, 60) | st.floats(-1.8, -1.7))
def test_rayleigh_keeps_its_digits_where_the_method_changes_and_everywhere_else(decibels):
    snr = channel.snr_from_decibels(decibels)
    with mpmath.workdps(40):
        exact = float(mpmath.exp(1 / mpmath.mpf(snr)) * mpmath.e1(1 / mpmath.mpf(snr)) / mpmath.log(2))
    assert channel.efficiency_rayleigh(snr) == pytest.approx(exact, rel=3e-15)


def test_trace_of_a_simulated_channel_approaches_the_closed_form():
    gains = np.random.default_rng(3).exponential(size=400_000)
    assert channel.efficiency_trace(10.0, gains) == pytest.approx(channel.efficiency_rayleigh(10.0), rel=5e-3)


def test_trace_is_scaled_to_the_given_mean_snr():
    gains = np.array([1.0, 3.0])
    expected = (math.log2(1 + 10 * 0.5) + math.log2(1 + 10 * 1.5)) / 2
    assert channel.efficiency_trace(10.0, gains) == pytest.approx(expected, rel=1e-15)
    assert channel.efficiency_trace(10.0, 7e3 * gains) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("gains", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")]])
def test_a_trace_without_power_is_refused(gains):
    with pytest.raises(InvalidInputError, match="gains"):
        channel.efficiency_trace(1.0, np.array(gains))
