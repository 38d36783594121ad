"""``fewjoules compare --schemes levers``: what each lever brings, in their order, and what finding them took."""

import itertools
import json
import re

import pytest

from tests.reports.test_page import Reader
from tests.runs.test_levers import RECIPE
from tests.scenario.test_training_scenario import RATE, ROUNDS, SCENARIO
from tests.test_bad_input import assert_refused, run, write
from tests.test_recipe_cli import WITHOUT_LAW

NAMES = ["flexible", "step-size", "optimiser", "values", "fewest"]
LABELS = ["flexible", "+ step size", "+ optimiser", "+ values", "fewest"]
PRICE = RECIPE.replace("optimiser =", "pilots = 11\npilot_client_steps = 4200\npilot_joules = 0.5\noptimiser =")
TEXT = SCENARIO.replace(RATE, f"{RATE}\ntarget_accuracy = 0.4").replace(ROUNDS, "rounds = 40") + PRICE


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levers")
    done = run("compare", write(folder, TEXT), "--schemes", "levers,fedavg", "--device", "cpu", "--out", folder / "out")
    assert done.exit_code == 0, done.stderr
    return folder / "out", done.stdout.replace("\u00a0", " ")


def document_of(folder):
    return json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


def test_the_table_has_the_levers_in_their_order_and_what_each_brought(compared):
    folder, printed = compared
    head, *rows = printed.split("\n\n")[0].splitlines()
    assert head.endswith("x least  x before")
    assert [re.split(r"\s{2,}", row)[0] for row in rows] == [*LABELS, "fedavg"]
    document = document_of(folder)
    assert [one["scheme"] for one in document["schemes"]] == [*NAMES, "fedavg"]
    joules = [one["joules"]["mean"] for one in document["schemes"]]
    times = [one["times_before"] for one in document["schemes"]]
    assert times[0] is times[5] is None
    assert times[1:5] == pytest.approx([own / before for before, own in itertools.pairwise(joules[:5])])
    assert [row.split()[-1] for row in rows[1:5]] == [f"{factor:.2f}" for factor in times[1:5]]


def test_the_headline_says_the_whole_factor(compared):
    folder, printed = compared
    joules = {one["scheme"]: one["joules"]["mean"] for one in document_of(folder)["schemes"]}
    factor = joules["fewest"] / joules["flexible"]
    assert f"fewest took {factor:.2f} of flexible's joules to 40 %: " in printed


def test_the_price_of_the_recipe_is_told_apart(compared):
    folder, printed = compared
    search = document_of(folder)["search"]
    joules = {one["scheme"]: one["joules"]["mean"] for one in document_of(folder)["schemes"]}
    assert (search["pilots"], search["client_steps"], search["joules"]) == (11, 4200, 0.5)
    trainings = search["trainings_to_pay"]
    saved = joules["flexible"] - joules["fewest"]
    assert (trainings - 1) * saved < 0.5 <= trainings * saved
    sentence = f"Finding the recipe took 11 pilot runs, 0.5 J on these devices: paid after {trainings} training"
    assert sentence in printed
    assert sentence in Reader((folder / "page.html").read_text(encoding="utf-8")).text.replace("\u00a0", " ")


def test_each_lever_has_a_plain_folder_and_the_page_shows_bars_in_order(compared):
    folder, _ = compared
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {*NAMES, "fedavg"}
    assert [json.loads((folder / name / "run.json").read_text())["scheme"] for name in NAMES] == NAMES
    bars = Reader((folder / "page.html").read_text(encoding="utf-8")).figures()["figure-0-0"]
    assert bars["layout"]["yaxis"]["ticktext"] == LABELS
    totals = [sum(trace["x"][place] for trace in bars["data"]) for place in range(5)]
    joules = [one["joules"]["mean"] for one in document_of(folder)["schemes"]]
    assert totals == pytest.approx(joules[:5], rel=1e-4)


def test_a_comparison_of_levers_is_resumed(compared):
    folder, printed = compared
    before = document_of(folder)
    done = run("compare", "--resume", folder)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.replace("\u00a0", " ") == printed
    assert document_of(folder) == before


def test_several_seeds_have_means_and_a_sentence_about_noise(tmp_path):
    options = ["--schemes", "levers", "--seeds", "3", "--device", "cpu", "--out", tmp_path / "out"]
    done = run("compare", write(tmp_path, TEXT), *options)
    assert done.exit_code == 0, done.stderr
    head, *rows = done.stdout.split("\n\n")[0].splitlines()
    assert head.endswith("x least  x before  noise")
    assert [re.split(r"\s{2,}", row)[0] for row in rows] == LABELS
    assert "Over 3 seeds fewest took 0." in done.stdout
    assert "the noise." in done.stdout
    assert (tmp_path / "out" / "step-size" / "seed-2" / "run.json").exists()


def test_a_lever_may_have_a_step_size_of_its_own(tmp_path):
    text = SCENARIO + RECIPE
    rates = ["--rate", "optimiser=0.02"]
    done = run("compare", write(tmp_path, text), "--schemes", "levers", *rates, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    rates = {name: json.loads((tmp_path / "out" / name / "run.json").read_text())["learning_rate"] for name in NAMES}
    assert rates == {"flexible": 0.1, "step-size": 0.3, "optimiser": 0.02, "values": 0.01, "fewest": 0.01}


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (SCENARIO, [], ("scenario.toml", "--schemes levers needs [rounds]", "no [recipe]", "fewjoules tune")),
        (WITHOUT_LAW + RECIPE, [], ("scenario.toml", "--schemes levers needs [rounds]", "got no [rounds]")),
        (
            SCENARIO + RECIPE.replace("plain_learning_rate = 0.3\n", ""),
            ["--rate", "step-size=0.2"],
            ("--rate", "flexible, optimiser, values, fewest", "step-size"),
        ),
        (SCENARIO + RECIPE, ["--rate", "dense=0.2"], ("--rate", "step-size", "dense=0.2")),
    ],
    ids=["no recipe", "no law", "rate of a lever that is left out", "rate of another scheme"],
)
def test_what_cannot_be_followed_is_refused(text, options, says, tmp_path):
    done = run("compare", write(tmp_path, text), "--schemes", "levers", *options, "--out", tmp_path / "out")
    assert_refused(done, *says)
    assert not (tmp_path / "out").exists()
