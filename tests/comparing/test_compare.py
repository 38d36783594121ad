"""``fewjoules.compare``: joules to the target of every scheme, by the tables of the runs themselves."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import fewjoules as fj
from fewjoules.errors import FewJoulesWarning, InvalidInputError
from fewjoules.reports.ties import tied_with_best

RNG = np.random.default_rng(3)
TRUTH = RNG.standard_normal((6, 3))
FLEET = fj.Fleet(joules_per_bit=np.array([1e-5, 4e-5, 2e-5]), joules_per_step=np.full(3, 1e-3))


def samples(count):
    inputs = RNG.standard_normal((count, 6)).astype(np.float32)
    return inputs, (inputs @ TRUTH).argmax(1)


CLIENTS, TEST = [samples(30), samples(20), samples(25)], samples(60)
PROBLEM = fj.ControlProblem(
    fleet=FLEET,
    rounds=fj.PowerLawRounds(tau=40.0, c=0.1, a=0.5, q=0.5),
    parameters=21,
    sparsity=(1.0, 9.0),
    local_steps=range(1, 9),
)
GIVEN = {"clients": CLIENTS, "test": TEST, "fleet": FLEET, "target": 0.7, "learning_rate": 0.2, "batch_size": 5}
OWN = {"few": {"local_steps": 2, "sparsity": 4.0}, "dense": {"local_steps": 1, "sparsity": 1.0}}


def net(seed=1):
    torch.manual_seed(seed)
    return nn.Linear(6, 3)


def compare(schemes=OWN, **changes):
    return fj.compare(net, schemes=schemes, **{"evaluate_every": 1, "device": "cpu"} | GIVEN | changes)


@pytest.fixture(scope="module")
def compared():
    return compare(rounds=60, seeds=3)


def joules_to_target(run):
    met = np.flatnonzero(run.metrics["test_accuracy"] >= 0.7)
    return float(run.metrics["total_joules"][met[0]])


def test_joules_are_those_of_the_first_round_that_met_the_target(compared):
    assert set(compared.runs) == {(name, seed) for name in OWN for seed in (0, 1, 2)}
    for one in compared.schemes:
        joules = [joules_to_target(compared.runs[one["scheme"], seed]) for seed in (0, 1, 2)]
        assert one["joules"]["mean"] == pytest.approx(np.mean(joules))
        assert (one["joules"]["least"], one["joules"]["most"]) == pytest.approx((min(joules), max(joules)))
        assert one["reached"] == 3
    means = [one["joules"]["mean"] for one in compared.schemes]
    assert means == sorted(means)
    assert [one["times_least"] for one in compared.schemes] == pytest.approx([mean / means[0] for mean in means])


def test_ties_are_told_by_the_joules_of_the_same_seeds(compared):
    order = [one["scheme"] for one in compared.schemes]
    joules = np.array([[joules_to_target(compared.runs[name, seed]) for seed in (0, 1, 2)] for name in order])
    assert [one["tied"] for one in compared.schemes] == tied_with_best(joules, 0).tolist()


def test_a_run_of_the_comparison_is_that_of_train_alone(compared):
    given = GIVEN | {"evaluate_every": 1, "device": "cpu", "rounds": 60, "seed": 2}
    alone = fj.train(net(2), **given, **OWN["few"])
    assert compared.runs["few", 2].ledger.tobytes() == alone.ledger.tobytes()
    assert compared.runs["few", 2].folder is None
    assert torch.equal(compared.runs["few", 2].model.weight, alone.model.weight)


def test_it_prints_its_table_and_makes_a_frame(compared):
    text = str(compared)
    assert text.splitlines()[0].split()[:3] == ["scheme", "H", "rounds"]
    assert {line.split()[0] for line in text.splitlines()[1:3]} == set(OWN)
    assert compared.headline in text
    frame = compared.to_pandas()
    assert frame["scheme"].tolist() == [one["scheme"] for one in compared.schemes]
    assert frame["joules"].tolist() == [one["joules"]["mean"] for one in compared.schemes]
    assert (frame["joules_least"] <= frame["joules"]).all()


def test_schemes_presets_plans_and_recipes_are_taken_by_name(tmp_path):
    recipe = fj.Recipe("mine", {"learning_rate": 0.3, "outer": "nesterov"}, plan=fj.solve(PROBLEM))
    found = compare(["flexible", "fedavg", "fedavgm", recipe], problem=PROBLEM, rates={"fedavg": 0.1}, out=tmp_path)
    assert {name for name, _ in found.runs} == {"flexible", "fedavg", "fedavgm", "mine"}
    rates = {name: run.metrics["learning_rate"][0] for (name, _), run in found.runs.items()}
    assert rates == {"flexible": 0.2, "fedavg": 0.1, "fedavgm": 0.2, "mine": 0.3}
    told = json.loads((tmp_path / "comparison.json").read_text())
    assert [one["scheme"] for one in told["schemes"]] == [one["scheme"] for one in found.schemes]
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert fj.Plan.load(tmp_path / "flexible" / "plan.json").chooses_like(fj.solve(PROBLEM))
    assert fj.Run.load(tmp_path / "mine").ledger.tobytes() == found.runs["mine", 0].ledger.tobytes()


def test_a_preset_may_take_the_local_steps_of_the_longest_plan():
    from fewjoules.comparing.own_entrants import own_entrants

    plans = {entrant.name: entrant for entrant in own_entrants(["flexible", "slowmo"], GIVEN, PROBLEM, {})}
    longest = fj.solve(PROBLEM).local_steps * fj.solve(PROBLEM).rounds_to_train(4)
    assert plans["slowmo"].arguments["rounds"] == -(-longest // 12)


def test_a_scheme_that_diverges_is_left_out_and_counted():
    huge = {"local_steps": 1, "sparsity": 1.0, "learning_rate": 1e38, "guard": False, "weight_decay": 1e3}
    with pytest.warns(
        FewJoulesWarning, match="scheme wild is left out: the update of client 0 in round 1 is not finite"
    ):
        found = compare({"wild": huge, "dense": OWN["dense"]}, rounds=60)
    assert found.diverged == {"wild": 1}
    assert [one["scheme"] for one in found.schemes] == ["dense"]


@pytest.mark.parametrize(
    ("schemes", "changes", "says"),
    [
        ("flexible", {}, "schemes must be a list or a mapping by name, got 'flexible'"),
        ([], {}, "schemes must have at least one entry"),
        (["flexible"], {}, "scheme flexible is planned, which needs a problem"),
        (["dgcc"], {}, "schemes must be names out of flexible.*, got 'dgcc'"),
        (["dgc", "dgc"], {}, "give a mapping by name, got 'dgc' twice"),
        ({"../up": OWN["few"]}, {}, "the name of a scheme must be one of a folder, got '../up'"),
        (OWN, {"rates": {"other": 0.1}}, "rates must name schemes out of few, dense, got 'other'"),
        (OWN, {"rates": 5}, "rates must be a mapping of names of schemes to step sizes, got 5"),
        (OWN, {"problem": 5}, "problem must be a fewjoules.ControlProblem, got int"),
        (OWN, {"on_round": 5}, "on_round must be a function of one argument or None, got 5"),
        (OWN, {"seeds": 0}, "seeds must be a whole number from 1 to 100, got 0"),
        (OWN, {"rounds": None}, "rounds is missing"),
        ({"mine": {"target": 0.1}}, {}, "target must be the same for all schemes, got one of scheme mine"),
        ([3], {}, "schemes must be names, plans or recipes"),
        (OWN, {"colour": 1}, r"^'colour' is no option of compare, which takes clients, test, .*guard"),
    ],
)
def test_what_cannot_be_compared_is_refused(schemes, changes, says):
    with pytest.raises(InvalidInputError, match=says):
        compare(schemes, **{"rounds": 5} | changes)


def test_a_function_that_takes_no_seed_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"^model must be a torch\.nn\.Module, or a function of a seed"
    ) as refusal:
        fj.compare(lambda: net(), schemes=OWN, rounds=2, device="cpu", **GIVEN)
    assert "too many positional arguments" in str(refusal.value)


def test_step_sizes_of_numpy_are_kept_as_numbers(tmp_path):
    compare(rounds=np.int64(2), target={"loss": 9.0}, rates={"few": np.float32(0.25)}, out=tmp_path / "numpy")
    assert json.loads((tmp_path / "numpy" / "comparison.json").read_text())["rates"] == {"few": 0.25}
