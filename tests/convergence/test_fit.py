"""Fits of rounds models: known constants are recovered, intervals cover, contradictions are refused."""

from pathlib import Path

import numpy as np
import pytest

from fewjoules.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
from fewjoules.convergence.rounds import PaperRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError

MEASURED = Path(__file__).parents[2] / "examples" / "pilot-runs.csv"
SPARSITY, STEPS = (grid.ravel() for grid in np.meshgrid([1.0, 5.0, 20.0, 100.0, 1000.0], [1.0, 2.0, 5.0, 20.0]))


def runs_of(model, devices: int, noise: float, seed: int = 0) -> PilotRuns:
    rng = np.random.default_rng(seed)
    rounds = model.rounds(SPARSITY**model.exponent, STEPS, devices)
    return PilotRuns.of(SPARSITY, STEPS, rounds * np.exp(noise * rng.standard_normal(rounds.size)))


def test_exact_rounds_give_back_the_constants():
    paper = fit_paper_rounds(runs_of(PaperRounds(alpha=3e-7, beta=8000.0), 12, 0.0), devices=12)
    assert (paper.model.alpha, paper.model.beta) == pytest.approx((3e-7, 8000.0), rel=1e-8)
    law = PowerLawRounds(tau=2059.0, c=0.0043, a=0.5, q=0.6)
    fitted = fit_power_law_rounds(runs_of(law, 12, 0.0)).model
    assert (fitted.tau, fitted.c, fitted.a, fitted.q) == pytest.approx((2059.0, 0.0043, 0.5, 0.6), rel=1e-6)


def test_intervals_hold_the_true_constants_about_as_often_as_they_say():
    """40 noisy tables with 4 constants each; 95 % intervals, so 160 trials miss 8 on average."""
    law = PowerLawRounds(tau=2059.0, c=0.02, a=0.5, q=0.6)
    hits = []
    for seed in range(40):
        fit = fit_power_law_rounds(runs_of(law, 12, 0.03, seed))
        hits += [low <= getattr(law, name) <= high for name, (low, high) in fit.intervals.items()]
        assert fit.rms_log_residual == pytest.approx(0.03, rel=0.6)
    assert 0.88 <= np.mean(hits) < 1.0


def test_measured_rounds_follow_the_power_law_and_not_the_bound():
    """LeNet5 on MNIST, 12 devices: the figures that docs/model.md reports."""
    runs = PilotRuns.from_csv(MEASURED)
    law, paper = fit_power_law_rounds(runs), fit_paper_rounds(runs, devices=12)
    assert law.model.tau == pytest.approx(2059.0, abs=1.0)
    assert law.model.c == pytest.approx(0.0043, abs=1e-4)
    assert law.model.a == pytest.approx(0.50, abs=0.005)
    assert law.model.q == pytest.approx(0.60, abs=0.006)
    assert law.rms_log_residual == pytest.approx(0.033, abs=0.001)
    assert paper.rms_log_residual == pytest.approx(0.125, abs=0.001)


def test_the_fit_is_the_least_squares_optimum():
    runs = PilotRuns.from_csv(MEASURED)
    fit = fit_paper_rounds(runs, devices=12)
    for alpha, beta in ((1.001, 1.0), (0.999, 1.0), (1.0, 1.001), (1.0, 0.999)):
        other = PaperRounds(alpha=fit.model.alpha * alpha, beta=fit.model.beta * beta)
        residuals = np.log(runs.rounds / other.rounds(runs.sparsity**2, runs.local_steps, 12))
        assert np.sqrt(np.mean(residuals**2)) > fit.rms_log_residual


@pytest.mark.parametrize("fit", [lambda r: fit_paper_rounds(r, devices=12), fit_power_law_rounds])
def test_rounds_that_fall_with_sparsity_contradict_the_model(fit):
    runs = PilotRuns.of(SPARSITY, STEPS, 2000.0 / STEPS / SPARSITY**0.2)
    with pytest.raises(InvalidInputError, match="contradict"):
        fit(runs)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (([1.0, 2.0], [1.0, 1.0], [5.0, 6.0]), "at least 5 rows, got 2"),
        (([1.0] * 6, [1.0, 2, 3, 4, 5, 6], [5.0] * 6), "3 different sparsity values, got 1"),
        (([1.0, 2, 3, 4, 5], [1.0] * 5, [5.0, 6, 7, 8, 9]), "2 different local_steps values, got 1"),
    ],
)
def test_a_table_that_says_too_little_is_refused(table, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_power_law_rounds(PilotRuns.of(*table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (([0.5], [1.0], [3.0]), "sparsity"),
        (([2.0], [0.0], [3.0]), "local_steps"),
        (([2.0], [1.0], [0.0]), "rounds must be above 0"),
        (([2.0, 3.0], [1.0, 1.0, 1.0], [1.0]), "equally many"),
    ],
)
def test_impossible_runs_are_refused(table, message):
    with pytest.raises(InvalidInputError, match=message):
        PilotRuns.of(*table)
