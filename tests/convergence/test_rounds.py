"""What every rounds model promises: positive, increasing and concave in the mean power, with its true slope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules import BoundRounds, InvalidInputError, PaperRounds, PowerLawRounds

MODELS = {
    "paper": PaperRounds(alpha=1e-4, beta=100.0),
    "exact": BoundRounds(
        smoothness=1.0, sigma=1.0, gradient_bound=2.0, initial_gap=1.0, batch=32.0, epsilon=0.1, form="exact"
    ),
    "printed": BoundRounds(
        smoothness=1.0, sigma=1.0, gradient_bound=2.0, initial_gap=1.0, batch=32.0, epsilon=0.1, form="printed"
    ),
    "power law": PowerLawRounds(tau=2059.0, c=0.0043, a=0.5, q=0.6),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
powers = st.floats(1.0, 1e6)


@models
@given(s=powers, ratio=st.floats(1.001, 100.0), H=st.integers(1, 50), M=st.integers(1, 10**6))
def test_rounds_are_positive_increasing_and_concave(model, s, ratio, H, M):
    t = s * ratio
    low, middle, high = (float(model.rounds(x, H, M)) for x in (s, (s + t) / 2, t))
    assert 0.0 < low < high
    assert middle >= (low + high) / 2 * (1 - 1e-12)


@models
@given(s=powers, H=st.integers(1, 50), M=st.integers(1, 10**6))
def test_slope_is_the_derivative(model, s, H, M):
    step = 1e-4 * s
    difference = float(model.rounds(s + step, H, M) - model.rounds(s - step, H, M)) / (2 * step)
    scale = float(model.rounds(s, H, M)) / s
    assert float(model.slope(s, H, M)) == pytest.approx(difference, rel=1e-6, abs=1e-11 * scale)


@models
def test_arguments_broadcast(model):
    rounds = model.rounds(np.array([[1.0], [2.0]]), np.array([1, 2, 3]), 4)
    assert rounds.shape == model.slope(np.array([[1.0], [2.0]]), np.array([1, 2, 3]), 4).shape == (2, 3)
    assert rounds[1, 2] == model.rounds(2.0, 3, 4)


def test_paper_rounds_are_the_sum_over_devices_of_equation_23():
    sparsity, H = [5.0, 10.0, 40.0], 7
    literal = sum(1e-4 * H * delta**2 + 100.0 / (3**1.5 * H) for delta in sparsity)
    mean_power = np.mean(np.square(sparsity))
    assert float(MODELS["paper"].rounds(mean_power, H, 3)) == pytest.approx(literal, rel=1e-14)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PaperRounds(alpha=-1.0, beta=1.0), "alpha must be .* at least 0, got -1.0"),
        (lambda: PaperRounds(alpha=0.0, beta=0.0), "not both be 0"),
        (lambda: PaperRounds(alpha=float("nan"), beta=1.0), "alpha"),
        (lambda: PaperRounds(alpha=True, beta=1.0), "alpha"),
        (lambda: PowerLawRounds(tau=1.0, c=1.0, a=0.5, q=0.0), "q must be .* at least 1e-100 and at most 16, got 0"),
        (lambda: PowerLawRounds(tau=0.0, c=1.0, a=0.5, q=1.0), "tau"),
        (
            lambda: BoundRounds(smoothness=1.0, sigma=1.0, gradient_bound=1.0, initial_gap=1.0, batch=1.0, epsilon=0.0),
            "epsilon",
        ),
        (
            lambda: BoundRounds(
                smoothness=1.0, sigma=1.0, gradient_bound=1.0, initial_gap=1.0, batch=1.0, epsilon=1.0, form="about"
            ),
            "form must be one of exact, printed, got 'about'",
        ),
    ],
)
def test_constants_without_meaning_are_refused(build, message):
    with pytest.raises(InvalidInputError, match=message):
        build()
