"""The GPU model, and its fit to noisy synthetic measurements of a known device."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewjoules.errors import InvalidInputError
from fewjoules.physics.gpu import GPU_COLUMNS, GpuModel, fit_gpu, read_gpu_measurements

KNOWN = GpuModel(
    static_watts=3.0,
    memory_watts_per_hertz=9.4e-10,
    core_watts_per_volt2_hertz=5.4e-9,
    static_seconds=0.002,
    memory_cycles=1.25e6,
    core_cycles=17.2e6,
)


def measure(model: GpuModel, noise: float, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    core, memory = (grid.ravel() for grid in np.meshgrid(np.linspace(3e8, 9e8, 8), np.linspace(8e8, 16e8, 5)))
    volts = 0.7 + 0.4e-9 * core
    power = [
        model.power_watts(core_volts=v, core_hertz=f, memory_hertz=m)
        for v, f, m in zip(volts, core, memory, strict=True)
    ]
    time = [model.step_seconds(core_hertz=f, memory_hertz=m) for f, m in zip(core, memory, strict=True)]
    return {
        "core_volts": volts,
        "core_hertz": core,
        "memory_hertz": memory,
        "power_watts": np.array(power) * (1 + noise * rng.standard_normal(core.size)),
        "step_seconds": np.array(time) * (1 + noise * rng.standard_normal(core.size)),
    }


def test_energy_of_a_step_is_power_times_time_by_hand():
    clocks = {"core_hertz": 1e9, "memory_hertz": 1.6e9}
    power = 3.0 + 9.4e-10 * 1.6e9 + 5.4e-9 * 1.1**2 * 1e9
    time = 0.002 + 1.25e6 / 1.6e9 + 17.2e6 / 1e9
    assert KNOWN.step_joules(core_volts=1.1, **clocks) == pytest.approx(power * time, rel=1e-15)


def test_the_fit_recovers_a_known_device_from_exact_measurements():
    fit = fit_gpu(measure(KNOWN, noise=0.0))
    for name in ("static_watts", "memory_watts_per_hertz", "core_watts_per_volt2_hertz", "static_seconds"):
        assert getattr(fit.model, name) == pytest.approx(getattr(KNOWN, name), rel=1e-9)
    assert fit.power_rms_watts < 1e-9
    assert fit.time_rms_seconds < 1e-12


def test_the_fit_recovers_a_known_device_within_its_standard_errors():
    """Six coefficients in 50 repetitions: 2 standard errors hold about 95 % of them."""
    hits = []
    for seed in range(50):
        fit = fit_gpu(measure(KNOWN, noise=0.01, seed=seed))
        hits += [
            abs(getattr(fit.model, name) - getattr(KNOWN, name)) < 2 * error
            for name, error in fit.standard_errors.items()
        ]
    assert 0.88 < np.mean(hits) < 0.99


def test_residuals_are_measured_minus_modelled():
    data = measure(KNOWN, noise=0.02)
    fit = fit_gpu(data)
    modelled = fit.model.power_watts(
        core_volts=data["core_volts"], core_hertz=data["core_hertz"], memory_hertz=data["memory_hertz"]
    )
    np.testing.assert_allclose(fit.power_residuals_watts, data["power_watts"] - modelled, rtol=0, atol=1e-12)
    assert fit.power_rms_watts == pytest.approx(np.sqrt(np.mean(fit.power_residuals_watts**2)))


def test_a_coefficient_that_no_device_can_have_is_refused_by_name():
    data = measure(KNOWN, noise=0.0)
    data["power_watts"] = 20.0 - 5e-9 * data["memory_hertz"] + 5.4e-9 * data["core_volts"] ** 2 * data["core_hertz"]
    with pytest.raises(InvalidInputError, match=r"memory_watts_per_hertz = -5e-09 .* not physical"):
        fit_gpu(data)


def test_clocks_that_never_vary_apart_are_refused():
    data = measure(KNOWN, noise=0.0)
    data["memory_hertz"] = 2.0 * data["core_hertz"]
    with pytest.raises(InvalidInputError, match="cannot tell"):
        fit_gpu(data)


@pytest.mark.parametrize("clock", ["core_hertz", "memory_hertz"])
def test_a_clock_that_never_varies_is_named(clock):
    data = measure(KNOWN, noise=0.0)
    data[clock] = np.full_like(data[clock], 1.6e9)
    with pytest.raises(InvalidInputError, match=f"{clock} must vary .* got 1.6e"):
        fit_gpu(data)


def test_too_few_rows_are_refused():
    data = {name: values[:3] for name, values in measure(KNOWN, noise=0.0).items()}
    with pytest.raises(InvalidInputError, match="at least 4 rows, got 3"):
        fit_gpu(data)


def test_measurements_are_read_from_csv_by_column_name(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("step_seconds, power_watts,memory_hertz,core_hertz,core_volts,note\n0.1,5,1e9,2e9,0.9,x\n\n")
    columns = read_gpu_measurements(str(file))
    assert {name: values.tolist() for name, values in columns.items()} == dict(
        zip(GPU_COLUMNS, ([0.9], [2e9], [1e9], [5.0], [0.1]), strict=True)
    )


@settings(max_examples=200)
@given(
    st.floats(1.0, 50.0),
    st.floats(1e-11, 1e-8),
    st.floats(0.0, 0.01),
    st.floats(1e6, 1e8),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1e-9),
)
def test_the_best_clock_in_closed_form_is_the_one_that_a_search_finds(watts, beta, static, cycles, base, slope):
    model = GpuModel(
        static_watts=watts,
        memory_watts_per_hertz=1e-9,
        core_watts_per_volt2_hertz=beta,
        static_seconds=static,
        memory_cycles=1e6,
        core_cycles=cycles,
    )
    clocks = {"memory_hertz": 1e9}

    def joules(hertz):
        return model.step_joules(core_volts=base + slope * hertz, core_hertz=hertz, **clocks)

    best = model.best_core_hertz(volts_at_zero=base, volts_per_hertz=slope, low=1e8, high=3e9, **clocks)
    grid = np.geomspace(1e8, 3e9, 2001)
    assert joules(best) <= min(map(joules, grid)) * (1 + 1e-9)


def test_at_a_fixed_voltage_the_best_clock_is_a_square_root():
    model = GpuModel(
        static_watts=5.0,
        memory_watts_per_hertz=0.0,
        core_watts_per_volt2_hertz=1e-8,
        static_seconds=0.01,
        memory_cycles=0.0,
        core_cycles=1e7,
    )
    best = model.best_core_hertz(volts_at_zero=0.9, volts_per_hertz=0.0, memory_hertz=1e9, low=1e6, high=1e10)
    assert best == pytest.approx(math.sqrt(5.0 * 1e7 / (0.01 * 1e-8 * 0.9**2)), rel=1e-9)
