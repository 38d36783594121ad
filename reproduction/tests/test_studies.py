"""What the trainings vary: grids, baselines, and scenarios that differ in nothing but what they say."""

import itertools

import numpy as np
import pytest

from fewjoules.codec.compressors import qsgd_variance
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.pool import Job
from fewjoules_reproduction.studies import LEVELS, STUDIES, TUNING_SEED, baseline_settings, pilot_settings

EVERY = pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)


def test_studies_are_found_by_their_names():
    assert all(name == study.name for name, study in STUDIES.items())


@EVERY
def test_every_study_has_a_scenario_with_data_and_costs(study):
    scenario = embedded_scenario(study.scenario)
    assert scenario.training is not None
    assert scenario.training.data is not None
    assert scenario.architecture is not None
    assert np.all(scenario.fleet.joules_per_bit > 0.0)


@EVERY
def test_every_study_plans_by_pilots_of_its_own_model_and_fleet_size(study):
    pilots = STUDIES[study.pilots]
    assert pilots.pilots == pilots.name
    assert embedded_scenario(pilots.scenario).architecture == embedded_scenario(study.scenario).architecture
    assert len(embedded_scenario(pilots.scenario).fleet) == len(embedded_scenario(study.scenario).fleet)


@pytest.mark.parametrize(
    ("study", "first"),
    [(s, STUDIES[s.task]) for s in STUDIES.values() if s.task != s.name],
    ids=lambda study: study.name,
)
def test_studies_of_one_task_differ_only_in_what_a_bit_costs(study, first):
    ours, theirs = embedded_scenario(study.scenario), embedded_scenario(first.scenario)
    assert first.bit_scale == 1.0
    assert study.scale == first.scale
    assert ours.training == theirs.training
    assert ours.architecture == theirs.architecture
    np.testing.assert_allclose(ours.fleet.joules_per_bit, study.bit_scale * theirs.fleet.joules_per_bit, rtol=1e-6)
    np.testing.assert_allclose(ours.fleet.message_joules, study.bit_scale * theirs.fleet.message_joules, rtol=1e-6)
    np.testing.assert_array_equal(ours.fleet.joules_per_step, theirs.fleet.joules_per_step)


def test_a_dirichlet_study_differs_in_its_partition_alone():
    for name in ("mnist", "digits"):
        plain, dirichlet = (
            embedded_scenario(STUDIES[name].scenario),
            embedded_scenario(STUDIES[f"{name}-dirichlet"].scenario),
        )
        changed = {"partition": "iid", "dirichlet_concentration": None}
        assert dirichlet.training.dirichlet_concentration == 0.3
        assert dirichlet.training.model_copy(update=changed) == plain.training
        np.testing.assert_array_equal(dirichlet.fleet.joules_per_bit, plain.fleet.joules_per_bit)


@EVERY
def test_scales_can_be_carried_out(study):
    scale = study.scale
    assert scale.sparsities[0] == 1.0
    assert list(scale.sparsities) == sorted(set(scale.sparsities))
    assert list(scale.local_steps) == sorted(set(scale.local_steps))
    assert len(set(scale.learning_rates)) == len(scale.learning_rates)
    assert 0.0 < scale.pilot_accuracy <= min(scale.targets)
    assert max(scale.targets) < 1.0
    assert TUNING_SEED not in scale.seeds
    assert scale.steps % scale.resolution == 0


@EVERY
def test_the_grid_has_every_pair_once_with_one_sparsity_for_all(study):
    settings = pilot_settings(study, 5)
    pairs = [(s.local_steps, *set(s.sparsity.tolist())) for s in settings]
    assert pairs == list(itertools.product(study.scale.local_steps, study.scale.sparsities))
    assert all(s.sparsity.shape == (5,) and not s.adaptive and not s.changes for s in settings)
    assert len({Job(study.name, "tune", s).name for s in settings}) == len(settings)


@pytest.mark.parametrize("setting", baseline_settings(3), ids=lambda setting: setting.name)
def test_every_baseline_is_a_training_that_can_be_run(setting):
    options = TrainingOptions(
        local_steps=setting.local_steps, sparsity=setting.sparsity, rounds=1, learning_rate=0.1, **setting.changes
    )
    assert options.clients == 3


def test_baselines_are_what_their_papers_say():
    by_name = {setting.name: setting for setting in baseline_settings(2)}
    assert by_name.keys() == {"qsgd", "qsparse", "stc", "momentum", "adaptive"}
    assert by_name["qsgd"].changes["error_feedback"] is False
    assert by_name["qsgd"].rate_scale == 1.0 + qsgd_variance(LEVELS)  # undoes the division that error feedback needs
    assert by_name["qsparse"].changes.get("compressor", "top-k") == "top-k"
    assert by_name["qsparse"].changes["values"] == "qsgd"
    assert by_name["qsparse"].local_steps > 1
    assert by_name["stc"].changes == {"compressor": "ternary"}
    assert by_name["momentum"].changes["momentum"] == 0.9
    assert [name for name, setting in by_name.items() if setting.adaptive] == ["adaptive"]
    assert [name for name, setting in by_name.items() if setting.rate_scale != 1.0] == ["qsgd"]
