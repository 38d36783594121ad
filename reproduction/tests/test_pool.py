"""What has a record is not trained again; trainings elsewhere give the records that trainings here do."""

import dataclasses
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.runs.processes import processes_of
from fewjoules_reproduction import embedded
from fewjoules_reproduction.pool import Job, Means, carry_out
from fewjoules_reproduction.records import CURVE_COLUMNS, Records
from fewjoules_reproduction.studies import STUDIES, Setting, baseline_settings
from test_lab import _one_thread, shrink  # noqa: F401 - a fixture of all tests here

GRID = Setting("pilot", 5, np.full(12, 20.0))
OTHER = Setting("other", 1, np.full(12, 400.0))
ADAPTIVE = baseline_settings(12)[-1]


CURVE = {name: [3.0] for name in CURVE_COLUMNS} | {"total_radio_joules": [1.0], "total_compute_joules": [2.0]}
PARTS = {
    "tune": {"local_steps": 5, "sparsity": [20.0], "learning_rate": 0.2, "rounds": 9},
    "run": {"stop_reason": "rounds", "curve": CURVE},
    "constants": dict.fromkeys(("epsilon", "smoothness", "sigma", "gradient_bound", "initial_gap", "batch"), 1.0),
}


class Clerk(Executor):
    """Makes up a record for each job at once and keeps count; some jobs fail a little later."""

    def __init__(self, *failing):
        self.asked, self.failing = [], failing

    def submit(self, _make, job, _device, _data_dir):
        future = Future()
        if job.name in self.failing:
            threading.Timer(0.1, future.set_exception, [InvalidInputError(f"{job.name} failed")]).start()
        else:
            self.asked.append(job.name)
            future.set_result(PARTS[job.kind] | {"made": len(self.asked)})
        return future


def carried_out(jobs, folder, executor=None, **more):
    return carry_out(jobs, Means(records=Records(folder), device="cpu", executor=executor, **more))


def tune(setting, study="digits"):
    return Job(study, "tune", setting)


def run(setting, study="digits", rate=0.2, seed=0):
    return Job(study, "run", setting, rate, seed)


def timeless(records):
    return {name: record | {"wall_seconds": None} for name, record in records.items()}


# --- Names and orders


def test_names_of_records_tell_jobs_apart_and_are_allowed(tmp_path):
    jobs = [Job("digits", "constants"), tune(GRID), run(GRID), run(GRID, seed=1), run(GRID, rate=0.4), tune(OTHER)]
    assert [job.name for job in jobs][:3] == ["constants", "tune-pilot", "run-pilot-rate0.2-seed0"]
    assert len({job.name for job in jobs}) == len({job.key for job in jobs}) == len(jobs)
    for job in jobs:
        Records(tmp_path).save(job.study, job.name, {"order": job.order})
        assert Records(tmp_path).load(job.study, job.name)["order"] == job.order


@pytest.mark.parametrize(
    "changes",
    [
        {"local_steps": 6},
        {"sparsity": np.full(12, 21.0)},
        {"changes": {"momentum": 0.9}},
        {"adaptive": True},
    ],
    ids=str,
)
def test_another_setting_is_another_order(changes):
    other = dataclasses.replace(GRID, **changes)
    assert tune(other).order != tune(GRID).order
    assert run(other).key != run(GRID).key


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("tune", {"learning_rates": (0.3,)}),
        ("tune", {"pilot_accuracy": 0.5}),
        ("tune", {"pilot_steps": 30}),
        ("tune", {"pilot_resolution": 5}),
        ("run", {"steps": 30}),
        ("run", {"resolution": 3}),
        ("tune", {"gpu_precision": "bf16"}),
        ("run", {"gpu_precision": "bf16"}),
    ],
)
def test_a_scale_that_changes_the_record_is_another_order(monkeypatch, kind, changes):
    job = tune(GRID) if kind == "tune" else run(GRID)
    shrink(monkeypatch)
    before = job.order
    shrink(monkeypatch, **changes)
    assert job.order != before


def test_a_scaled_step_size_is_another_order_of_tuning():
    assert tune(dataclasses.replace(GRID, rate_scale=2.0)).order != tune(GRID).order


@pytest.fixture
def changed_scenario(monkeypatch):
    """Every embedded scenario with one text in place of another."""
    original = embedded.embedded_scenario

    def change(text, other):
        def changed(name):
            scenario = original(name)
            assert text in scenario.text
            return scenario.from_text(scenario.text.replace(text, other), name, scenario.folder)

        monkeypatch.setattr(embedded, "embedded_scenario", changed)
        embedded.scenario_digest.cache_clear()

    yield change
    monkeypatch.undo()
    embedded.scenario_digest.cache_clear()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("batch_size = 16", "batch_size = 8"),
        ("power_watts = 0.2", "power_watts = 0.3"),
        ('architecture = "cnn"', 'architecture = "softmax"'),
    ],
)
def test_another_scenario_is_another_order(changed_scenario, text, other):
    jobs = [tune(GRID), run(GRID), Job("digits", "constants")]
    before = [job.key for job in jobs]
    changed_scenario(text, other)
    assert all(job.key != key for job, key in zip(jobs, before, strict=True))


@pytest.mark.parametrize("name", STUDIES)
def test_studies_of_one_task_have_one_scenario_but_for_the_cost_of_a_bit(name):
    study = STUDIES[name]
    own = embedded.scenario_digest(study.scenario, study.bit_scale)
    assert [one.name for one in STUDIES.values() if one.task == study.task] == [
        one.name for one in STUDIES.values() if embedded.scenario_digest(one.scenario, one.bit_scale) == own
    ]


# --- Records


def test_what_has_a_record_is_not_made_again(tmp_path):
    clerk = Clerk()
    first = carried_out([tune(GRID), run(GRID)], tmp_path, clerk)
    again = carried_out([tune(GRID), run(GRID), tune(OTHER)], tmp_path, clerk)
    assert clerk.asked == ["tune-pilot", "run-pilot-rate0.2-seed0", "tune-other"]
    assert first.items() <= again.items()
    assert carried_out([tune(GRID)], tmp_path, Clerk("tune-pilot")).keys() == {"tune-pilot"}


def test_a_record_of_another_order_is_made_again_when_training_and_missing_when_not(tmp_path):
    changed = dataclasses.replace(GRID, local_steps=7)
    carried_out([tune(GRID)], tmp_path, Clerk())
    assert carried_out([tune(changed)], tmp_path, train=False) == {}
    clerk = Clerk()
    made = carried_out([tune(changed)], tmp_path, clerk)
    assert clerk.asked == ["tune-pilot"]
    assert made["tune-pilot"]["order"]["local_steps"] == 7
    assert carried_out([tune(changed)], tmp_path, train=False) == made


def test_without_training_only_records_are_read(tmp_path):
    assert carried_out([tune(GRID), Job("digits", "constants")], tmp_path / "runs", Clerk(), train=False) == {}
    assert not (tmp_path / "runs").exists()


def test_a_failing_job_leaves_the_records_before_it(tmp_path):
    jobs = [tune(GRID), tune(OTHER), run(GRID)]
    with pytest.raises(InvalidInputError, match="tune-other failed"):
        carried_out(jobs, tmp_path, Clerk("tune-other"))
    clerk = Clerk()
    assert carried_out(jobs, tmp_path, clerk).keys() == {job.name for job in jobs}
    assert clerk.asked == ["tune-other"]


def test_a_failing_job_here_leaves_the_records_before_it_and_is_made_when_called_again(tmp_path, monkeypatch):
    shrink(monkeypatch, steps=2, resolution=2)
    bad = Setting("bad", 1, np.full(5, 20.0))  # for a fleet of five
    with pytest.raises(InvalidInputError, match="5"):
        carried_out([run(OTHER), run(bad), run(GRID)], tmp_path)
    assert [file.name for file in (tmp_path / "digits").iterdir()] == ["run-other-rate0.2-seed0.json"]


def test_progress_counts_what_was_there_too(tmp_path):
    told = []
    carried_out([tune(GRID)], tmp_path, Clerk())
    carried_out([tune(GRID), tune(OTHER), run(GRID)], tmp_path, Clerk(), on_job=lambda *line: told.append(line))
    assert sorted(told, key=lambda line: line[1]) == told
    assert {name for name, _, _ in told} == {"digits: tune-other", "digits: run-pilot-rate0.2-seed0"}
    assert [(done, total) for _, done, total in told] == [(2, 3), (3, 3)]


def test_a_damaged_record_stops_with_its_name(tmp_path):
    carried_out([tune(GRID)], tmp_path, Clerk())
    (tmp_path / "digits" / "tune-pilot.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"tune-pilot\.json"):
        carried_out([tune(GRID)], tmp_path, Clerk())


@pytest.mark.parametrize(
    ("job", "damage", "says"),
    [
        (tune(GRID), {"learning_rate": None}, "learning_rate"),
        (run(GRID), {"curve": None}, "curve"),
        (run(GRID), {"stop_reason": None}, "stop_reason"),
        (Job("digits", "constants"), {"sigma": None}, "sigma"),
    ],
)
def test_a_record_that_lacks_a_part_stops_with_its_name(tmp_path, job, damage, says):
    parts = {name: part for name, part in PARTS[job.kind].items() if name not in damage}
    Records(tmp_path).save("digits", job.name, {"order": job.order} | parts)
    with pytest.raises(InvalidInputError, match=rf"{job.name}\.json: must have '{says}'"):
        carried_out([job], tmp_path, train=False)


@pytest.mark.parametrize(
    "curve", [CURVE | {"round": [1.0, 2.0]}, CURVE | {"epochs": 3}, {}, [1.0]], ids=["long", "none", "empty", "a list"]
)
def test_a_curve_with_columns_of_other_lengths_stops_with_its_name(tmp_path, curve):
    Records(tmp_path).save("digits", run(GRID).name, {"order": run(GRID).order} | PARTS["run"] | {"curve": curve})
    with pytest.raises(InvalidInputError, match="lists of one length"):
        carried_out([run(GRID)], tmp_path, train=False)


def test_a_file_that_is_no_record_is_passed_over(tmp_path):
    made = carried_out([tune(GRID)], tmp_path, Clerk())
    (tmp_path / "digits" / "._tune-pilot.json").write_text("\0")
    (tmp_path / "digits" / "Copy of tune-pilot.json").write_text("{")
    assert carried_out([tune(GRID)], tmp_path, train=False) == made


def test_a_process_that_is_killed_is_one_sentence(tmp_path):
    class Killed(Clerk):
        def submit(self, *_given):
            future = Future()
            future.set_exception(BrokenProcessPool("A process in the process pool was terminated abruptly"))
            return future

    with pytest.raises(ChildProcessError, match="fewer --processes"):
        carried_out([tune(GRID)], tmp_path, Killed())


@pytest.mark.parametrize(
    "order", [None, 3, [], {}, {"study": "digits"}, {"study": "digits", "adaptive": True}], ids=str
)
def test_a_record_without_a_sensible_order_does_not_count(tmp_path, order):
    Records(tmp_path).save("digits", "tune-pilot", {"order": order})
    assert carried_out([tune(GRID)], tmp_path, train=False) == {}


# --- Studies of one task


def test_a_training_that_two_settings_share_is_done_once(tmp_path):
    twin, clerk = dataclasses.replace(GRID, name="twin"), Clerk()
    made = carried_out([run(GRID), run(twin), run(OTHER)], tmp_path, clerk)
    assert clerk.asked == ["run-pilot-rate0.2-seed0", "run-other-rate0.2-seed0"]
    assert made["run-twin-rate0.2-seed0"] == made["run-pilot-rate0.2-seed0"]


def test_a_study_with_dearer_bits_uses_the_trainings_of_its_task_at_its_own_cost(tmp_path):
    carried_out([run(GRID), tune(GRID)], tmp_path, Clerk())
    made = carried_out([run(GRID, "digits-lte"), tune(GRID, "digits-lte")], tmp_path, train=False)
    curve = made["run-pilot-rate0.2-seed0"]["curve"]
    assert curve == CURVE | {"total_joules": [1002.0], "total_radio_joules": [1000.0]}
    assert made["tune-pilot"]["made"] == 2


def test_costs_come_back_as_they_were_from_a_study_with_dearer_bits(tmp_path):
    carried_out([run(GRID, "digits-lte")], tmp_path, Clerk())
    curve = carried_out([run(GRID)], tmp_path, train=False)["run-pilot-rate0.2-seed0"]["curve"]
    assert curve["total_radio_joules"] == pytest.approx([0.001])
    assert curve["total_joules"] == pytest.approx([2.001])


def test_a_run_whose_local_steps_follow_costs_is_not_shared(tmp_path):
    clerk = Clerk()
    carried_out([run(ADAPTIVE), tune(ADAPTIVE)], tmp_path, clerk)
    carried_out([run(ADAPTIVE, "digits-lte"), tune(ADAPTIVE, "digits-lte")], tmp_path, clerk)
    assert clerk.asked == ["run-adaptive-rate0.2-seed0", "tune-adaptive", "run-adaptive-rate0.2-seed0"]


def test_data_dealt_out_otherwise_are_another_training(tmp_path):
    carried_out([run(GRID)], tmp_path, Clerk())
    assert carried_out([run(GRID, "digits-dirichlet")], tmp_path, train=False) == {}


def test_shared_trainings_are_really_the_same(tmp_path, monkeypatch):
    shrink(monkeypatch, steps=4, resolution=2)
    carried_out([run(OTHER)], tmp_path / "shared")
    shared = carried_out([run(OTHER, "digits-lte")], tmp_path / "shared", train=False)
    own = carried_out([run(OTHER, "digits-lte")], tmp_path / "own")
    (a,), (b,) = shared.values(), own.values()
    assert a["curve"].keys() == b["curve"].keys()
    for name in a["curve"]:
        np.testing.assert_allclose(a["curve"][name], b["curve"][name], rtol=2e-6, err_msg=name)


# --- Elsewhere


def test_trainings_in_an_executor_give_the_records_of_trainings_here(tmp_path, monkeypatch):
    shrink(monkeypatch, steps=4, resolution=2, pilot_steps=5)
    jobs = [tune(GRID), run(GRID), run(OTHER, seed=1)]
    here = carried_out(jobs, tmp_path / "here")
    with ThreadPoolExecutor(1) as executor:
        there = carried_out(jobs, tmp_path / "there", executor)
    assert timeless(here) == timeless(there)
    assert timeless(carried_out(jobs, tmp_path / "here", train=False)) == timeless(here)


def test_a_process_gives_the_record_that_this_one_does(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # quick on a busy machine
    job = Job("digits", "constants")
    with processes_of(1) as executor:
        there = carried_out([job], tmp_path / "there", executor)["constants"]
    here = carried_out([job], tmp_path / "here")["constants"]
    assert there.keys() == here.keys()
    assert there.pop("order") == here.pop("order")
    assert there == pytest.approx(here, rel=1e-4)
