"""The figures for papers: all there, one column wide, nothing clipped."""

from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from PIL import Image

from fewjoules.errors import InvalidInputError
from fewjoules.reports import run_plots
from fewjoules.reports.run_plots import FIGURES, save_plots
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_comparison, make_run

CASES = {
    "compared": lambda folder: make_comparison(folder),
    "one": lambda folder: [make_run(folder / "a", downlink=True)],
    "sixty devices": lambda folder: [make_run(folder / "a", devices=60, rounds=10)],
    "many devices": lambda folder: [make_run(folder / "a", devices=1000, rounds=10)],
    "one point": lambda folder: [make_run(folder / "a", rounds=30, evaluate_every=1000)],
    "long run": lambda folder: [make_run(folder / "a", rounds=200_000, speed=2e-5)],
    "hostile": lambda folder: [make_run(folder / "a", scheme=r"_$\frac{$" + "x" * 99, names=["_$^$ 名"] * 12)],
}


@pytest.fixture(params=CASES)
def runs(request, tmp_path):
    return [RunResults.load(folder) for folder in CASES[request.param](tmp_path / "runs")]


def test_nothing_is_clipped(runs):
    with mpl.rc_context(run_plots._STYLE), run_plots._quiet_glyphs():
        for draw in FIGURES.values():
            figure = draw(runs)
            figure.draw_without_rendering()
            whole = figure.get_tightbbox()
            assert whole.x0 >= -0.02
            assert whole.y0 >= -0.02
            assert whole.x1 <= 3.52
            assert whole.y1 <= figure.get_figheight() + 0.02
            assert all(axes.get_window_extent().height > 20 for axes in figure.axes)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_five_files_whose_bytes_repeat(tmp_path, kind):
    runs = [RunResults.load(make_run(tmp_path / "run"))]
    first = save_plots(runs, tmp_path / "a", kind)
    second = save_plots(runs, tmp_path / "b", kind)
    assert [file.name for file in first] == [f"{name}.{kind}" for name in FIGURES]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    assert sorted(tmp_path.joinpath("a").iterdir()) == sorted(first)


def test_every_svg_tells_screen_readers_what_it_shows(tmp_path):
    runs = [RunResults.load(folder) for folder in make_comparison(tmp_path / "runs")]
    for file in save_plots(runs, tmp_path / "plots", "svg"):
        root = ElementTree.parse(file).getroot()
        assert root.get("role") == "img"
        assert "chart of" in root.get("aria-label", "").lower()
        assert "greedy" in root.get("aria-label", "")


def test_names_with_markup_stay_text_in_a_description(tmp_path):
    runs = [RunResults.load(make_run(tmp_path / "run", scheme='"><script>&', names=["<b>"] * 12))]
    labels = [ElementTree.parse(file).getroot().get("aria-label") for file in save_plots(runs, tmp_path / "a", "svg")]
    assert all('"><script>&' in label for label in labels)


def test_a_figure_is_one_column_wide(tmp_path):
    for file in save_plots([RunResults.load(make_run(tmp_path / "run"))], tmp_path / "plots"):
        with Image.open(file) as image:
            assert image.width == 1050  # 3.5 inches at 300 dots an inch


def test_figures_without_numbers_are_left_out(tmp_path):
    runs = [RunResults.load(make_run(tmp_path / "run", joules=None, target=None, with_plan=False))]
    assert [file.stem for file in save_plots(runs, tmp_path / "plots")] == ["accuracy-by-round", "sparsity-by-device"]


def test_an_unknown_format_and_no_runs_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="format must be one of png, pdf, svg, got 'gif'"):
        save_plots([RunResults.load(make_run(tmp_path / "run"))], tmp_path, "gif")
    with pytest.raises(InvalidInputError, match="at least 1 run, got 0"):
        save_plots([], tmp_path)


def test_the_legend_names_a_kind_that_only_a_later_run_spent(tmp_path):
    runs = [RunResults.load(make_run(tmp_path / "a")), RunResults.load(make_run(tmp_path / "b", downlink=True))]
    (legend,) = run_plots.draw_joules(runs).legends
    assert [text.get_text() for text in legend.get_texts()] == ["uplink", "downlink", "compute"]


def test_the_legend_of_all_kinds_fits_one_column(tmp_path):
    run = RunResults.load(make_run(tmp_path / "a", downlink=True))
    run.device_joules.update(dict.fromkeys(("tail", "codec"), run.device_joules["uplink"]))
    with mpl.rc_context(run_plots._STYLE):
        figure = run_plots.draw_joules([run])
        figure.draw_without_rendering()
        whole = figure.get_tightbbox()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 5
    assert whole.x0 >= -0.02
    assert whole.x1 <= 3.52
