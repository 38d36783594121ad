"""Every preset is the algorithm of its paper: tests/reference/presets.py has the algorithms, this file the constants.

A small run has few local steps and a mild sparsity, which tiny models can show; a paper's own run has the paper's. The
general reference, tests/reference/optimisers.py, must agree to rounding of float64, the engine to that of float32.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fewjoules as fj
from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.engine.algorithm.presets import PRESETS, preset_options
from tests.engine.algorithm.harness import Task, client_state, close, make_task, models, rounds_of, weights_of
from tests.reference import presets as paper
from tests.reference import training

QUICK = settings(max_examples=10, deadline=None)
ROUNDS = 4


@dataclass(frozen=True)
class Method:
    """A preset with what is given beside it, and how its paper's algorithm runs on a task.

    ``algorithm(problem, options, rounds, rate, H, sparsity)`` has the paper's constants, where a problem is a model,
    its clients and its start. ``keeps(kept, task, rate)`` turns the paper's symbols into what the engine's clients
    keep. ``own`` are the paper's H and sparsity, None where it has none; ``small`` are those of a short run.
    ``beside(task, sparsity)`` are options that a caller gives.
    """

    preset: str
    algorithm: Callable
    own: tuple[int | None, float | None]
    small: tuple[int, float]
    rate: float = 0.2
    keeps: Callable = lambda kept, task, rate: {}
    beside: Callable = lambda task, sparsity: {}

    def sizes(self, which):
        """H and sparsity of a run; what the paper does not fix is that of the small one."""
        own = tuple(small if mine is None else mine for mine, small in zip(self.own, self.small, strict=True))
        return own if which == "own" else self.small

    def rounds(self, task, which):
        """The paper's rounds."""
        H, sparsity = self.sizes(which)
        return self.algorithm((task.model, task.clients, task.start), task.options, ROUNDS, self.rate, H, sparsity)

    def given(self, task, which):
        """The task with the options that a caller gives beside the preset."""
        H, sparsity = self.sizes(which)
        common = {"rounds": ROUNDS, "learning_rate": self.rate, "batch_size": None}
        sparsities = [sparsity] * len(task.clients)
        return task.but(**common, local_steps=H, sparsity=sparsities, **self.beside(task, sparsity))

    def spelled_out(self, task, which):
        """The task with the preset's options in place of its name."""
        given = self.given(task, which)
        return Task(task.model, task.clients, task.module, preset_options(self.preset) | given.options)


def algorithm_1(problem, options, rounds, rate, H, sparsity):
    model, clients, start = problem
    kept = [max(1, round(model.size / sparsity))] * len(clients)
    setting = training.Setting(local_steps=H, rounds=rounds, kept=kept, learning_rate=rate)
    steps = training.run(model, clients, start, setting).rounds
    return [paper.Round(step.weights, {"e": step.memories}) for step in steps]


def dgc(problem, options, rounds, rate, H, sparsity, **clipping):
    assert H == 1
    return paper.dgc(*problem, rounds=rounds, learning_rate=rate, sparsity=sparsity, momentum=0.9, **clipping)


def diloco(problem, options, rounds, rate, H, sparsity):
    assert sparsity == 1.0
    return paper.diloco(
        *problem, rounds=rounds, H=H, inner_rate=rate, weight_decay=0.1, outer_rate=0.7, outer_momentum=0.9
    )


def sparseloco(problem, options, rounds, rate, H, sparsity, values="two-bit"):
    return paper.sparseloco(
        *problem,
        rounds=rounds,
        H=H,
        inner_rate=rate,
        weight_decay=0.1,
        clip=1.0,
        beta=0.95,
        density=1.0 / sparsity,
        alpha=1.0,
        values=values,
    )


def slowmo(problem, options, rounds, rate, H, sparsity):
    assert sparsity == 1.0
    return paper.slowmo(*problem, rounds=rounds, tau=H, gamma=rate, base_momentum=0.9, alpha=1.0, beta=0.7)


def fedavgm(problem, options, rounds, rate, H, sparsity):
    assert sparsity == 1.0
    return paper.fedavgm(*problem, rounds=rounds, epochs=H, learning_rate=rate, beta=0.9)


def stc(problem, options, rounds, rate, H, sparsity):
    assert H == 1
    return paper.stc(*problem, rounds=rounds, learning_rate=rate, sparsity=sparsity)


def qsparse(problem, options, rounds, rate, H, sparsity):
    seed = options["seed"]
    return paper.qsparse(*problem, rounds=rounds, H=H, eta=rate, sparsity=sparsity, levels=15, seed=seed)


def qsgd(problem, options, rounds, rate, H, sparsity):
    assert (H, sparsity) == (1, 1.0)
    return paper.qsgd(*problem, rounds=rounds, eta=rate, s=15, seed=options["seed"])


def of_dgc(kept, task, rate):
    """V and U are 1/N of a client's own, and V has yet to be multiplied by the step size."""
    clients = len(task.clients)
    return {"residual": rate * clients * kept["V"], "velocity": clients * kept["U"]}


THRESHOLD = 0.3  # of DGC's clipping: a client's own gradient may be sqrt(N) times as large

METHODS = {
    "ft-lsgd-db": Method(
        "ft-lsgd-db", algorithm_1, (None, None), (3, 4.5), keeps=lambda kept, task, rate: {"residual": kept["e"]}
    ),
    "dgc": Method("dgc", dgc, (1, 1000.0), (1, 4.5), keeps=of_dgc),
    "dgc, clipped": Method(
        "dgc",
        lambda *run: dgc(*run, threshold=THRESHOLD),
        (1, 1000.0),
        (1, 4.5),
        keeps=of_dgc,
        beside=lambda task, sparsity: {"gradient_clip": math.sqrt(len(task.clients)) * THRESHOLD},
    ),
    "diloco": Method(
        "diloco",
        diloco,
        (500, 1.0),
        (3, 1.0),
        rate=0.01,
        keeps=lambda kept, task, rate: {"velocity": kept["m"], "squares": kept["v"]},
    ),
    "sparseloco": Method(
        "sparseloco",
        sparseloco,
        (30, 64.0),
        (3, 4.5),
        rate=0.05,
        keeps=lambda kept, task, rate: {"residual": kept["e"], "velocity": kept["m"]},
    ),
    "sparseloco, float32": Method(
        "sparseloco",
        lambda *run: sparseloco(*run, values="float32"),
        (30, 64.0),
        (3, 4.5),
        rate=0.05,
        keeps=lambda kept, task, rate: {"residual": kept["e"], "velocity": kept["m"]},
        beside=lambda task, sparsity: {"values": "float32"},
    ),
    "slowmo": Method("slowmo", slowmo, (12, 1.0), (3, 1.0), rate=0.05),
    "fedavgm": Method("fedavgm", fedavgm, (None, 1.0), (3, 1.0)),
    "stc": Method(
        "stc",
        stc,
        (1, 400.0),
        (1, 4.5),
        keeps=lambda kept, task, rate: {"residual": -kept["A_i"]},
        beside=lambda task, sparsity: {"downlink_sparsity": sparsity},
    ),
    "qsparse": Method("qsparse", qsparse, (8, 100.0), (3, 2.0), keeps=lambda kept, task, rate: {"residual": kept["m"]}),
    "qsgd": Method("qsgd", qsgd, (1, 1.0), (1, 1.0)),
}

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
every_preset = pytest.mark.parametrize("name", PRESETS)


@st.composite
def tasks(draw):
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**32))
    return make_task(draw(models), sizes, seed, seed=draw(st.integers(0, 2**40)))


def fixed_task(**options):
    model = training.TwoLayers(2, hidden=3, classes=3)
    return make_task(model, [5, 3, 6, 4], 1, **{"seed": 7} | options)


# --- The general reference with a preset's options is the paper's algorithm


def agree_in_float64(trace, rounds, method, task):
    for ours, theirs in zip(trace.rounds, rounds, strict=True):
        close(ours.weights, theirs.weights, 1e-9)
        kept = {"residual": ours.residuals, "velocity": ours.velocities, "squares": ours.squares}
        for name, expected in method.keeps(theirs.kept, task, method.rate).items():
            close(kept[name], expected, 1e-9)


@every_method
@QUICK
@given(task=tasks())
def test_the_reference_with_a_presets_options_is_the_papers_algorithm(method, task):
    trace = method.spelled_out(task, "small").safe_trace()
    agree_in_float64(trace, method.rounds(task, "small"), method, task)


@every_method
def test_the_reference_with_a_presets_own_local_steps_and_sparsity_is_the_papers_algorithm(method):
    task = fixed_task()
    H, sparsity = method.sizes("own")
    given = {"rounds": ROUNDS, "learning_rate": method.rate, **method.beside(task, sparsity)}
    own = {"local_steps": H, "sparsity": sparsity} | preset_options(method.preset)
    own["sparsity"] = [own["sparsity"]] * len(task.clients)
    trace = task.but(**own | given).trace()
    agree_in_float64(trace, method.rounds(task, "own"), method, task)


def test_chunks_of_a_long_vector_send_their_own_largest_entries():
    model = training.SoftmaxRegression(1400, 3)  # 4,203 parameters: a chunk of 4,096 and one of 107
    task = make_task(model, [3, 4], 2, seed=0)
    method = METHODS["sparseloco, float32"]
    trace = method.spelled_out(task, "own").trace()
    agree_in_float64(trace, method.rounds(task, "own"), method, task)
    for done in trace.rounds:
        assert np.count_nonzero(done.chosen[:, :4096], axis=1).tolist() == [64, 64]
        assert np.count_nonzero(done.chosen[:, 4096:], axis=1).tolist() == [2, 2]


# --- The engine with a preset is the paper's algorithm


@every_method
@QUICK
@given(task=tasks())
def test_train_with_a_preset_is_the_papers_algorithm(method, task):
    method.spelled_out(task, "small").safe_trace()
    run = method.given(task, "small").train(preset=method.preset)
    close(training.flat(run.model), method.rounds(task, "small")[-1].weights)


@every_method
@QUICK
@given(task=tasks(), chunk=st.sampled_from([1, 2, 4]))
def test_weights_and_what_clients_keep_are_the_papers_after_every_round(method, task, chunk):
    spelled = method.spelled_out(task, "small")
    spelled.safe_trace()
    simulator = spelled.simulator(chunk=chunk)
    for (_, _), theirs in zip(rounds_of(simulator), method.rounds(task, "small"), strict=True):
        close(weights_of(simulator), theirs.weights)
        expected = method.keeps(theirs.kept, task, method.rate)
        for client in range(len(task.clients)):
            kept = client_state(simulator, client)
            for name, rows in expected.items():
                close(kept[name], rows[client])


def test_train_with_chunks_of_a_long_vector_is_the_papers_algorithm():
    task = make_task(training.SoftmaxRegression(1400, 3), [3, 4], 2, seed=0)
    method = METHODS["sparseloco, float32"]
    run = method.given(task, "small").but(local_steps=2, sparsity=64.0).train(preset="sparseloco")
    theirs = method.algorithm((task.model, task.clients, task.start), task.options, ROUNDS, method.rate, 2, 64.0)
    close(training.flat(run.model), theirs[-1].weights)


@every_preset
def test_a_preset_is_its_options(name):
    task = fixed_task(rounds=2, learning_rate=0.02, local_steps=2)
    sparsity = preset_options(name).get("sparsity", 4.5)
    spelled = preset_options(name) | task.options | {"sparsity": sparsity}
    run = task.but(sparsity=sparsity).train(preset=name)
    assert same(run, Task(task.model, task.clients, task.module, spelled).train())


@every_preset
def test_a_presets_local_steps_and_sparsity_are_used_where_the_caller_gives_none(name):
    own = {key: value for key, value in preset_options(name).items() if key in ("local_steps", "sparsity")}
    missing = {"local_steps": 2, "sparsity": 4.5}
    given = {key: value for key, value in missing.items() if key not in own}
    task = fixed_task(rounds=1, learning_rate=0.01)
    assert same(task.but(**given).train(preset=name), task.but(**missing | own).train(preset=name))


@pytest.mark.parametrize("name", ["fedavgm", "ft-lsgd-db"])
def test_a_preset_without_local_steps_needs_them(name):
    with pytest.raises(fj.InvalidInputError, match="local_steps"):
        fixed_task(rounds=1, learning_rate=0.01, sparsity=1.0).train(preset=name)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("dgc", {"momentum": 0.5}),
        ("dgc", {"momentum_state": "kept"}),
        ("diloco", {"outer_rate": 1.0}),
        ("diloco", {"inner": "sgd", "weight_decay": 0.0}),
        ("sparseloco", {"residual_decay": 1.0}),
        ("stc", {"compressor": "top-k"}),
        ("qsgd", {"error_feedback": True}),
        ("fedavgm", {"weighting": "equal"}),
    ],
    ids=str,
)
def test_an_option_given_beside_a_preset_wins(name, beside):
    task = fixed_task(rounds=3, learning_rate=0.05, local_steps=2, sparsity=4.5)
    changed = task.but(**beside).train(preset=name)
    assert same(changed, task.but(**preset_options(name) | task.options | beside).train())
    assert not same(changed, task.train(preset=name))


def test_a_plans_local_steps_and_sparsity_win_over_those_of_a_preset():
    fleet = fj.Fleet(joules_per_bit=np.full(4, 1e-6), joules_per_step=np.full(4, 1e-3))
    law = fj.PowerLawRounds(tau=100.0, c=0.1, a=0.5, q=0.5)
    plan = fj.solve(
        fj.ControlProblem(
            fleet=fleet, rounds=law, parameters=21, value_bits=32, sparsity=(2.0, 5.0), local_steps=range(2, 5)
        )
    )
    task = fixed_task(rounds=2, learning_rate=0.05)
    planned = task.train(preset="stc", plan=plan)
    assert same(planned, task.but(local_steps=plan.local_steps, sparsity=plan.sparsity).train(preset="stc"))
    assert not same(planned, task.train(preset="stc"))


@pytest.mark.parametrize("name", ["sgd", "", "DGC", 3, ["dgc"]], ids=str)
def test_an_unknown_preset_is_refused_with_the_names_of_all(name):
    with pytest.raises(fj.InvalidInputError, match=", ".join(PRESETS)):
        fixed_task(rounds=1, learning_rate=0.1, local_steps=1, sparsity=1.0).train(preset=name)


def same(one, other):
    """Whether two runs ended at the same bits."""
    return np.array_equal(training.flat(one.model), training.flat(other.model))


# --- The table of presets


def test_the_presets_are_these():
    names = {"dgc", "diloco", "sparseloco", "slowmo", "fedavgm", "stc", "qsparse", "qsgd", "ft-lsgd-db"}
    assert set(PRESETS) == names
    assert all(preset.name == name for name, preset in PRESETS.items())
    assert {method.preset for method in METHODS.values()} == names


@every_method
def test_a_preset_has_the_local_steps_and_the_sparsity_of_its_paper(method):
    options = preset_options(method.preset)
    assert (options.get("local_steps"), options.get("sparsity")) == method.own


def test_stc_is_the_same_in_both_directions():
    options = preset_options("stc")
    assert options["downlink_sparsity"] == options["sparsity"]
    assert options["downlink_values"] == options["compressor"] == "ternary"


@every_preset
def test_a_preset_has_plain_options_that_train_knows(name):
    options = preset_options(name)
    assert json.loads(json.dumps(options)) == options
    assert set(options) <= set(TrainingOptions.__dataclass_fields__)


@every_preset
def test_a_preset_cites_a_known_reference_and_says_what_it_does_in_a_sentence(name):
    references = (Path(__file__).parents[3] / "docs" / "references.md").read_text(encoding="utf-8")
    assert f"| [{PRESETS[name].key}] |" in references
    assert re.fullmatch(r"[A-Z][^.]*(\.\d[^.]*)*\.", PRESETS[name].summary)


def test_the_options_of_a_preset_are_the_callers_to_change():
    preset_options("dgc")["momentum"] = 0.1
    assert preset_options("dgc")["momentum"] == 0.9


@pytest.mark.parametrize("name", ["sgd", None, ["dgc"]], ids=str)
def test_options_of_an_unknown_preset_are_refused_with_the_names_of_all(name):
    with pytest.raises(fj.InvalidInputError, match=", ".join(PRESETS)):
        preset_options(name)
