"""The model that a run hands out is evaluated, whatever ended the run and however seldom models are."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.errors import InvalidInputError

RNG = np.random.default_rng(0)
CLIENTS = [(RNG.standard_normal((30, 4), dtype=np.float32), RNG.integers(0, 3, 30)) for _ in range(4)]
TEST = RNG.standard_normal((50, 4), dtype=np.float32), RNG.integers(0, 3, 50)
COSTS = {"joules_per_bit": 1e-6, "joules_per_step": 0.01, "seconds_per_bit": 1e-6, "seconds_per_step": 0.1}
SELDOM = {"rounds": 40, "evaluate_every": 7, "local_steps": 2, "sparsity": 2.0, "learning_rate": 0.1, "batch_size": 10}


class StopsAfter(fj.Callback):
    """Ends a run after a round; notes the accuracies that it sees after rounds, after evaluations and in the end."""

    def __init__(self, rounds):
        self.rounds, self.seen, self.evaluated, self.ends = rounds, [], [], []

    def on_round_end(self, run):
        self.seen.append(run.metrics["test_accuracy"])
        if run.round == self.rounds:
            run.stop()

    def on_evaluation_end(self, run):
        self.evaluated.append(run.metrics["test_accuracy"])

    def on_train_end(self, run):
        self.ends.append(run.metrics["test_accuracy"])


def fleet_of(**changes):
    return fj.Fleet(**{name: np.full(4, value) for name, value in (COSTS | changes).items()})


def trained(battery_joules=math.inf, **changes):
    torch.manual_seed(0)
    fleet = fleet_of() if math.isinf(battery_joules) else fleet_of(battery_joules=battery_joules)
    return fj.train(nn.Linear(4, 3), clients=CLIENTS, test=TEST, fleet=fleet, **SELDOM | changes)


def accuracy_of(run):
    with torch.no_grad():
        return float((run.model(torch.from_numpy(TEST[0])).argmax(1).numpy() == TEST[1]).mean())


ENDS = {
    "energy budget": {"energy_budget_joules": 0.9},
    "time budget": {"time_budget_seconds": 2.1},
    "callback": {"callbacks": [StopsAfter(9)]},
    "no device left": {"sampling": "battery", "battery_joules": 0.25, "participation": 0.5},
}


@pytest.mark.filterwarnings("ignore:.*takes no further part")
@pytest.mark.parametrize("reason", ENDS)
def test_the_last_model_is_evaluated_whatever_ends_the_run(reason):
    run = trained(**ENDS[reason])
    assert run.stop_reason == reason
    evaluated = run.metrics["round"][np.isfinite(run.metrics["test_accuracy"])].tolist()
    last = len(run.metrics)
    assert last < 40
    assert last % 7
    assert evaluated == [*range(7, last, 7), last]
    assert run.metrics["test_accuracy"][-1] == pytest.approx(accuracy_of(run))


@pytest.mark.filterwarnings("ignore:.*takes no further part")
@pytest.mark.parametrize("reason", ENDS)
def test_the_run_is_otherwise_that_without_the_evaluation(reason):
    run, often = trained(**ENDS[reason]), trained(**ENDS[reason] | {"evaluate_every": 1})
    assert run.ledger.tobytes() == often.ledger.tobytes()
    assert run.metrics[-1] == often.metrics[-1]


@pytest.mark.parametrize(("target", "reason"), [(0.01, "target accuracy"), (1.0, "energy budget")])
def test_a_target_that_the_last_model_reaches_is_the_reason(target, reason):
    run = trained(energy_budget_joules=0.9, evaluate_every=40, target=target)
    assert run.stop_reason == reason
    assert 1 < len(run.metrics) < 40


def test_who_listens_hears_of_the_last_evaluation():
    of_budget, of_callback = StopsAfter(40), StopsAfter(9)
    last = trained(energy_budget_joules=0.9, callbacks=[of_budget]).metrics["test_accuracy"][-1]
    assert of_budget.seen[-1] == of_budget.evaluated[-1] == of_budget.ends[0] == last
    last = trained(callbacks=[of_callback], evaluate_every=40).metrics["test_accuracy"][-1]
    assert np.isnan(of_callback.seen).all()
    assert of_callback.evaluated == of_callback.ends == [last]


@pytest.mark.parametrize("reason", ["energy budget", "callback"])
def test_a_folder_has_the_last_evaluation_too(tmp_path, reason):
    run = trained(**ENDS[reason], out=tmp_path / "run", checkpoint_seconds=0.0)
    assert fj.Run.load(tmp_path / "run").metrics.tobytes() == run.metrics.tobytes()
    assert np.isfinite(run.metrics["test_accuracy"][-1])


def test_an_evaluation_that_fails_at_the_end_loses_no_round(tmp_path):
    def metric(outputs, targets):
        if outputs.shape[0] == len(TEST[0]) and metric.fails:
            raise ValueError("no such thing")
        return outputs.sum(1)

    metric.fails = False

    class Breaks(fj.Callback):
        def on_round_end(self, run):
            metric.fails = run.round == 9
            run.stop() if metric.fails else None

    with pytest.raises(InvalidInputError, match="no such thing"):
        trained(metrics={"own": metric}, callbacks=[Breaks()], out=tmp_path / "run")
    metric.fails = False
    found = {
        "model": nn.Linear(4, 3),
        "clients": CLIENTS,
        "test": TEST,
        "metrics": {"own": metric},
        "fleet": fleet_of(),
    }
    assert len(fj.resume(tmp_path / "run", **found).metrics) == 9
