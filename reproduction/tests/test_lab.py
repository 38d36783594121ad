"""Trainings of a study against the same trainings by ``fewjoules.train``, and their records against the arithmetic."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import fewjoules as fj
from fewjoules.convergence.rounds import BoundRounds
from fewjoules.errors import DivergedError, InvalidInputError
from fewjoules.ledger.schema import METRICS
from fewjoules.runs.task import prepare, varied
from fewjoules.scenario import Scenario
from fewjoules_reproduction import adaptive as adaptively
from fewjoules_reproduction import pool
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.lab import Lab, curve_of
from fewjoules_reproduction.records import Records
from fewjoules_reproduction.studies import STUDIES, TUNING_SEED, Scale, Setting, baseline_settings

DEVICES, BATCH, SAMPLES = 12, 16, 1437
TINY = Scale(
    sparsities=(20.0, 400.0),
    local_steps=(1, 5),
    learning_rates=(0.2, 0.4),
    pilot_accuracy=0.3,
    pilot_steps=20,
    pilot_resolution=10,
    steps=12,
    resolution=4,
    targets=(0.35, 0.4),
    seeds=(0,),
)


def shrink(monkeypatch, *names, **changes):
    """Replace the scale of studies by a tiny one, and forget what was loaded for the others."""
    for name in names or ("digits", "digits-lte"):
        study = dataclasses.replace(STUDIES[name], scale=dataclasses.replace(TINY, **changes))
        monkeypatch.setitem(STUDIES, name, study)
    monkeypatch.setattr(pool, "_labs", {})


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Gradients of small batches gain nothing from a second one and wait for it where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny(monkeypatch):
    def lab_of(study="digits", **changes):
        shrink(monkeypatch, **changes)
        return Lab(study, "cpu", None)

    return lab_of


@pytest.fixture(scope="module")
def digits():
    return prepare(embedded_scenario(STUDIES["digits"].scenario), torch.device("cpu"))


def setting(steps=1, sparsity=20.0, **more):
    return Setting("some", steps, np.full(DEVICES, sparsity), **more)


def trained(task, seed, chosen, rate, *, model=None, **options):
    """The same training by the public interface, on arrays cut out of the data."""
    own = varied(task, seed=seed)
    samples = own.federation.samples
    clients = [(samples.inputs[part], samples.targets[part]) for part in own.federation.parts]
    return fj.train(
        model or own.model,
        clients=clients,
        test=(own.test.inputs, own.test.targets),
        fleet=task.scenario.fleet,
        local_steps=chosen.local_steps,
        sparsity=chosen.sparsity,
        learning_rate=rate,
        seed=seed,
        device="cpu",
        **{"batch_size": BATCH} | dict(chosen.changes) | options,
    )


# --- A task with another seed


def weights_of(task):
    return torch.cat([p.detach().reshape(-1) for p in task.model.parameters()])


def test_a_varied_task_keeps_its_preset(digits):
    text = digits.scenario.text.replace("[training]", '[training]\npreset = "dgc"')
    named = dataclasses.replace(digits, training=Scenario.from_text(text, "some", digits.scenario.folder).training)
    given = varied(named, seed=5).training.options(digits.scenario.files)
    assert given == named.training.options(digits.scenario.files) | {"seed": 5}
    assert "compressor" not in given


def test_another_seed_deals_out_and_initialises_anew_on_the_same_samples(digits):
    other = varied(digits, seed=5)
    assert other.federation.samples is digits.federation.samples
    assert other.test is digits.test
    assert other.training.seed == other.scenario.training.seed == 5
    assert not torch.equal(weights_of(other), weights_of(digits))
    pairs = zip(other.federation.parts, digits.federation.parts, strict=True)
    assert all(not np.array_equal(a, b) for a, b in pairs)
    assert sorted(np.concatenate(other.federation.parts)) == list(range(SAMPLES))
    assert digits.training.seed == 0


def test_another_seed_draws_other_batches(digits):
    one, other = (trained(digits, seed, setting(), 0.1, rounds=2).metrics["train_loss"] for seed in (0, 1))
    assert np.all(one != other)


def test_the_same_seed_gives_the_same_task(digits):
    there, back = varied(digits, seed=5), varied(varied(digits, seed=5), seed=0)
    assert torch.equal(weights_of(back), weights_of(digits))
    assert torch.equal(weights_of(there), weights_of(varied(digits, seed=5)))
    for a, b in zip(back.federation.parts, digits.federation.parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_partition_is_dealt_out_and_checked(digits):
    skewed = varied(digits, partition="dirichlet", dirichlet_concentration=0.1)
    labels = digits.data.labels
    commonest = [np.mean([np.bincount(labels[p]).max() / p.size for p in t.federation.parts]) for t in (digits, skewed)]
    assert commonest[1] > 2.0 * commonest[0]
    with pytest.raises(InvalidInputError, match="dirichlet_concentration"):
        varied(digits, partition="dirichlet")


def test_another_data_set_is_refused(digits):
    with pytest.raises(InvalidInputError, match=r"training\.data must stay 'digits', got 'mnist'"):
        varied(digits, data="mnist")


# --- Tuning


def first_round(digits, chosen, rate, rounds, accuracy):
    """The first round whose model has the accuracy, looking as often as the lab does."""
    every = max(1, 10 // chosen.local_steps)
    run = trained(digits, TUNING_SEED, chosen, rate, rounds=rounds, evaluate_every=every)
    reached = np.flatnonzero(run.metrics["test_accuracy"] >= accuracy)
    return int(run.metrics["round"][reached[0]]) if reached.size else None


def test_the_step_size_that_needs_the_fewest_rounds_is_chosen(tiny, digits):
    chosen = setting(steps=5)
    by_hand = {rate: first_round(digits, chosen, rate, 8, 0.4) for rate in (0.1, 0.2, 0.4)}
    assert by_hand[0.4] < by_hand[0.2], "the example must tell them apart"
    for rates in ((0.2, 0.4, 0.1), (0.4, 0.2)):
        record = tiny(learning_rates=rates, pilot_steps=40, pilot_accuracy=0.4).tune(chosen)
        assert record["learning_rate"] == 0.4
        assert record["rounds"] == by_hand[0.4]


def test_a_step_size_is_tried_up_to_the_look_before_the_one_at_which_the_best_was_there(tiny):
    tried = tiny(learning_rates=(0.2, 0.4, 0.1), pilot_steps=100, pilot_accuracy=0.7).tune(setting(steps=5))["tried"]
    most, best, every = 20, None, 2
    for one in tried:
        assert one["most_rounds"] == (most if best is None else best - every)
        assert one["rounds"] is None or one["rounds"] <= one["most_rounds"]
        assert (one["rounds"] is None) == (one["test_accuracy"] < 0.7)
        best = one["rounds"] or best
    assert [one["learning_rate"] for one in tried] == [0.2, 0.4, 0.1]


def test_of_equally_fast_step_sizes_the_first_is_chosen(tiny, digits):
    every, chosen = 10, setting()
    reached = first_round(digits, chosen, 0.2, 200, 0.4)
    before = trained(digits, TUNING_SEED, chosen, 0.2, rounds=reached - 1, evaluate_every=reached - 1)
    assert before.metrics["test_accuracy"][-1] >= 0.4, "a look between the looks would tell them apart"
    lab = tiny(learning_rates=(0.2, 0.2000001), pilot_steps=200, pilot_accuracy=0.4, pilot_resolution=every)
    record = lab.tune(chosen)
    assert (record["learning_rate"], record["rounds"]) == (0.2, reached)


def test_after_one_round_nothing_is_left_to_beat(tiny):
    record = tiny(pilot_accuracy=0.0).tune(setting(steps=20))
    assert record["rounds"] == 1
    assert [one["learning_rate"] for one in record["tried"]] == [0.2]


def test_an_accuracy_out_of_reach_is_none_with_the_step_size_that_came_closest(tiny):
    record = tiny(pilot_accuracy=0.99).tune(setting(steps=5))
    assert record["rounds"] is None
    assert [one["most_rounds"] for one in record["tried"]] == [4, 4]
    assert record["learning_rate"] == max(record["tried"], key=lambda one: one["test_accuracy"])["learning_rate"]


def test_a_step_size_that_diverges_is_tried_but_not_chosen(tiny):
    record = tiny(learning_rates=(1e20, 0.4), pilot_accuracy=0.99).tune(setting())
    assert [one["test_accuracy"] > 0.0 for one in record["tried"]] == [False, True]
    assert record["learning_rate"] == 0.4


def test_the_step_sizes_tried_are_scaled_as_the_setting_says(tiny):
    record = tiny(pilot_accuracy=0.99).tune(setting(rate_scale=1.5))
    assert [one["learning_rate"] for one in record["tried"]] == pytest.approx([0.3, 0.6])


# --- Runs


@pytest.mark.parametrize(
    "chosen",
    [
        setting(),
        setting(steps=5, sparsity=400.0),
        *(s for s in baseline_settings(DEVICES) if not s.adaptive),
    ],
    ids=["top-k", "local steps", "qsgd", "qsparse", "stc", "momentum"],
)
def test_a_run_is_the_training_that_anyone_can_repeat(tiny, digits, chosen):
    record = tiny().run(chosen, 0.2, 3)
    rounds, every = math.ceil(12 / chosen.local_steps), max(1, 4 // chosen.local_steps)
    metrics = trained(digits, 3, chosen, 0.2, rounds=rounds, evaluate_every=every).metrics
    seen = metrics[~np.isnan(metrics["test_accuracy"])]
    assert record["stop_reason"] == "rounds"
    assert record["curve"]["round"][-1] == rounds
    for name, column in record["curve"].items():
        if not name.startswith("train_"):
            np.testing.assert_allclose(column, seen[name], rtol=1e-6, err_msg=name)
    window = metrics["train_accuracy"][: int(record["curve"]["round"][0])]
    assert record["curve"]["train_accuracy"][0] == pytest.approx(window.mean(), rel=1e-6)
    assert record["local_steps_used"] == {str(chosen.local_steps): rounds}


def test_joules_epochs_and_rounds_follow_from_the_scenarios_costs(tiny):
    chosen, fleet = setting(steps=5), embedded_scenario(STUDIES["digits"].scenario).fleet
    curve = {
        name: np.array(column) for name, column in tiny(steps=20, resolution=5).run(chosen, 0.2, 0)["curve"].items()
    }
    np.testing.assert_array_equal(curve["round"], [1, 2, 3, 4])
    np.testing.assert_allclose(curve["epochs"], curve["round"] * 5 * BATCH * DEVICES / SAMPLES, rtol=1e-6)
    np.testing.assert_allclose(
        curve["total_compute_joules"], curve["round"] * 5 * fleet.joules_per_step.sum(), rtol=1e-6
    )
    # every device sends equally many entries, so its bytes are near the mean
    bits = 8.0 * curve["total_payload_bytes"]
    np.testing.assert_allclose(curve["total_radio_joules"], bits * fleet.joules_per_bit.mean(), rtol=1e-3)
    np.testing.assert_allclose(
        curve["total_joules"], curve["total_radio_joules"] + curve["total_compute_joules"], rtol=1e-6
    )


@pytest.mark.parametrize("seed", [0, 3])
def test_a_lab_serves_another_study_of_its_task_as_one_of_its_own_would(tiny, seed):
    lab = tiny("digits")
    lab.run(setting(), 0.2, seed)
    adaptive = baseline_settings(DEVICES)[-1]
    for chosen in (setting(), adaptive):
        served, own, before = (one.run(chosen, 0.2, seed) for one in (lab.of("digits-lte"), tiny("digits-lte"), lab))
        assert served["curve"] == own["curve"]
        assert served["local_steps_used"] == own["local_steps_used"]
        assert served["curve"]["total_radio_joules"][-1] > 2.0 * before["curve"]["total_radio_joules"][-1]


def test_bits_a_thousand_times_as_dear_cost_the_radio_a_thousand_times_and_change_nothing_else(tiny):
    cheap, dear = (tiny(study).run(setting(), 0.2, 0)["curve"] for study in ("digits", "digits-lte"))
    np.testing.assert_allclose(dear["total_radio_joules"], 1000.0 * np.array(cheap["total_radio_joules"]), rtol=1e-5)
    for name in cheap.keys() - {"total_joules", "total_radio_joules"}:
        assert cheap[name] == dear[name], name


def test_a_step_size_that_diverges_leaves_the_curve_up_to_there(tiny, digits):
    record = tiny(resolution=1, steps=12).run(setting(sparsity=400.0), 1e3, 0)
    assert record["stop_reason"] == "diverged"
    with pytest.raises(DivergedError):
        trained(digits, 0, setting(sparsity=400.0), 1e3, rounds=12, guard=False)
    curve, short = record["curve"], tiny(resolution=1, steps=2).run(setting(sparsity=400.0), 1e3, 0)
    assert 2 < len(curve["round"]) < 12
    assert {len(column) for column in curve.values()} == {len(curve["round"])}
    assert {name: column[:2] for name, column in curve.items()} == short["curve"]


def test_a_run_that_diverged_can_be_recorded(tiny, tmp_path):
    record = tiny(resolution=1, steps=12).run(setting(sparsity=400.0), 1e3, 0)
    Records(tmp_path).save("digits", "diverged", record)
    loaded = Records(tmp_path).load("digits", "diverged")
    assert loaded["stop_reason"] == "diverged"


def test_nothing_but_the_time_differs_when_a_run_is_repeated_in_the_same_lab(tiny):
    here = tiny()
    first = here.run(setting(), 0.2, 0)
    here.run(setting(steps=5), 0.4, 1)
    again = here.run(setting(), 0.2, 0)
    assert {**first, "wall_seconds": 0.0} == {**again, "wall_seconds": 0.0}
    json.dumps(first, allow_nan=False)


# --- Curves


def metrics_rows(test_accuracy, train_accuracy):
    rows = METRICS.new_rows(len(test_accuracy))
    rows["round"] = np.arange(1, len(test_accuracy) + 1)
    rows["test_accuracy"], rows["train_accuracy"] = test_accuracy, train_accuracy
    rows["train_loss"] = 10.0 * np.array(train_accuracy)
    rows["test_loss"] = 1.0 - np.array(test_accuracy)
    return rows


def test_a_curve_has_the_evaluated_rounds_with_training_means_since_the_last():
    nan = math.nan
    curve = curve_of(metrics_rows([nan, nan, 0.5, 0.6, nan, 0.7, nan], [0.1, 0.2, 0.6, 0.7, 0.8, 0.4, 0.0]))
    assert curve["round"] == [3, 4, 6]
    assert curve["test_accuracy"] == [0.5, 0.6, 0.7]
    assert curve["train_accuracy"] == pytest.approx([0.3, 0.7, 0.6])
    assert curve["train_loss"] == pytest.approx([3.0, 7.0, 6.0])


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_look_at_a_model_without_a_finite_loss_is_not_shown(loss):
    rows = metrics_rows([0.5, 0.6, 0.1], [0.1, 0.2, 0.6])
    rows["test_loss"][2] = loss
    curve = curve_of(rows)
    assert curve["round"] == [1, 2]
    assert {len(column) for column in curve.values()} == {2}


def test_a_run_without_a_look_has_an_empty_curve():
    for rows in (metrics_rows([], []), metrics_rows([math.nan], [0.5])):
        assert set(map(tuple, curve_of(rows).values())) == {()}


# --- Adaptive local steps


@pytest.fixture(scope="module")
def adaptive():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptively, "ADAPTATION_STEPS", 6)
        shrink(patch, steps=16)
        return Lab("digits-lte", "cpu", None).run(baseline_settings(DEVICES)[-1], 0.2, 0)


def test_adaptive_local_steps_grow_where_uploads_are_dear(adaptive):
    used = {int(steps): rounds for steps, rounds in adaptive["local_steps_used"].items()}
    assert used[1] == 6, "the first choice is made after so many steps with H = 1"
    assert max(used) > 1


def test_adaptive_local_steps_are_chosen_by_the_costs_of_the_study_and_what_is_left(tiny, monkeypatch):
    seen, draws = [], []
    monkeypatch.setattr(adaptively, "ADAPTATION_STEPS", 4)
    monkeypatch.setattr(adaptively, "estimate_drift", lambda *_args, draw, **_kw: draws.append(draw))
    monkeypatch.setattr(adaptively, "adaptive_local_steps", lambda _drift, **given: seen.append(given) or 2)
    record = tiny("digits-lte", steps=12).run(baseline_settings(DEVICES)[-1], 0.2, 0)
    fleet = embedded_scenario(STUDIES["digits-lte"].scenario).fleet
    step, upload = fleet.joules_per_step.sum(), 32.0 * 13_706 * fleet.joules_per_bit.sum()
    assert [one["last"] for one in seen] == [1, 2]
    assert len(set(draws)) == 2, "each estimate has a draw of its own"
    for one, spent in zip(seen, record["curve"]["total_joules"], strict=False):
        assert one["learning_rate"] == 0.2
        assert one["step_joules"] == pytest.approx(step, rel=1e-9)
        assert one["round_joules"] == pytest.approx(upload, rel=1e-9)
        assert one["budget_joules"] == pytest.approx(12 * (step + upload) - spent, rel=1e-5)


def test_adaptive_runs_take_as_many_local_steps_as_the_others(adaptive):
    used = {int(steps): rounds for steps, rounds in adaptive["local_steps_used"].items()}
    assert sum(steps * rounds for steps, rounds in used.items()) == 16
    assert adaptive["curve"]["epochs"][-1] == pytest.approx(16 * BATCH * DEVICES / SAMPLES, rel=1e-6)


def test_the_accounts_of_an_adaptive_run_go_on_from_part_to_part(adaptive):
    fleet, curve = embedded_scenario(STUDIES["digits-lte"].scenario).fleet, adaptive["curve"]
    used = {int(steps): rounds for steps, rounds in adaptive["local_steps_used"].items()}
    steps = sum(own * rounds for own, rounds in used.items())
    assert curve["round"][-1] == sum(used.values())
    assert curve["round"] == sorted(set(curve["round"]))
    assert curve["total_compute_joules"][-1] == pytest.approx(steps * fleet.joules_per_step.sum(), rel=1e-6)
    bits = 8.0 * np.array(curve["total_payload_bytes"])
    np.testing.assert_allclose(curve["total_radio_joules"], bits * fleet.joules_per_bit.mean(), rtol=1e-3)


def test_an_adaptive_run_begins_as_dense_steps_do(adaptive, tiny):
    dense = tiny("digits-lte", steps=6, resolution=6).run(setting(sparsity=1.0, changes={"compressor": "none"}), 0.2, 0)
    assert {name: column[:1] for name, column in adaptive["curve"].items()} == dense["curve"]


def test_parts_of_an_adaptive_run_hand_on_the_model_as_separate_trainings_would(tiny, digits, monkeypatch):
    choices = iter([3, 1, 2])
    monkeypatch.setattr(adaptively, "ADAPTATION_STEPS", 3)
    monkeypatch.setattr(adaptively, "adaptive_local_steps", lambda *_args, **_kw: next(choices))
    here = tiny(steps=9)
    here.task = varied(here.task, batch_size="all", seed=1)  # so that no batch depends on the number of its step
    dense = baseline_settings(DEVICES)[-1]
    record = here.run(dense, 0.2, 0)
    assert record["local_steps_used"] == {"1": 6, "3": 1}
    task, losses = varied(digits, seed=0), []
    for steps, rounds in ((1, 3), (3, 1), (1, 3)):
        part = dataclasses.replace(dense, local_steps=steps)
        run = trained(task, 0, part, 0.2, rounds=rounds, batch_size=None, evaluate_every=rounds, model=task.model)
        losses.append(float(run.metrics["test_loss"][-1]))
        task = dataclasses.replace(task, model=run.model.train())
    assert record["curve"]["round"] == [3, 4, 7]
    assert record["curve"]["test_loss"] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_an_adaptive_run_that_stays_at_one_step_is_dense_training_throughout(device, monkeypatch):
    monkeypatch.setattr(adaptively, "ADAPTATION_STEPS", 4)
    monkeypatch.setattr(adaptively, "adaptive_local_steps", lambda *_args, **_kw: 1)
    shrink(monkeypatch, steps=12 if device == "cpu" else 400, resolution=4)
    here, dense = Lab("digits", device, None), baseline_settings(DEVICES)[-1]
    parts = here.run(dense, 0.2, 0)
    whole = here.run(dataclasses.replace(dense, adaptive=False), 0.2, 0)
    assert parts["curve"] == whole["curve"]


def test_an_adaptive_run_that_diverges_says_so(tiny):
    record = tiny(steps=8).run(baseline_settings(DEVICES)[-1], 1e20, 0)
    assert record["stop_reason"] == "diverged"


# --- Constants


def test_constants_make_a_bound_and_its_target_is_a_hundredth_of_the_first_gradient(tiny, digits):
    record = tiny().constants()
    BoundRounds(**record)
    task = varied(digits, seed=TUNING_SEED)
    samples, means = task.federation.samples, []
    for part in task.federation.parts:
        value = torch.nn.functional.cross_entropy(task.model(samples.inputs[part]), samples.targets[part])
        means.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(task.model.parameters()))]))
    squared = float(torch.stack(means).mean(0).norm()) ** 2
    assert record["epsilon"] == pytest.approx(squared / 100.0, rel=1e-4)
    assert record["gradient_bound"] == pytest.approx(math.hypot(record["sigma"], math.sqrt(squared)), rel=1e-4)
    assert record["batch"] == BATCH
