import subprocess
import sys

import numpy as np
import pytest

import fewjoules as fj
from fabricated import SCHEMES, curves, like_the_paper, pilots, record, results
from fewjoules_reproduction import trainings
from fewjoules_reproduction.draw_trainings import _band, _epochs, _lowest_error, note_text
from fewjoules_reproduction.pool import Means
from fewjoules_reproduction.records import Records
from fewjoules_reproduction.table import Table
from fewjoules_reproduction.trainings import training_figures, write_sheet

BOTH = frozenset({"accuracy", "energy"})
WIDE, NARROW = 2100, 1050  # dots


def written(folder):
    return {file.name for file in folder.iterdir()}


def files(*stems):
    return {f"{stem}.{kind}" for stem in stems for kind in ("csv", "pdf", "png")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig2")
    write_sheet(like_the_paper(), trainings.MNIST, BOTH, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "dots"), [("fig2c", NARROW), ("fig2d", WIDE), ("fig2cd-predictions", WIDE), ("fig2cd-pilots", NARROW)]
)
def test_every_figure_is_written_three_times(whole, name, dots):
    png = (whole / f"{name}.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) == dots
    assert (whole / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert len(Table.read_csv(whole / f"{name}.csv")) > 10


def test_nothing_else_is_written(whole):
    tables = {"fig2cd-summary.csv", "fig2cd-laws.csv"}
    assert written(whole) == files("fig2c", "fig2d", "fig2cd-predictions", "fig2cd-pilots") | tables


def test_the_data_beside_a_figure_are_those_drawn(whole):
    assert len(set(Table.read_csv(whole / "fig2c.csv")["setting"])) == 5
    assert set(Table.read_csv(whole / "fig2d.csv")["setting"]) == {n for n in SCHEMES if "-" not in n}


def test_a_study_beyond_the_paper_has_one_narrow_panel_and_no_pilots_of_its_own(tmp_path):
    write_sheet(like_the_paper(study="mnist-dirichlet"), trainings._beyond("mnist-dirichlet"), BOTH, tmp_path)
    name = "fig2-mnist-dirichlet"
    assert written(tmp_path) == files(name, f"{name}-predictions") | {f"{name}-summary.csv"}
    assert int.from_bytes((tmp_path / f"{name}.png").read_bytes()[16:20]) == NARROW


@pytest.mark.parametrize(
    "given",
    [
        results({"dense": curves("dense", [record([0.5])]), "flexible": curves("flexible", [])}),
        results(
            {"dense": curves("dense", [record([], stop="diverged"), record([0.2, 1.0])])}, laws=pilots(paper=False)
        ),
        results({"qsgd": curves("qsgd", [record([0.3, 0.4])])}, laws=pilots(power_law=False)),
    ],
    ids=["no pilots", "diverged at once", "one baseline"],
)
def test_what_is_missing_breaks_nothing(given, tmp_path):
    write_sheet(given, trainings.MNIST, BOTH, tmp_path)
    assert files("fig2c", "fig2d", "fig2cd-predictions") <= written(tmp_path)


def test_without_any_run_nothing_is_drawn_but_the_pilots(tmp_path):
    write_sheet(results({}, laws=pilots()), trainings.MNIST, BOTH, tmp_path)
    assert written(tmp_path) == files("fig2cd-pilots") | {"fig2cd-laws.csv"}


def test_the_figure_says_what_was_not_run_and_what_diverged():
    given = results({"dense": curves("dense", [record([0.5]), record([0.5], stop="diverged")])})
    assert note_text(given, ["dense", "stc"]) == (
        "not run: dense SGD (1 of 3 seeds), STC; diverged: dense SGD (1 of 3 seeds)"
    )
    assert note_text(like_the_paper(), ["dense", "stc"]) == ""


def test_a_diverged_run_does_not_cut_the_line_of_the_others():
    runs = [record([0.5, 0.6, 0.7, 0.8]), record([0.7, 0.8], stop="diverged"), record([], stop="diverged")]
    x, (mean, least, most) = _band(
        results({"dense": curves("dense", runs)}), "dense", _epochs, _lowest_error, np.linspace
    )
    assert (x[0], x[-1]) == (1.0, 4.0)
    assert (mean[0], least[0], most[0]) == pytest.approx((40.0, 30.0, 50.0))
    assert (mean[-1], least[-1], most[-1]) == pytest.approx((20.0, 20.0, 20.0))


def nothing_recorded(folder):
    return Means(records=Records(folder / "runs"), train=False)


def test_each_study_is_carried_out_once_and_says_what_was_not_run(tmp_path, monkeypatch):
    asked = []
    found = trainings.carry_out_study
    monkeypatch.setattr(
        trainings, "carry_out_study", lambda study, *rest: asked.append(study.name) or found(study, *rest)
    )
    claims, not_run = training_figures(["fig2d", "fig2a", "fig2b"], tmp_path / "new", nothing_recorded(tmp_path), False)
    assert asked == ["cifar10", "mnist"]
    assert not_run == ["ResNet20 on CIFAR-10: pilot runs", "LeNet5 on MNIST: pilot runs"]
    assert {claim.figure for claim in claims} == {"2(a)", "2(b)", "2(d)"}
    assert {claim.verdict for claim in claims} == {"not run"}
    assert written(tmp_path / "new") == set()


def test_quick_makes_small_studies_and_leaves_writers_out(tmp_path):
    names = list(trainings.FIGURES)
    claims, not_run = training_figures(names, tmp_path, nothing_recorded(tmp_path), True)
    studies = [
        "CNN on 8x8 digits",
        "CNN on 8x8 digits, bits 1000 times as expensive",
        "CNN on 8x8 digits, Dirichlet 0.3",
    ]
    assert not_run == [f"{study}: pilot runs" for study in studies]
    assert {claim.figure for claim in claims} == {"2(a, c), quick", "2(b, d), quick", "beyond 2, quick"}
    assert training_figures(["writers"], tmp_path, nothing_recorded(tmp_path), True) == ([], [])
    assert set(trainings.QUICK_FIGURES) == set(trainings.FIGURES)


def test_an_unknown_figure_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(fj.InvalidInputError, match="writers, got 'fig1a'"):
        training_figures(["fig2a", "fig1a"], tmp_path / "new", nothing_recorded(tmp_path), True)
    assert not (tmp_path / "new").exists()


def test_reading_records_needs_no_pytorch_and_loads_no_plotting_early():
    code = "import sys, fewjoules_reproduction.trainings; print(*{'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
