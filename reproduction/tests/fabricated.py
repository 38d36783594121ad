"""Made-up results of a study: no training, numbers that can be checked by hand."""

import numpy as np

from fewjoules.convergence.fit import PilotRuns, fit_paper_rounds, fit_power_law_rounds
from fewjoules.convergence.rounds import BoundRounds, PowerLawRounds
from fewjoules.planner.plan import Plan
from fewjoules_reproduction.embedded import embedded_scenario
from fewjoules_reproduction.results import Curves, Pilots, StudyResults
from fewjoules_reproduction.studies import STUDIES, Setting, baseline_settings

DEVICES = 12
LAW = PowerLawRounds(tau=2000.0, c=0.004, a=0.5, q=0.6)
BOUND = BoundRounds(smoothness=1.0, sigma=1.0, gradient_bound=1.0, initial_gap=1.0, batch=1.0, epsilon=0.1)
STEPS = {"flexible": 5, "unified": 5, "greedy": 1, "synchronous": 1, "dense": 1, "fedavg": 10, "flexible-paper": 20}
STEPS |= {"flexible-bound": 1}
SPARSITY = {"dense": 1.0, "fedavg": 1.0, "greedy": 1000.0}
BASELINES = tuple(setting.name for setting in baseline_settings(DEVICES))
SCHEMES = (*STEPS, *BASELINES)


def record(accuracy, *, joules=1.0, train=None, steps=1, stop="rounds", seed=0):
    """A run that looks at the test set after each epoch and uses so many joules in each."""
    looks = np.arange(1.0, len(accuracy) + 1.0)
    curve = {
        "round": looks * 10.0,
        "epochs": looks,
        "train_loss": looks,
        "train_accuracy": accuracy if train is None else train,
        "test_loss": looks,
        "test_accuracy": accuracy,
        "total_joules": joules * looks,
        "total_radio_joules": 0.25 * joules * looks,
        "total_compute_joules": 0.75 * joules * looks,
        "total_payload_bytes": 1e6 * looks,
    }
    return {
        "order": {"seed": seed},
        "local_steps": steps,
        "stop_reason": stop,
        "curve": {name: [float(value) for value in column] for name, column in curve.items()},
    }


def rising(*, epochs=4.0, final=0.992, looks=40, start=0.1):
    """Accuracies that approach the final one exponentially."""
    return final - (final - start) * np.exp(-np.arange(1.0, looks + 1.0) / epochs)


def plan(name, *, rounds=100.0, joules=50.0):
    """A plan with given predictions."""
    sparsity = np.full(DEVICES, SPARSITY.get(name, 100.0))
    return Plan(
        scheme=name.split("-")[0],
        solver="pareto",
        local_steps=STEPS[name],
        sparsity=sparsity,
        rounds=rounds,
        radio_joules=0.25 * joules,
        compute_joules=0.75 * joules,
        seconds=None,
        lower_bound_joules=None,
    )


def curves(name, runs, **predictions):
    """A setting with the given runs; baselines have no plan."""
    if name in BASELINES:
        setting = next(setting for setting in baseline_settings(DEVICES) if setting.name == name)
        return Curves(setting, None, 0.2, runs)
    own = plan(name, **predictions)
    return Curves(Setting(name, own.local_steps, own.sparsity), own, 0.2, runs)


def pilots(*, growth=None, power_law=True, paper=True):
    """Pilot runs that follow ``LAW`` but for a small error, and the laws fitted to them."""
    sparsity, steps = (grid.ravel() for grid in np.meshgrid([1.0, 20.0, 100.0, 1000.0], [1.0, 5.0, 20.0]))
    wobble = 1.0 + 0.02 * np.cos(np.arange(sparsity.size))
    runs = PilotRuns.of(sparsity, steps, LAW.rounds(sparsity**LAW.q, steps, DEVICES) * wobble)
    return Pilots(
        runs,
        fit_power_law_rounds(runs) if power_law else None,
        fit_paper_rounds(runs, devices=DEVICES) if paper else None,
        BOUND,
        {law: "contradicted" for law, kept in (("power-law", power_law), ("paper", paper)) if not kept},
        0,
        np.full(runs.rounds.size, 0.1),
        {0.98: 1.5, 0.985: 2.0, 0.99: 3.0} if growth is None else growth,
    )


def results(by_name, *, study="mnist", laws=None):
    """A study of the given curves."""
    return StudyResults(STUDIES[study], embedded_scenario(STUDIES[study].scenario), laws, by_name, [])


def like_the_paper(*, study="mnist", **changed):
    """Three seeds a scheme of smooth curves, in which every sentence of the paper holds; ``changed`` replaces looks."""
    epochs = {"flexible": 4.4, "unified": 4.41, "synchronous": 4.0, "dense": 3.95, "greedy": 6.0}
    joules = {"flexible": 1.0, "unified": 1.8, "synchronous": 2.5, "greedy": 3.0, "dense": 50.0}
    finals = {"flexible": 0.9921, "unified": 0.9922, "synchronous": 0.9925, "dense": 0.992}
    by_name = {}
    for i, name in enumerate(SCHEMES):
        look = {"epochs": epochs.get(name, 4.0 + 0.3 * i), "final": finals.get(name, 0.992)}
        look |= {"joules": joules.get(name, 1.5 + 0.4 * i)} | changed.get(name.replace("-", "_"), {})
        runs = [
            record(
                rising(epochs=look["epochs"] * (1.0 + 0.02 * seed), final=look["final"]),
                joules=look["joules"],
                seed=seed,
            )
            for seed in (0, 1, 2)
        ]
        by_name[name] = curves(name, runs)
    return results(by_name, study=study, laws=pilots())
