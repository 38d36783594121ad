"""The baselines of the reproduction are the presets of their names."""

import numpy as np
import pytest

from fewjoules.codec import compressors
from fewjoules.engine.algorithm.presets import preset_options
from fewjoules_reproduction.studies import baseline_settings


def baseline(name):
    return next(setting for setting in baseline_settings(3) if setting.name == name)


@pytest.mark.parametrize("name", ["stc", "qsparse"])
def test_a_baseline_has_local_steps_sparsity_and_options_of_its_preset(name):
    options = preset_options(name)
    assert baseline(name).local_steps == options["local_steps"]
    assert np.all(baseline(name).sparsity == options["sparsity"])
    assert baseline(name).changes.items() <= options.items()


def test_the_baseline_qsgd_takes_the_steps_of_its_preset():
    """The baseline divides by 1 + omega and scales its step size up by as much; the preset does neither."""
    qsgd, options = baseline("qsgd"), preset_options("qsgd")
    assert (qsgd.local_steps, qsgd.changes["levels"]) == (options["local_steps"], options["levels"])
    assert qsgd.changes["error_feedback"] is options["error_feedback"] is False
    update = np.random.default_rng(0).standard_normal(3000, dtype=np.float32)
    nothing = np.zeros_like(update)
    divided, _ = compressors.qsgd(update, nothing, 15, np.random.default_rng(1))
    whole = compressors.none(update, nothing)
    plain, _ = compressors.with_values(*whole, options["values"], levels=15, rng=np.random.default_rng(1))
    np.testing.assert_allclose(qsgd.rate_scale * divided.to_dense(), plain.to_dense(), rtol=1e-6)
