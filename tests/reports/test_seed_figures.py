"""Figures of several seeds: a scheme keeps one look, and no seed is lost in a mean."""

import numpy as np
import pytest

from fewjoules.reports import curves
from fewjoules.reports.page import page
from fewjoules.reports.page_figures import sections
from fewjoules.reports.run_plots import save_plots
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_run
from tests.reports.test_page import Reader

SEEDS = 3


@pytest.fixture
def runs(tmp_path):
    """Two schemes with three seeds; one run misses the target."""
    made = []
    for scheme, joules in (("flexible", 0.02), ("dense", 0.5)):
        for seed in range(SEEDS):
            missed = {"rounds": 10} if (scheme, seed) == ("dense", 2) else {}
            folder = tmp_path / scheme / f"seed-{seed}"
            given = {"joules": joules * (1.0 + 0.1 * seed), "speed": 0.12 + 0.01 * seed, "downlink": seed == 1}
            made.append(RunResults.load(make_run(folder, scheme=scheme, seed=seed, devices=4, **given | missed)))
    return made


def section(runs, title):
    (found,) = (one for one in sections(runs) if one.title == title)
    return found


def test_the_seeds_of_a_scheme_share_one_look_and_one_place_in_the_legend(runs):
    assert len(set(curves.looks(runs))) == 2
    (panel,) = section(runs, "Test accuracy by round").panels
    lines = [trace for trace in panel["data"] if trace["mode"] == "lines"]
    assert len(lines) == len(runs)
    assert [trace["name"] for trace in lines if trace["showlegend"]] == ["flexible", "dense"]
    assert len({(trace["name"], trace["line"]["color"], trace["line"]["dash"]) for trace in lines}) == 2


def test_hiding_a_scheme_hides_all_its_seeds(runs):
    (panel,) = section(runs, "Test error by energy").panels
    assert {trace["legendgroup"] for trace in panel["data"]} == {"flexible", "dense"}


def test_every_seed_has_its_point_and_a_miss_is_a_triangle(runs):
    (panel,) = section(runs, "Energy by seed").panels
    dots = [trace for trace in panel["data"] if len(trace["x"]) > 1]
    expected = [run.summary.joules_to_target or run.summary.joules for run in runs]
    assert [x for trace in dots for x in trace["x"]] == expected
    assert [symbol for trace in dots for symbol in trace["marker"]["symbol"]] == ["circle"] * 5 + ["triangle-right"]
    means = [trace["x"][0] for trace in panel["data"] if len(trace["x"]) == 1]
    assert means == pytest.approx([np.mean(expected[:SEEDS]), np.mean(expected[SEEDS:])])


def test_the_joules_of_a_device_are_means_with_their_range(runs):
    own = runs[:SEEDS]
    (bars,) = curves.device_bars(own)
    totals = np.array([sum(run.device_joules.values()) for run in own])
    np.testing.assert_allclose(sum(bars.joules.values()), totals.mean(axis=0))
    np.testing.assert_array_equal(bars.least, totals.min(axis=0))
    np.testing.assert_array_equal(bars.most, totals.max(axis=0))
    (panel,) = section(own, "Energy by device").panels
    reach = panel["data"][-1]["error_y"]
    np.testing.assert_allclose(reach["array"], totals.max(axis=0) - totals.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(reach["arrayminus"], totals.mean(axis=0) - totals.min(axis=0), rtol=1e-5)


def test_a_prediction_stands_beside_the_mean_and_the_range_of_the_runs(runs):
    flexible, dense = curves.forecasts(runs)["joules"]
    joules = [run.summary.joules_to_target for run in runs[:SEEDS]]
    assert (flexible.measured, flexible.least, flexible.most) == pytest.approx(
        (np.mean(joules), min(joules), max(joules))
    )
    assert (flexible.reached, dense.reached) == (True, False)


def test_sparsities_are_drawn_once_for_each_scheme(runs):
    _, drawn = curves.sparsity_curves(runs)
    assert [curve.look.label for curve in drawn] == ["flexible", "dense"]


def test_words_tell_where_the_seeds_of_each_scheme_end(runs):
    (words,) = section(runs, "Test accuracy by round").words
    rounds = [int(run.summary.rounds) for run in runs[:SEEDS]]
    assert "flexible with 3 seeds to " in words
    assert f"at round {min(rounds)} to {max(rounds)};" in words


def test_facts_that_differ_between_seeds_are_listed_once_for_each_scheme(runs):
    text = Reader(page(runs, "title")).text
    assert "seed0, 1, 2" in text.replace("\n", "")


def test_figures_are_saved_with_one_entry_of_the_legend_for_each_scheme(runs, tmp_path):
    from fewjoules.reports.run_plots import draw_accuracy

    assert len(save_plots(runs, tmp_path / "plots", "svg")) == 5
    figure = draw_accuracy(runs)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["flexible", "dense"]


def test_one_seed_has_no_figure_of_seeds(runs):
    assert "Energy by seed" not in [one.title for one in sections([runs[0], runs[SEEDS]])]
