"""Numbers that can be checked by hand, on made-up results."""

import math

import pytest

from fabricated import BOUND, DEVICES, LAW, curves, like_the_paper, pilots, record, results
from fewjoules_reproduction.table import Table
from fewjoules_reproduction.tables_trainings import (
    curves_table,
    final_accuracy,
    laws_table,
    pilots_table,
    predictions_table,
    rounds_by,
    summary_table,
)

SLOW = [0.5, 0.9, 0.98, 0.984, 0.99]
FAST = [0.5, 0.98, 0.985, 0.99, 0.99]


def two_settings():
    flexible = curves("flexible", [record(SLOW, joules=2.0), record(FAST, joules=4.0, seed=1)])
    dense = curves("dense", [record(FAST, joules=20.0), record(SLOW[:3], joules=20.0, seed=1)])
    return results({"flexible": flexible, "dense": dense, "qsgd": curves("qsgd", [])}, laws=pilots())


def row(table, **wanted):
    (found,) = table.where(**wanted).rows()
    return found


def test_curves_have_a_row_for_each_look_of_each_seed():
    table = curves_table(two_settings())
    assert len(table) == 5 + 5 + 5 + 3
    third = table.where(setting="flexible", seed=1).rows()[2]
    assert third == {
        "setting": "flexible",
        "seed": 1,
        "round": 30,
        "epochs": 3.0,
        "train_accuracy": 0.985,
        "test_accuracy": 0.985,
        "test_error_percent": 1.5,
        "joules": 12.0,
        "radio_joules": 3.0,
        "compute_joules": 9.0,
        "megabytes": 3.0,
    }


def test_curves_of_chosen_settings_only():
    assert set(curves_table(two_settings(), ["dense", "stc"])["setting"]) == {"dense"}


def test_measured_rounds_and_joules_are_those_of_the_first_look_at_the_target():
    found = row(summary_table(two_settings()), setting="flexible", target=0.98)
    assert (found["rounds_mean"], found["rounds_min"], found["rounds_max"]) == (25.0, 20.0, 30.0)
    assert (found["joules_mean"], found["joules_min"], found["joules_max"]) == (7.0, 6.0, 8.0)
    assert (found["seeds"], found["reached"]) == (2, 2)


def test_a_seed_that_missed_the_target_makes_the_mean_unknown_and_is_counted():
    found = row(summary_table(two_settings()), setting="dense", target=0.985)
    assert (found["seeds"], found["reached"]) == (2, 1)
    assert math.isnan(found["joules_mean"])
    assert math.isnan(found["ratio_to_flexible"])


def test_ratios_are_to_the_cheapest_and_to_flexible():
    table = summary_table(two_settings())
    assert row(table, setting="dense", target=0.98)["ratio_to_best"] == pytest.approx(50.0 / 7.0)
    assert row(table, setting="dense", target=0.98)["ratio_to_flexible"] == pytest.approx(50.0 / 7.0)
    assert row(table, setting="flexible", target=0.98)["ratio_to_best"] == 1.0


def test_predictions_of_a_plan_grow_from_the_pilot_accuracy_to_the_target():
    given = {name: curves(name, [], rounds=100.0, joules=50.0) for name in ("flexible", "flexible-bound")}
    table = summary_table(results(given, laws=pilots(growth={0.98: 1.5, 0.985: math.nan})))
    grown = row(table, setting="flexible", target=0.98)
    assert (grown["predicted_rounds"], grown["predicted_joules"]) == (150.0, 75.0)
    assert math.isnan(row(table, setting="flexible", target=0.985)["predicted_rounds"])
    assert math.isnan(row(table, setting="flexible", target=0.99)["predicted_joules"])
    assert row(table, setting="flexible-bound", target=0.99)["predicted_rounds"] == 100.0


def test_baselines_have_no_prediction():
    found = row(summary_table(two_settings()), setting="qsgd", target=0.98)
    assert math.isnan(found["predicted_rounds"])
    assert found["seeds"] == 0
    assert set(predictions_table(like_the_paper())["setting"]).isdisjoint({"qsgd", "stc"})


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (record([0.1] * 19 + [0.5]), 0.3),  # the last tenth of 20 looks is 2
        (record([0.1, 0.2, 0.9]), 0.9),
        (record([0.9] * 5, stop="diverged"), math.nan),
        (record([]), math.nan),
    ],
)
def test_the_final_accuracy_is_a_mean_of_the_last_looks(run, expected):
    assert final_accuracy(run) == pytest.approx(expected, nan_ok=True)


def test_each_law_predicts_each_plan_and_joules_follow_from_those_of_a_round():
    given = results({"dense": curves("dense", [record(FAST)], rounds=100.0, joules=50.0)}, laws=pilots())
    by_law = {law: row(predictions_table(given), law=law, target=0.985) for law in ("power-law", "paper", "bound")}
    dense = LAW.tau * (1.0 + LAW.c)  # delta = H = 1
    assert by_law["power-law"]["predicted_rounds"] == pytest.approx(2.0 * dense, rel=0.05)
    assert by_law["bound"]["predicted_rounds"] == pytest.approx(float(BOUND.rounds(1.0, 1, DEVICES)))
    for found in by_law.values():
        assert found["predicted_joules"] == pytest.approx(0.5 * found["predicted_rounds"])
        assert (found["measured_rounds"], found["measured_joules"]) == (30.0, 3.0)


def test_pilot_runs_stand_beside_both_laws():
    table = pilots_table(two_settings())
    assert len(table) == 12
    assert table.numbers("power_law_rounds") == pytest.approx(table.numbers("rounds"), rel=0.05)
    assert table.numbers("paper_rounds") != pytest.approx(table.numbers("rounds"), rel=0.05)


def test_constants_have_their_intervals_and_a_refusal_its_reason():
    table = laws_table(results({}, laws=pilots(paper=False)))
    tau = row(table, law="power-law", constant="tau")
    assert tau["low"] < tau["value"] < tau["high"]
    assert row(table, law="paper")["note"] == "contradicted"
    assert row(table, law="bound", constant="epsilon")["value"] == 0.1
    assert row(table, law="growth", constant="0.99")["value"] == 3.0


def test_a_refused_law_predicts_nothing():
    laws = pilots(power_law=False)
    assert math.isnan(rounds_by(laws, "power-law", curves("dense", []).setting.sparsity, 1))


@pytest.mark.parametrize("table", [curves_table, summary_table, pilots_table, laws_table, predictions_table])
def test_tables_of_nothing_are_empty_and_all_are_read_back(table, tmp_path):
    assert len(table(results({}))) == 0
    full = table(two_settings())
    full.write_csv(tmp_path / "table.csv")
    assert list(Table.read_csv(tmp_path / "table.csv").columns) == list(full.columns)
