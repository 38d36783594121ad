import subprocess
import sys

import pytest

import fewjoules as fj
from fewjoules_reproduction.plans import FIGURES, QUICK_DEVICES, plan_figures
from fewjoules_reproduction.table import Table

DRAWN = ("fig1a", "fig1a-million", "fig1-sensitivity", "fig1b", "fig1c", "fig1d")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig1") / "new"
    return folder, plan_figures(list(FIGURES), folder, quick=True)


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_is_written_three_times(quick, name):
    folder, _ = quick
    png = (folder / f"{name}.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) == 1050  # 3.5 inches at 300 dots
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert len(Table.read_csv(folder / f"{name}.csv")) > 10


def test_nothing_else_is_left_in_the_folder(quick):
    folder, _ = quick
    written = {f"{name}.{kind}" for name in DRAWN for kind in ("csv", "pdf", "png")}
    assert {file.name for file in folder.iterdir()} == written | {"fig1d-mirror.csv"}


def test_quick_stops_at_ten_thousand_devices(quick):
    folder, _ = quick
    assert max(Table.read_csv(folder / "fig1a-million.csv")["devices"]) == QUICK_DEVICES


def test_every_claim_has_a_verdict_a_number_and_a_reason(quick):
    _, claims = quick
    assert len(claims) == 75
    assert all(claim.number and claim.why and claim.reading for claim in claims)
    assert len({(claim.sentence, claim.reading) for claim in claims}) == len(claims)


@pytest.mark.parametrize(
    ("sentence", "reading", "verdict"),
    [
        ("consume the most energy", "pareto", "not reproduced"),
        ("FlexibleSpar outperforms", "pareto", "partly"),
        ("a large temporal sparsity H is needed", "pareto", "not reproduced"),
        ("tend to increase the gradient sparsity", "benders", "reproduced"),
        ("somewhat symmetrical", "pareto", "reproduced"),
        ("temporal sparsity H decreases", "benders, largest H first", "not reproduced"),
    ],
)
def test_the_main_verdicts_do_not_depend_on_how_fine_the_sweeps_are(quick, sentence, reading, verdict):
    _, claims = quick
    assert [c.verdict for c in claims if sentence in c.sentence and c.reading == reading] == [verdict]


def test_only_the_named_figures_are_made(tmp_path):
    claims = plan_figures(["fig1b"], tmp_path, quick=True)
    assert {claim.figure for claim in claims} == {"1(b)"}
    assert {file.name for file in tmp_path.iterdir()} == {"fig1b.csv", "fig1b.pdf", "fig1b.png"}


def test_an_unknown_figure_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(fj.InvalidInputError, match="fig1a, fig1b, fig1c, fig1d, got 'fig2a'"):
        plan_figures(["fig1a", "fig2a"], tmp_path / "new", quick=True)
    assert not (tmp_path / "new").exists()


def test_planning_needs_no_pytorch_and_loads_no_plotting_early():
    code = "import sys, fewjoules_reproduction.plans; print(*{'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
