"""Theorem 1 and Corollary 1 against each other and against root finding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fewjoules.convergence.bound import LearningConstants, corollary_terms, gradient_norm_bound, required_steps
from fewjoules.errors import InvalidInputError


@st.composite
def settings_of_training(draw):
    sigma = draw(st.floats(0.1, 10))
    constants = LearningConstants(
        smoothness=draw(st.floats(0.1, 10)),
        sigma=sigma,
        gradient_bound=sigma * draw(st.floats(1, 5)),
        initial_gap=draw(st.floats(0.1, 10)),
        batch=draw(st.floats(1, 256)),
    )
    where = {
        "local_steps": draw(st.integers(1, 50)),
        "devices": draw(st.integers(1, 1000)),
        "mean_square_sparsity": draw(st.floats(1, 1e6)),
    }
    return constants, where


@given(settings_of_training(), st.floats(1e-3, 10))
def test_exact_steps_solve_the_condition_of_corollary_1(training, epsilon):
    constants, where = training
    p, q = corollary_terms(constants, **where)
    steps = float(required_steps(constants, epsilon=epsilon, **where))
    assert float(p / np.sqrt(steps) + q / steps) == pytest.approx(epsilon, rel=1e-10)
    root = brentq(lambda t: p / np.sqrt(t) + q / t - epsilon, steps / 4, steps * 4, xtol=1e-12 * steps)
    assert steps == pytest.approx(root, rel=1e-9)


@given(settings_of_training(), st.floats(1e3, 1e9))
def test_theorem_1_with_the_choices_of_corollary_1_gives_its_two_terms(training, steps):
    constants, where = training
    theta = np.sqrt(constants.batch * constants.initial_gap / (constants.sigma**2 * constants.smoothness))
    steps = max(steps, 4.1 * constants.smoothness**2 * theta**2 * where["devices"])
    bound = gradient_norm_bound(constants, steps=steps, theta=theta, batch_growth=steps / (steps - 1), **where)
    p, q = corollary_terms(constants, **where)
    assert float(bound) == pytest.approx(float(p / np.sqrt(steps) + q / steps), rel=1e-6)


@given(settings_of_training(), st.floats(1e-3, 10))
def test_printed_steps_lack_the_factor_before_the_root(training, epsilon):
    constants, where = training
    p, q = corollary_terms(constants, **where)
    exact, printed = (
        float(required_steps(constants, epsilon=epsilon, form=form, **where)) for form in ("exact", "printed")
    )
    root = float(np.sqrt((p / epsilon) ** 2 / 4 + q / epsilon))
    assert exact - printed == pytest.approx((float(p) / epsilon - 1) * root, rel=1e-6, abs=1e-9 * exact)


def test_printed_steps_equal_equation_11_by_hand():
    constants = LearningConstants(smoothness=2.0, sigma=1.5, gradient_bound=3.0, initial_gap=4.0, batch=8.0)
    L, s, G, J2, b, M, H, d2, e = 2.0, 1.5, 3.0, 4.0, 8.0, 5, 7, 30.0, 0.2
    first = 8 * b * M * L * G**2 * J2 * H**2 * (4 * d2 + 1) / (e * s**2)
    expected = first + 72 * L * s**2 * J2 / (e**2 * b * M) + (first + 36 * L * s**2 * J2 / (e**2 * b * M)) ** 0.5
    steps = required_steps(constants, epsilon=e, local_steps=H, devices=M, mean_square_sparsity=d2, form="printed")
    assert float(steps) == pytest.approx(expected, rel=1e-14)


@settings(max_examples=20)
@given(settings_of_training())
def test_a_step_size_beyond_the_theorem_is_refused(training):
    constants, where = training
    with pytest.raises(InvalidInputError, match="theta"):
        gradient_norm_bound(constants, steps=1.0, theta=1e6, batch_growth=1.1, **where)


def test_a_gradient_bound_below_sigma_is_refused():
    with pytest.raises(InvalidInputError, match=r"gradient_bound must be .* at least 2"):
        LearningConstants(smoothness=1.0, sigma=2.0, gradient_bound=1.0, initial_gap=1.0, batch=1.0)
