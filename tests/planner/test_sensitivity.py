"""The band of joules and the savings of other plans, against laws drawn at random and against new fits."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fewjoules as fj
from fewjoules.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
from fewjoules.convergence.intervals import LawIntervals
from fewjoules.planner.sensitivity import sensitivity
from tests.scenarios import without_tails

MEASURED = PilotRuns.from_csv(Path(__file__).parents[2] / "examples" / "pilot-runs-digits.csv")
FIT = fit_power_law_rounds(MEASURED)
PROBLEM = replace(without_tails().problem(), rounds=FIT.model)
PLAN = fj.solve(PROBLEM)
OTHERS = [scheme(PROBLEM) for scheme in (fj.schemes.unified, fj.schemes.synchronous, fj.schemes.dense)]
BOX = LawIntervals(FIT.model, FIT.intervals)
ELLIPSOID = LawIntervals(FIT.model, FIT.intervals, FIT.correlations)


def joules(plan: fj.Plan, law: fj.RoundsModel) -> float:
    return replace(PROBLEM, rounds=law).costs(plan.local_steps, plan.sparsity).energy_joules


def drawn_from_the_box(rng: np.random.Generator) -> fj.PowerLawRounds:
    return replace(FIT.model, **{name: rng.uniform(low, high) for name, (low, high) in FIT.intervals.items()})


def drawn_from_the_ellipsoid(rng: np.random.Generator) -> fj.PowerLawRounds:
    """Draw a law from the surface of the ellipsoid, by a Cholesky root of the covariance."""
    low, high = (np.array([ends[side] for ends in FIT.intervals.values()]) for side in (0, 1))
    logs = np.array([True, True, False, True])
    low, high = np.where(logs, np.log(low), low), np.where(logs, np.log(high), high)
    correlation = np.eye(4)
    for (i, j), value in zip([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], FIT.correlations, strict=True):
        correlation[i, j] = correlation[j, i] = value
    direction = rng.standard_normal(4)
    step = (high - low) / 2 * (np.linalg.cholesky(correlation) @ (direction / np.linalg.norm(direction)))
    centre = np.array(list(asdict(FIT.model).values()))
    theta = np.where(logs, np.log(centre), centre) + step
    return fj.PowerLawRounds(**dict(zip(FIT.intervals, np.where(logs, np.exp(theta), theta).tolist(), strict=True)))


@pytest.mark.parametrize(
    ("intervals", "draw", "reach"),
    [(BOX, drawn_from_the_box, 0.6), (ELLIPSOID, drawn_from_the_ellipsoid, 0.9)],
    ids=["box", "ellipsoid"],
)
def test_no_law_within_the_intervals_leaves_the_band_or_saves_more(intervals, draw, reach):
    found = sensitivity(PROBLEM, PLAN, intervals, others=OTHERS)
    rng = np.random.default_rng(0)
    laws = [draw(rng) for _ in range(2000)]
    ours = np.array([joules(PLAN, law) for law in laws])
    slack = 0.003 * PLAN.energy_joules  # the ellipsoid's extremes are those of a linear function
    assert found.least_joules - slack <= ours.min()
    assert ours.max() <= found.most_joules + slack
    assert np.ptp(ours) > reach * (found.most_joules - found.least_joules)
    for other, saving in zip(OTHERS, found.savings, strict=True):
        drawn = 1.0 - np.array([joules(other, law) for law in laws]) / ours
        assert drawn.max() <= saving + 0.003
    assert found.best_saving >= max(found.savings) - 1e-9


def test_the_band_of_a_box_is_at_its_corners():
    found = sensitivity(PROBLEM, PLAN, BOX)
    lowest, highest = (
        replace(FIT.model, **{name: ends[side] for name, ends in FIT.intervals.items()}) for side in (0, 1)
    )
    assert found.least_joules == pytest.approx(joules(PLAN, lowest), rel=1e-9)
    assert found.most_joules == pytest.approx(joules(PLAN, highest), rel=1e-9)


def test_the_band_is_as_wide_as_new_measurements_would_scatter():
    """Pilot runs with fresh noise of the same size are fitted anew; t standard deviations are 95 %."""
    rng = np.random.default_rng(1)
    runs = MEASURED.rounds.size
    noise = FIT.rms_log_residual * np.sqrt(runs / (runs - 4))
    fitted = MEASURED.rounds * np.exp(-FIT.log_residuals)
    logs = []
    for _ in range(150):
        rounds = fitted * np.exp(noise * rng.standard_normal(runs))
        logs.append(np.log(joules(PLAN, fit_power_law_rounds(replace_rounds(rounds)).model)))
    found = sensitivity(PROBLEM, PLAN, ELLIPSOID)
    half_width = 0.5 * np.log(found.most_joules / found.least_joules)
    assert half_width == pytest.approx(stats.t.ppf(0.975, runs - 4) * np.std(logs), rel=0.2)


def replace_rounds(rounds: np.ndarray) -> PilotRuns:
    return PilotRuns.of(MEASURED.sparsity, MEASURED.local_steps, rounds)


def test_the_best_plan_elsewhere_is_the_optimum_of_a_law_within_the_intervals():
    found = sensitivity(PROBLEM, PLAN, ELLIPSOID, others=OTHERS)
    assert found.best is not None
    assert PLAN.local_steps == 1
    assert found.best.local_steps == 20
    assert 0.02 < found.best_saving < 0.15


def test_constants_without_an_interval_are_taken_as_exact():
    none = sensitivity(PROBLEM, PLAN, LawIntervals(FIT.model, {"tau": (FIT.model.tau, FIT.model.tau)}))
    assert none.least_joules == pytest.approx(PLAN.energy_joules)
    assert none.most_joules == pytest.approx(PLAN.energy_joules)
    assert none.best_saving < 1e-8
    tau = sensitivity(PROBLEM, PLAN, LawIntervals(FIT.model, {"tau": (FIT.model.tau / 2, FIT.model.tau * 3)}))
    assert tau.least_joules == pytest.approx(PLAN.energy_joules / 2)
    assert tau.most_joules == pytest.approx(PLAN.energy_joules * 3)
    assert tau.best_saving < 1e-8, "tau scales every plan alike"


def test_the_papers_law_has_a_band_too():
    fit = fit_paper_rounds(MEASURED, devices=12)
    problem = replace(PROBLEM, rounds=fit.model)
    plan = fj.solve(problem)
    found = sensitivity(problem, plan, LawIntervals(fit.model, fit.intervals, fit.correlations))
    assert found.least_joules < 0.95 * plan.energy_joules < 1.05 * plan.energy_joules < found.most_joules


def test_laws_under_which_batteries_are_too_small_are_left_out():
    needed = PLAN.rounds * PROBLEM.round_joules(PLAN.local_steps, PLAN.sparsity)
    fleet = fj.Fleet(
        joules_per_bit=PROBLEM.fleet.joules_per_bit,
        joules_per_step=PROBLEM.fleet.joules_per_step,
        battery_joules=1.001 * needed,
    )
    problem = replace(PROBLEM, fleet=fleet)
    found = sensitivity(problem, fj.solve(problem), ELLIPSOID)
    assert found.most_joules > 1.05 * PLAN.energy_joules


LAW = fj.PaperRounds(alpha=1.0, beta=2.0)


@pytest.mark.parametrize(
    ("intervals", "correlations", "message"),
    [
        ({"gamma": (0.0, 1.0)}, None, "intervals must be of alpha, beta, got one of 'gamma'"),
        ({"alpha": (2.0, 3.0)}, None, "the interval of alpha must hold alpha = 1, got 2 to 3"),
        ({"alpha": (float("nan"), 3.0)}, None, "must hold alpha = 1"),
        ({"alpha": (0.5, 3.0)}, [0.5], "correlations need intervals of alpha, beta"),
        ({"alpha": (0.5, 3.0), "beta": (1.0, 3.0)}, [0.5, 0.1], "correlations must be 1 number, got 2"),
        ({"alpha": (0.5, 3.0), "beta": (1.0, 3.0)}, [1.5], "correlations must be .* at most 1, got 1.5"),
    ],
)
def test_impossible_intervals_are_refused(intervals, correlations, message):
    with pytest.raises(fj.InvalidInputError, match=message):
        LawIntervals(LAW, intervals, correlations)


def test_correlations_that_contradict_each_other_are_refused():
    with pytest.raises(fj.InvalidInputError, match="negative eigenvalues"):
        LawIntervals(FIT.model, FIT.intervals, [0.9, 0.9, -0.9, 0.9, 0.9, 0.9])
