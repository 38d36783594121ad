"""A study from pilots to curves with trainings that are made up: laws, plans, repeated waves and what was not run."""

import dataclasses
import math
import threading
from concurrent.futures import Executor, Future

import numpy as np
import pytest

import fabricated
from fewjoules.convergence.rounds import BoundRounds, PowerLawRounds
from fewjoules.errors import InvalidInputError
from fewjoules.planner import schemes
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.pool import Means
from fewjoules_reproduction.records import Records
from fewjoules_reproduction.results import Curves, carry_out_study, spread
from fewjoules_reproduction.studies import STUDIES, TUNING_SEED, Scale, Setting, baseline_settings

LAW = PowerLawRounds(tau=300.0, c=0.02, a=0.6, q=0.55)
CONSTANTS = {"smoothness": 2.0, "sigma": 1.0, "gradient_bound": 2.0, "initial_gap": 2.0, "batch": 16.0, "epsilon": 0.1}
SCALE = Scale(
    sparsities=(1.0, 20.0, 100.0, 400.0),
    local_steps=(1, 5, 20),
    learning_rates=(0.2, 0.4, 0.1),
    pilot_accuracy=0.9,
    pilot_steps=5000,
    pilot_resolution=10,
    steps=10,
    resolution=5,
    targets=(0.92, 0.95),
    seeds=(0, 1, 2),
)
PLANNED = {*schemes.SCHEMES, "flexible-paper", "flexible-bound"}
BASELINES = {setting.name for setting in baseline_settings(12)}


class StoppedError(Exception):
    """Somebody ended the trainings."""


class Pretended(Executor):
    """Trainings that end at once: pilots follow ``law``, tuned to 0.4 but for ``missed`` ones, runs reach 0.96.

    ``diverging`` ones end at 0.93, ``diverging_late`` ones after 0.96.
    """

    def __init__(self, *, law=LAW, diverging=(), diverging_late=(), missed=(), patience=10**9):
        self.law, self.diverging, self.diverging_late = law, diverging, diverging_late
        self.missed, self.patience = missed, patience
        self.asked, self.stopping = [], False

    def submit(self, _make, job, _device, _data_dir):
        future = Future()
        if len(self.asked) == self.patience:
            if not self.stopping:  # a little later, so that what came before is kept
                threading.Timer(0.05, future.set_exception, [StoppedError()]).start()
            self.stopping = True
            return future
        self.asked.append(f"{job.study}/{job.name}")
        future.set_result({"constants": self._constants, "tune": self._tuned, "run": self._run}[job.kind](job))
        return future

    def _constants(self, _job):
        return CONSTANTS

    def _tuned(self, job):
        steps, sparsity = job.setting.local_steps, job.setting.sparsity
        rounds = float(self.law.rounds(np.mean(sparsity**self.law.q), steps, sparsity.size))
        missed = job.setting.name in self.missed or "all" in self.missed
        return {
            "local_steps": steps,
            "sparsity": sparsity.tolist(),
            "learning_rate": 0.4 * job.setting.rate_scale,
            "rounds": None if missed else rounds,
        }

    def _run(self, job):
        reason = "diverged" if job.name in (*self.diverging, *self.diverging_late) else "rounds"
        accuracies = [0.5, 0.89, 0.91, 0.93, 0.96][: 4 if job.name in self.diverging else 5]
        record = fabricated.record(accuracies, joules=7.0, stop=reason)
        return {key: value for key, value in record.items() if key != "order"}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for name in ("digits", "digits-lte", "digits-dirichlet"):
        monkeypatch.setitem(STUDIES, name, dataclasses.replace(STUDIES[name], scale=SCALE))


def carried_out(folder, executor=None, study="digits", **more):
    chosen = STUDIES[study]
    means = Means(records=Records(folder), executor=executor, **more)
    return carry_out_study(chosen, embedded_scenario(chosen.scenario), means)


def from_records(folder, study="digits"):
    return carried_out(folder, study=study, train=False)


def seeds(name, rate):
    return [f"run-{name}-rate{rate:.4g}-seed{seed}" for seed in SCALE.seeds]


def runs_of(executor, name):
    return [asked.split("/")[1] for asked in executor.asked if f"/run-{name}-rate" in asked]


# --- Pilots, laws and plans


def test_a_study_without_records_is_pilot_runs_that_were_not_run(tmp_path):
    found = from_records(tmp_path)
    assert (found.pilots, dict(found.curves), list(found.not_run)) == (None, {}, ["pilot runs"])


@pytest.mark.parametrize("patience", [0, 5, 12, 13])
def test_pilots_that_were_interrupted_are_not_run_either(tmp_path, patience):
    with pytest.raises(StoppedError):
        carried_out(tmp_path, Pretended(patience=patience))
    assert from_records(tmp_path).not_run == ["pilot runs"]


def test_laws_are_those_that_the_pilots_follow(tmp_path):
    pilots = carried_out(tmp_path, Pretended()).pilots
    grid = {(s, h) for h in SCALE.local_steps for s in SCALE.sparsities}
    assert set(zip(pilots.runs.sparsity, pilots.runs.local_steps, strict=True)) == grid
    fitted = pilots.power_law.model
    for sparsity, steps in grid:
        expected = LAW.rounds(sparsity**LAW.q, steps, 12)
        assert fitted.rounds(sparsity**fitted.q, steps, 12) == pytest.approx(expected, rel=1e-3)
    assert pilots.bound == BoundRounds(**CONSTANTS)
    assert pilots.missed == 0
    np.testing.assert_array_equal(pilots.rates, np.full(12, 0.4))


def test_every_scheme_is_planned_by_the_power_law_and_the_flexible_one_by_each_law(tmp_path):
    found = carried_out(tmp_path, Pretended())
    assert found.curves.keys() == BASELINES | PLANNED
    problem = found.scenario.problem()
    by_law = dataclasses.replace(problem, rounds=LAW)
    for name, scheme in schemes.SCHEMES.items():
        plan, own = found.curves[name].plan, scheme(by_law)
        assert plan.energy_joules == pytest.approx(own.energy_joules, rel=1e-2), name
        assert plan.local_steps == found.curves[name].setting.local_steps
        np.testing.assert_array_equal(plan.sparsity, found.curves[name].setting.sparsity)
    for name, rounds in (("flexible-paper", found.pilots.paper.model), ("flexible-bound", BoundRounds(**CONSTANTS))):
        own = schemes.flexible(dataclasses.replace(problem, rounds=rounds))
        assert found.curves[name].plan.energy_joules == pytest.approx(own.energy_joules, rel=1e-6)
        assert found.curves[name].plan.local_steps == own.local_steps
    assert all(found.curves[name].plan is None for name in BASELINES)


def test_pilots_that_missed_are_counted_and_left_out_of_the_laws(tmp_path):
    pilots = carried_out(tmp_path, Pretended(missed=("pilot-h20-delta400", "pilot-h20-delta100"))).pilots
    assert pilots.missed == 2
    assert pilots.runs.rounds.size == pilots.rates.size == 10
    assert not np.any((pilots.runs.sparsity >= 100.0) & (pilots.runs.local_steps == 20.0))


def test_without_enough_pilots_the_law_is_refused_and_nothing_is_planned(tmp_path):
    missed = [f"pilot-h{h}-delta{s:g}" for h in SCALE.local_steps for s in SCALE.sparsities]
    found = carried_out(tmp_path, Pretended(missed=missed[2:]))
    assert found.pilots.power_law is None
    (why,) = found.not_run
    assert why == f"plans ({found.pilots.refused['power-law']})"
    assert found.curves == {}


def test_where_no_pilot_reached_its_accuracy_nothing_is_planned(tmp_path):
    found = carried_out(tmp_path, Pretended(missed=("all",)))
    assert found.curves == {}
    (why,) = found.not_run
    assert why.startswith("plans (")


def test_growth_is_from_the_pilot_accuracy_to_each_target_in_the_reference_run(tmp_path):
    executor = Pretended()
    found = carried_out(tmp_path, executor)
    assert found.pilots.growth == {0.92: 40.0 / 30.0, 0.95: 50.0 / 30.0}
    assert f"digits/run-reference-rate0.4-seed{TUNING_SEED}" in executor.asked


def test_a_study_plans_by_the_pilots_of_another_and_has_baselines_only_where_it_says(tmp_path):
    carried_out(tmp_path, Pretended())
    executor = Pretended()
    found = carried_out(tmp_path, executor, "digits-dirichlet")
    assert found.curves.keys() == PLANNED
    assert all(asked.startswith("digits-dirichlet/") for asked in executor.asked)
    assert not any("pilot" in asked or "constants" in asked or "reference" in asked for asked in executor.asked)


# --- Waves


def test_every_setting_runs_with_every_seed_at_its_tuned_step_size(tmp_path):
    found = carried_out(tmp_path, Pretended())
    assert found.not_run == []
    for name, curve in found.curves.items():
        assert curve.learning_rate == pytest.approx(0.4 * curve.setting.rate_scale), name
        assert len(curve.runs) == 3
        assert not curve.lost(0.95)


def test_a_seed_that_diverges_sends_all_seeds_of_its_setting_to_the_next_smaller_step_size(tmp_path):
    executor = Pretended(diverging=("run-dense-rate0.4-seed1",))
    found = carried_out(tmp_path, executor)
    assert runs_of(executor, "dense") == seeds("dense", 0.4) + seeds("dense", 0.2)
    assert runs_of(executor, "momentum") == seeds("momentum", 0.4)
    assert found.curves["dense"].learning_rate == 0.2
    assert [run["order"]["learning_rate"] for run in found.curves["dense"].runs] == [0.2, 0.2, 0.2]
    assert found.curves["momentum"].learning_rate == 0.4
    assert found.not_run == []


def test_a_seed_that_diverges_after_it_reached_the_main_target_stays(tmp_path):
    executor = Pretended(diverging_late=("run-dense-rate0.4-seed1",))
    found = carried_out(tmp_path, executor)
    assert runs_of(executor, "dense") == seeds("dense", 0.4)
    assert found.curves["dense"].learning_rate == 0.4
    assert [found.curves["dense"].lost(target) for target in (0.92, 0.95, 0.97)] == [False, False, True]
    assert found.not_run == []


def test_scaled_step_sizes_shrink_by_their_own_scale(tmp_path):
    scale = next(setting for setting in baseline_settings(12) if setting.name == "qsgd").rate_scale
    executor = Pretended(diverging=(f"run-qsgd-rate{0.4 * scale:.4g}-seed0",))
    assert carried_out(tmp_path, executor).curves["qsgd"].learning_rate == pytest.approx(0.2 * scale)


def test_where_no_smaller_step_size_is_left_the_setting_stays_diverged(tmp_path):
    diverging = [name for rate in (0.4, 0.2, 0.1) for name in seeds("dense", rate)[1:2]]
    executor = Pretended(diverging=diverging)
    found = carried_out(tmp_path, executor)
    assert runs_of(executor, "dense") == seeds("dense", 0.4) + seeds("dense", 0.2) + seeds("dense", 0.1)
    assert found.curves["dense"].learning_rate == 0.1
    assert found.curves["dense"].lost(0.95)
    assert [run["stop_reason"] for run in found.curves["dense"].runs] == ["rounds", "diverged", "rounds"]
    assert found.not_run == []


# --- From records


def remove(folder, *names):
    for name in names:
        (folder / "digits" / f"{name}.json").unlink()


def test_records_alone_give_the_same_results_and_nothing_is_trained_twice(tmp_path):
    executor = Pretended(diverging=("run-dense-rate0.4-seed1",))
    made, again = carried_out(tmp_path, executor), from_records(tmp_path)
    nothing = Pretended(patience=0)
    third = carried_out(tmp_path, nothing)
    assert nothing.asked == []
    for other in (again, third):
        assert other.not_run == made.not_run
        assert {n: (c.learning_rate, c.runs) for n, c in other.curves.items()} == {
            n: (c.learning_rate, c.runs) for n, c in made.curves.items()
        }
        assert other.pilots.growth == made.pilots.growth
    assert len(set(executor.asked)) == len(executor.asked)


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path):
    whole = Pretended()
    made = carried_out(tmp_path / "whole", whole)
    parts = []
    for patience in (7, 9, 11, 10**9):
        executor = Pretended(patience=patience)
        try:
            found = carried_out(tmp_path / "parts", executor)
        except StoppedError:
            continue
        finally:
            parts += executor.asked
    assert sorted(parts) == sorted(whole.asked)
    assert {n: c.runs for n, c in found.curves.items()} == {n: c.runs for n, c in made.curves.items()}


def test_missing_seeds_are_named_with_how_many_there_are(tmp_path):
    carried_out(tmp_path, Pretended())
    remove(tmp_path, *seeds("momentum", 0.4)[1:], *seeds("stc", 0.4))
    found = from_records(tmp_path)
    assert found.not_run == ["stc (0 of 3 seeds)", "momentum (1 of 3 seeds)"]
    assert len(found.curves["momentum"].runs) == 1
    assert found.curves["stc"].runs == []


def test_a_setting_that_was_not_tuned_has_no_runs_and_no_step_size(tmp_path):
    carried_out(tmp_path, Pretended())
    remove(tmp_path, "tune-stc")
    found = from_records(tmp_path)
    assert found.not_run == ["stc (0 of 3 seeds)"]
    assert found.curves["stc"].learning_rate is None


def test_runs_to_be_repeated_at_a_smaller_step_size_are_named(tmp_path):
    carried_out(tmp_path, Pretended(diverging=("run-momentum-rate0.4-seed2",)))
    remove(tmp_path, *seeds("momentum", 0.2))
    found = from_records(tmp_path)
    assert found.not_run == ["momentum again at step size 0.2, since a seed diverged at 0.4"]
    assert found.curves["momentum"].learning_rate == 0.4
    remove(tmp_path, *seeds("momentum", 0.4)[:1])
    assert from_records(tmp_path).not_run == ["momentum (2 of 3 seeds)"]


def test_a_damaged_record_is_refused_by_name(tmp_path):
    carried_out(tmp_path, Pretended())
    (tmp_path / "digits" / "run-stc-rate0.4-seed0.json").write_text("[]")
    with pytest.raises(InvalidInputError, match=r"run-stc-rate0\.4-seed0\.json"):
        from_records(tmp_path)


# --- Numbers of curves


def curves(*accuracies, column=(1.0, 2.0, 3.0)):
    runs = [
        {"stop_reason": "rounds", "curve": {"test_accuracy": list(own), "total_joules": list(column)}}
        for own in accuracies
    ]
    return Curves(Setting("some", 1, np.ones(2)), None, 0.1, runs)


def test_a_target_counts_from_where_it_was_first_reached():
    found = curves((0.5, 0.8, 0.7), (0.8, 0.1, 0.9), (0.1, 0.2, 0.3)).to_target(0.8, "total_joules")
    np.testing.assert_array_equal(found, [2.0, 1.0, math.nan])


def test_a_run_with_an_empty_curve_reached_nothing():
    np.testing.assert_array_equal(curves((), column=()).to_target(0.1, "total_joules"), [math.nan])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 6.0], (3.0, 1.0, 6.0)),
        ([4.0], (4.0, 4.0, 4.0)),
        ([], (math.nan,) * 3),
        ([1.0, math.nan], (math.nan,) * 3),
    ],
)
def test_spread_is_mean_least_and_largest_unless_a_seed_missed(values, expected):
    assert spread(values) == pytest.approx(expected, nan_ok=True)
