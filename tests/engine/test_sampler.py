"""Who is drawn: by energy without bias, by batteries that last, among those available at the ledger's own time."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.engine.accounts import Accounts
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.expected_costs import expected_joules
from fewjoules.engine.loop import NOBODY, ROUNDS
from fewjoules.engine.sampler import Sampler
from fewjoules.planner.participation import inclusion_probabilities
from fewjoules.provenance import KINDS
from tests.engine.simulators import residuals, simulator_of
from tests.reference.training import made_up_clients

SIZES = [5, 9, 4, 7, 6, 12]
N = len(SIZES)
CLIENTS = made_up_clients(SIZES, 6, 3, 1)
FLEET = {
    "joules_per_bit": np.geomspace(1e-5, 1e-3, N),
    "joules_per_step": 0.01,
    "seconds_per_bit": 1e-4,
    "seconds_per_step": 0.1,
}
OPTIONS = {"local_steps": 2, "sparsity": np.full(N, 2.0), "rounds": 30, "learning_rate": 0.1, "batch_size": 4}
OPTIONS |= {"participation": 0.5, "seed": 3}


def network():
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def train(fleet=FLEET, **changes):
    options = OPTIONS | changes
    return fj.train(
        network(), clients=CLIENTS, fleet=None if fleet is None else fj.Fleet(**fleet), device="cpu", **options
    )


def sampler_of(**changes):
    options = TrainingOptions.of(**OPTIONS | changes)
    return Sampler(options, np.array(SIZES), Accounts(fj.Fleet(**FLEET), options, 21), 0)


def joules_of(ledger):
    return sum(ledger[f"{kind}_joules"] for kind in KINDS)


def counts(run):
    return np.bincount(run.ledger["device"], minlength=N)


# --- By energy


@pytest.mark.parametrize("weighting", ["equal", "samples"])
def test_on_average_every_client_counts_as_much_as_if_all_took_part(weighting):
    sampler = sampler_of(sampling="energy", weighting=weighting)
    weights, rounds = np.zeros((3000, N)), np.arange(1, 3001)
    for row, number in enumerate(rounds):
        cohort = sampler.cohort(int(number))
        assert cohort.clients.size == 3
        weights[row, cohort.clients] = cohort.shares
    importance = np.array(SIZES) if weighting == "samples" else np.ones(N)
    errors = weights.std(axis=0) / np.sqrt(rounds.size)
    assert np.all(np.abs(weights.mean(axis=0) - importance / importance.sum()) <= 5.0 * errors + 1e-12)
    assert np.ptp((weights > 0).mean(axis=0)) > 0.2  # and it is no uniform draw


def test_weights_are_those_of_the_probabilities_that_cost_least():
    sampler = sampler_of(sampling="energy")
    joules = expected_joules(Accounts(fj.Fleet(**FLEET), sampler.options, 21), np.array(SIZES), 0)
    chosen = sampler.cohort(1)
    expected = 1.0 / N / inclusion_probabilities(np.ones(N), joules, 3)[chosen.clients]
    np.testing.assert_allclose(chosen.shares, expected, rtol=1e-9)


def test_energy_sampling_spends_less_for_the_same_number_of_participants():
    runs = {kind: train(rounds=60, sampling=kind) for kind in ("uniform", "energy")}
    assert np.all(np.bincount(runs["energy"].ledger["round"])[1:] == 3)
    assert runs["energy"].energy_joules < 0.8 * runs["uniform"].energy_joules


def test_expected_joules_are_what_the_ledger_books():
    fleet = FLEET | {"downlink_joules_per_bit": 1e-4, "tail_watts": 0.1, "tail_seconds": 0.05, "joules_per_sample": 0.1}
    fleet |= {"downlink_seconds_per_bit": 1e-5, "codec_joules_per_parameter": 1e-3, "codec_joules_per_entry": 1e-3}
    # without entries that are missing, and with a model so large that a message is as long as it usually is
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 300), nn.Linear(300, 3))
    options = TrainingOptions.of(**OPTIONS | {"sparsity": np.full(N, 10.0), "participation": 1.0, "rounds": 1})
    given = {
        name: getattr(options, name) for name in ("local_steps", "sparsity", "rounds", "learning_rate", "batch_size")
    }
    run = fj.train(model, clients=CLIENTS, fleet=fj.Fleet(**fleet), device="cpu", **given)
    size = sum(one.numel() for one in model.parameters())
    expected = expected_joules(Accounts(fj.Fleet(**fleet), options, size), np.array(SIZES), 0)
    np.testing.assert_allclose(joules_of(run.ledger), expected, rtol=0.15)
    exact = run.ledger["compute_joules"]
    np.testing.assert_allclose(exact, 2 * (0.01 + 0.1 * np.minimum(4, SIZES)))


def test_an_absent_client_keeps_its_residual_whatever_the_weights():
    options = OPTIONS | {"sampling": "energy", "rounds": 6, "sparsity": np.full(N, 20.0)}
    simulator = simulator_of(network(), CLIENTS, options, fleet=fj.Fleet(**FLEET))
    before = residuals(simulator)
    for _ in range(6):
        rows = simulator.start_round()().rows
        after = residuals(simulator)
        away = np.setdiff1d(np.arange(N), rows["device"])
        assert away.size == 3
        np.testing.assert_array_equal(after[away], before[away])
        assert np.all(np.abs(after[rows["device"]] - before[rows["device"]]).sum(axis=1) > 0)
        before = after
    simulator.close()


# --- By battery


def test_batteries_are_never_overdrawn_and_empty_devices_stay_away():
    batteries = np.array([9.0, 9.0, 9.0, 9.0, 0.6, np.inf])
    with pytest.warns(fj.FewJoulesWarning, match=r"device 4.* takes no further part .* of 0.6 J are spent"):
        run = train(FLEET | {"battery_joules": batteries}, sampling="battery", rounds=60)
    spent = np.bincount(run.ledger["device"], weights=joules_of(run.ledger), minlength=N)
    assert np.all(spent <= batteries)
    assert run.stop_reason == ROUNDS
    last = run.ledger["device"][run.ledger["round"] > 55]
    assert 4 not in last
    assert 5 in last


def test_a_device_with_less_left_is_drawn_less_often():
    sampler = sampler_of_battery(np.full(N, 100.0))
    sampler.books.spent_joules[:] = [0.0, 0.0, 0.0, 75.0, 75.0, 75.0]
    drawn = np.zeros(N)
    for number in range(1, 2001):
        cohort = sampler.cohort(number)
        drawn[cohort.clients] += 1
        full = cohort.shares[cohort.clients < 3]
        np.testing.assert_allclose(full, 1.0 / N / (2.0 / 3.0), rtol=1e-9)
    np.testing.assert_allclose(drawn / 2000, [2 / 3] * 3 + [1 / 3] * 3, atol=0.06)


def sampler_of_battery(batteries):
    options = TrainingOptions.of(**OPTIONS | {"sampling": "battery"})
    return Sampler(options, np.array(SIZES), Accounts(fj.Fleet(**FLEET, battery_joules=batteries), options, 21), 0)


def test_when_every_battery_is_empty_training_ends_and_says_so():
    with pytest.warns(fj.FewJoulesWarning, match="takes no further part"):
        run = train(FLEET | {"battery_joules": 0.2}, sampling="battery", rounds=500)
    assert run.stop_reason == NOBODY
    assert 3 <= len(run.metrics) < 500


# --- By availability


def test_only_those_take_part_who_are_available_at_the_ledgers_time_and_waits_are_booked():
    rows = [(device, 2.0 * device, 2.0 * device + 1.0) for device in range(N)] + [(0, 0.0, 0.5), (1, 0.0, 0.5)]
    run = train(availability=fj.Availability(rows, period_seconds=50.0), rounds=40)
    starts = np.concatenate([[0.0], run.metrics["total_seconds"][:-1]])
    slowest = [max(run.ledger["uplink_seconds"][run.ledger["round"] == n] + 0.2) for n in range(1, 41)]
    waits = run.metrics["round_seconds"] - slowest
    assert np.count_nonzero(waits > 1e-9) >= 6
    assert waits.max() > 30.0  # the end of a period has nobody
    np.testing.assert_allclose(np.cumsum(run.metrics["round_seconds"]), run.metrics["total_seconds"])
    for number, (start, wait) in enumerate(zip(starts, waits, strict=True), start=1):
        now = (start + wait + 1e-9) % 50.0
        able = {device for device, begin, end in rows if begin <= now < end}
        cohort = run.ledger["device"][run.ledger["round"] == number].tolist()
        assert set(cohort) <= able
        assert len(cohort) == min(3, len(able))


def test_the_end_of_a_trace_ends_training_and_devices_without_an_interval_are_named():
    with pytest.warns(fj.FewJoulesWarning, match="4 of 6 devices are never available, the first of them number 2"):
        run = train(availability=[(0, 0.0, 2.0), (1, 0.0, 3.0)], rounds=200)
    assert run.stop_reason == NOBODY
    assert run.metrics["total_seconds"][-1] >= 3.0
    assert set(run.ledger["device"].tolist()) == {0, 1}


def test_without_times_a_trace_counts_rounds(tmp_path):
    trace = tmp_path / "trace.csv"
    lines = [f"{device},{first},{last}" for device, first, last in [(0, 1, 2), *((d, 2, 99) for d in range(1, N))]]
    trace.write_text("device,from_round,to_round\n" + "\n".join(lines))
    run = train(None, availability=fj.Availability.read(trace), rounds=8)
    cohorts = [run.ledger["device"][run.ledger["round"] == number].tolist() for number in range(1, 9)]
    assert cohorts[0] == [0]
    assert all(len(cohort) == 3 for cohort in cohorts[1:])
    assert all(0 not in cohort for cohort in cohorts[2:])
    assert np.isnan(run.metrics["total_seconds"]).all()


def test_a_draw_among_all_is_the_uniform_one_and_probabilities_go_with_traces():
    always = [(device, 0.0, 1e6) for device in range(N)]
    plain, traced = train(), train(availability=always)
    assert np.array_equal(plain.ledger, traced.ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = train(availability=always, sampling="energy")
    np.testing.assert_array_equal(both.ledger["device"], train(sampling="energy").ledger["device"])


# --- Refusals


@pytest.mark.parametrize(
    ("fleet", "changes", "problem"),
    [
        (None, {"sampling": "energy"}, "sampling = 'energy' needs a fleet"),
        (
            FLEET,
            {"sampling": "battery"},
            "sampling = 'battery' needs a fleet with battery_joules of some device, got none",
        ),
        (FLEET, {"sampling": "luck"}, "sampling must be one of uniform, battery, energy, got 'luck'"),
        (
            None,
            {"availability": [(0, 0, 9)]},
            "availability in seconds needs a fleet with seconds_per_bit of every device",
        ),
        (
            FLEET,
            {"availability": [(6, 0, 9)]},
            "a device of the availability must be a whole number from 0 to 5, got 6",
        ),
        (FLEET, {"availability": 3}, "availability: availability must hold rows (device, from, to), got shape ()"),
        (FLEET, {"availability": lambda _: [True]}, "availability must return true or false for each of 6 devices"),
    ],
)
def test_what_the_fleet_cannot_tell_is_refused_in_one_sentence(fleet, changes, problem):
    with pytest.raises(fj.InvalidInputError) as refused:
        train(fleet, **changes)
    assert str(refused.value).startswith(problem)
