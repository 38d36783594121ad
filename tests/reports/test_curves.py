"""What the figures show: thinned, sorted and averaged without changing what is true."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewjoules.provenance import KINDS
from fewjoules.reports import curves
from fewjoules.reports.plots import COLOURS
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_comparison, make_run


def made(folder, **changes):
    return [RunResults.load(make_run(folder / "run", **changes))]


@given(st.integers(1, 300_000), st.integers(5, 2000), st.floats(0, 1))
def test_thinning_keeps_both_ends_the_chosen_one_and_the_order(count, most, share):
    keep = int(share * (count - 1))
    chosen = curves.thinned(count, most, keep)
    assert chosen.size <= most
    assert {0, count - 1, keep} <= set(chosen.tolist())
    assert np.all(np.diff(chosen) > 0)


def test_only_evaluated_rounds_are_drawn(tmp_path):
    (curve,) = curves.accuracy_curves(made(tmp_path, evaluate_every=10, target=None))
    assert curve.x.tolist() == [10, 20, 30, 40, 50, 60]


def test_the_point_that_met_the_target_survives_thinning(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "MAX_POINTS", 9)
    (run,) = made(tmp_path)
    (curve,) = curves.accuracy_curves([run])
    assert curve.x.size <= 9
    assert curve.goal == (run.summary.rounds_to_target, curve.y[-1])


def test_an_error_of_zero_can_be_drawn_on_a_logarithmic_axis(tmp_path):
    (run,) = made(tmp_path, target=None)
    run.metrics["test_accuracy"][-1] = 1.0
    (curve,) = curves.error_curves([run])
    assert curve.y[-1] == pytest.approx(curve.y[:-1].min() / 2.0)
    assert curve.y.min() > 0.0


def test_without_joules_there_is_no_error_curve_and_no_bar(tmp_path):
    runs = made(tmp_path, joules=None)
    assert curves.error_curves(runs) == []
    assert curves.device_bars(runs) == []
    assert curves.forecasts(runs)["joules"] == []


def test_kinds_of_which_no_device_spent_a_joule_are_left_out(tmp_path):
    (run,) = made(tmp_path, downlink=True)
    run.device_joules["compute"][:] = 0.0
    (drawn,) = curves.device_bars([run])
    assert list(drawn.joules) == ["uplink", "downlink"]
    for joules in run.device_joules.values():
        joules[:] = 0.0
    (drawn,) = curves.device_bars([run])
    assert sum(values.sum() for values in drawn.joules.values()) == 0.0


def test_every_kind_of_joules_has_a_colour_that_no_run_has(tmp_path):
    known = [RunResults.load(make_run(tmp_path / name, scheme=name, rounds=4)) for name in COLOURS]
    others = [RunResults.load(make_run(tmp_path / f"own-{n}", scheme=f"own-{n}", rounds=4)) for n in range(9)]
    used = {look.colour.lower() for look in (*curves.looks(known + others), *curves.looks(others))}
    assert list(curves.KIND_COLOURS) == list(KINDS)
    assert len(set(curves.KIND_COLOURS.values())) == len(KINDS)
    assert used.isdisjoint(colour.lower() for colour in curves.KIND_COLOURS.values())


@pytest.mark.parametrize(("devices", "bars"), [(1, 1), (60, 60), (61, 61), (1000, 200), (1003, 200)])
def test_many_devices_become_sorted_means(tmp_path, devices, bars):
    (run,) = made(tmp_path, devices=devices, rounds=6)
    (drawn,) = curves.device_bars([run])
    uplink = drawn.joules["uplink"]
    assert uplink.size == bars
    assert (drawn.names is None) == (devices > 60)
    assert np.mean(uplink) == pytest.approx(run.device_joules["uplink"].mean(), rel=0.01)
    if devices > 60:
        assert np.all(np.diff(uplink) <= 0.0)


def test_many_sparsities_become_a_sorted_curve_between_the_same_ends(tmp_path):
    (run,) = made(tmp_path, devices=1000, rounds=6)
    names, (curve,) = curves.sparsity_curves([run])
    assert names is None
    assert curve.y[0] == run.summary.sparsity.max()
    assert curve.y[-1] == run.summary.sparsity.min()
    assert curve.x.size == 200


def test_a_scheme_has_one_colour_and_others_take_what_is_left(tmp_path):
    runs = [RunResults.load(folder) for folder in make_comparison(tmp_path / "known")]
    runs += [RunResults.load(make_run(tmp_path / name, scheme=name, rounds=4)) for name in ("mine", "yours", "theirs")]
    runs.append(RunResults.load(make_run(tmp_path / "again", rounds=4)))
    looks = {look.label: look for look in curves.looks(runs)}
    assert looks["flexible #1"].colour == looks["flexible #2"].colour == "#0072B2"
    assert looks["flexible #2"].repeat == 1
    assert looks["mine"].colour == "#009E73"  # of synchronous, which is absent
    assert looks["yours"].colour == "#882255"  # of fewest, which is absent
    assert looks["theirs"].repeat == 1  # drawn with dashes


def test_a_run_that_missed_the_target_is_a_lower_bound(tmp_path):
    (row,) = curves.forecasts(made(tmp_path, rounds=10))["rounds"]
    assert not row.reached
    assert row.measured == 10.0


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_a_logarithmic_axis_holds_its_values_and_at_least_two_ticks(values):
    axis = curves.log_axis(values)
    assert axis.low < min(values) <= max(values) < axis.high
    assert 2 <= len(axis.ticks) <= 9
    assert axis.high / axis.low >= 4.0
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert len(set(axis.labels)) == len(axis.labels)


@given(st.lists(st.floats(5e-324, sys.float_info.max), min_size=1, max_size=5))
def test_a_logarithmic_axis_of_any_floats_is_finite(values):
    axis = curves.log_axis(values)
    assert 0.0 < axis.low < axis.high < math.inf
    assert len(axis.ticks) >= 1


def test_ticks_are_labelled_in_full_and_large_ones_in_powers():
    assert curves.log_axis([0.01, 1.0]).labels[:3] == ("0.01", "0.02", "0.05")
    assert curves.log_axis([1e3, 1e6]).labels == ("1,000", "10,000", "1e5", "1e6")


def test_short_names_keep_their_number():
    assert curves.short("a-very-long-name-of-a-device #12") == "a-very-long-n… #12"
    assert len(curves.short("x" * 60)) == curves.SHORT_NAME


@given(st.integers(1, 1000), st.integers(1, 30))
def test_names_are_spread_evenly_from_the_first(count, most):
    shown = curves.spread(count, most)
    assert 1 <= len(shown) <= most
    assert shown[0] == 0
    assert len(set(np.diff(shown))) <= 1
