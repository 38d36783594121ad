"""The notebooks run, compute what they say, and their committed outputs are those of today's code."""

import base64
import importlib.util
import math
import re
from pathlib import Path

import nbformat
import pytest

from tests.snippets import rounding
from tests.snippets.page import OF_TRAININGS

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
# trainings round differently on other processors
TOLERANCES = {"plan_a_fleet": 1e-3, "train_your_own_model": 0.25}


def execute():
    spec = importlib.util.spec_from_file_location("execute_notebooks", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=TOLERANCES)
def notebook(request):
    """Name, the notebook as it is committed, and as it is after it was executed now."""
    path = FOLDER / f"{request.param}.ipynb"
    return request.param, nbformat.read(path, as_version=4), execute().executed(path)


def said(cells):
    """What each cell printed or showed as text."""
    texts = []
    for cell in cells:
        outputs = cell.get("outputs", ())
        shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
        texts.append("\n".join(text for text in shown if "<Figure" not in text))
    return texts


def values(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(TOLERANCES)


def test_committed_outputs_are_those_of_todays_code(notebook):
    name, committed, now = notebook
    assert any(said(committed.cells))
    pairs = zip(said(committed.cells), said(now.cells), strict=True)
    stale = [pair for pair in pairs if not alike(*pair, TOLERANCES[name])]
    assert not stale or (TOLERANCES[name] >= OF_TRAININGS and not rounding.is_that_of_the_pages()), stale


def alike(old, new, tolerance):
    """Whether two texts have the same words, and about the same numbers."""
    if NUMBER.sub("#", old).split() != NUMBER.sub("#", new).split():
        return False
    pairs = zip(values(old), values(new), strict=True)
    return all(math.isclose(before, after, rel_tol=tolerance, abs_tol=1e-3) for before, after in pairs)


def test_figures_are_small_and_nothing_tells_of_a_machine(notebook):
    _, committed, now = notebook
    outputs = [output for cell in committed.cells for output in cell.get("outputs", ())]
    figures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    drawn = [
        output for cell in now.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert len(figures) == len(drawn) >= 1
    assert all(2_000 < len(base64.b64decode(figure)) < 100_000 for figure in figures)
    text = nbformat.writes(committed)
    for word in ("/tmp", "/home", "/root", "/work", "Traceback", "iopub", '"stderr"'):
        assert word not in text, word


def claims(text, *patterns):
    """The numbers that a text claims, one for each pattern."""
    return [float(re.search(pattern, text, re.MULTILINE)[1].replace(",", "")) for pattern in patterns]


def test_what_the_notebook_concludes_follows_from_what_it_computed(notebook):
    name, _, now = notebook
    text = "\n".join(said(now.cells))
    {"plan_a_fleet": check_planning, "train_your_own_model": check_training}[name](text)


def check_planning(text):
    plan, bound = claims(text, r"^plan +([\d.]+) J", r"^lower bound ([\d.]+) J")
    assert bound <= plan <= bound * (1.0 + 1e-9)
    costs = dict(re.findall(r"^(\w+) +\d+ +\S+ +\S+ +([\d.]+)$", text, re.MULTILINE))
    assert list(costs) == ["flexible", "unified", "fedavg", "synchronous", "greedy", "dense"]
    ratios = [float(ratio) for ratio in costs.values()]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0
    assert ratios[1] < ratios[2] < 1.1 < 10.0 < ratios[3]  # "what decides on this fleet is H"
    deadlines = re.findall(r"^[\d.]+ +\d+ [\d,]+ +([\d.]+) +[\d.]+ +[\d.]+$", text, re.MULTILINE)
    assert len(deadlines) == 8
    assert [float(ratio) for ratio in deadlines] == sorted(map(float, deadlines), reverse=True)
    assert text.count("cannot be met") == 2
    (random,) = claims(text, r"random plans costs ([\d.]+) % more")
    assert random > 0.0
    tail_bits = 1.06 * 10.1 / 277e-9
    assert 38e6 < tail_bits < 40e6  # "as much as sending 39 million bits"
    assert 2.5 < tail_bits / (32 * 431_080) < 3.0  # "almost three times the whole model"


def check_training(text):
    accuracy, computed = claims(text, r"^accuracy (0\.\d+)", r"computed here: (0\.\d+)")
    assert accuracy == pytest.approx(computed, abs=2e-3)
    assert accuracy >= 0.9
    assert "ended by: target accuracy" in text
    in_ledger, of_run = claims(text, r"^ledger ([\d.]+) J", r"run ([\d.]+) J")
    assert in_ledger == of_run
    (a_round,) = claims(text, r"^J a round +[\d.]+ +[\d.]+ +([\d.]+)")
    assert a_round == pytest.approx(1.0, abs=0.05)  # "predicted closely"
    shares = [int(share) for share in re.findall(r"spends (\d+)% of its joules", text)]
    assert shares == sorted(shares)
    assert shares[-1] > 50 > shares[0]
