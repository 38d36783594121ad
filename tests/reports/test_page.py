"""The page stands alone, says what the runs say, and is not fooled by hostile names."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.ledger.parquet import read_table, write_table
from fewjoules.ledger.schema import METRICS
from fewjoules.reports.page import _json, page, write_page
from fewjoules.reports.page_figures import sections
from fewjoules.runs.results import RunResults
from tests.reports.made_up import make_comparison, make_run

HOSTILE = "</script><script>alert(1)</script>"
THEME = ("@ink", "@grid", "@paper")


class Reader(HTMLParser):
    """Elements with their attributes, the text outside scripts, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        elif self.cdata_elem is None:
            self.text += data

    def figures(self):
        ids = [attributes.get("id") for tag, attributes in self.elements if tag == "script"]
        return {name: json.loads(text) for name, text in zip(ids, self.scripts, strict=True) if name}


def load(*folders):
    return [RunResults.load(folder) for folder in folders]


@pytest.fixture
def compared(tmp_path):
    return load(*make_comparison(tmp_path))


def test_the_page_needs_nothing_from_elsewhere(compared, tmp_path):
    write_page(compared, tmp_path / "page.html", "a comparison")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    reader = Reader(text)
    loaded = [(tag, a) for tag, a in reader.elements if {"src", "href", "data", "action"} & set(a)]
    assert loaded == []
    assert "default-src 'none'" in text
    assert sum("plotly.js v" in script for script in reader.scripts) == 1
    assert "@import" not in text
    assert not list(tmp_path.glob(".*partial"))


def test_the_page_says_the_saving_and_marks_the_miss(compared, tmp_path):
    write_page(compared, tmp_path / "page.html", "a comparison")
    reader = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    text = reader.text.replace("\u00a0", " ")
    assert "flexible reached 97 % with 9.12 J; dense took 50 times as much." in text
    assert "missed: 95.24 %" in text
    rows = [attributes["class"] for tag, attributes in reader.elements if tag == "tr" and "class" in attributes]
    assert rows == ["best", "", "", "", "missed"]
    for fact in ("four-groups", "digits", "cnn", "dirichlet", "float32", "0.1.0"):
        assert fact in text


def test_every_figure_has_its_place(compared):
    reader = Reader(page(compared, "title"))
    places = [attributes["data-figure"] for _, attributes in reader.elements if "data-figure" in attributes]
    assert places == list(reader.figures())
    assert len(places) == 1 + 1 + 5 + 1 + 2


def test_every_figure_tells_screen_readers_what_it_shows(compared):
    figures = [attributes for _, attributes in Reader(page(compared, "title")).elements if "data-figure" in attributes]
    assert all(attributes["role"] == "img" for attributes in figures)
    words = [attributes["aria-label"] for attributes in figures]
    assert len(set(words)) == len(words)
    assert "flexible from 27.4 % at round 2 to 97.6 % at round 38" in words[0]
    assert "greedy predicted 300, measured at least 250" in words[-2]


def test_the_words_about_joules_are_the_sums_of_the_ledger(tmp_path):
    (run,) = load(make_run(tmp_path / "a", downlink=True))
    total = sum(run.device_joules.values())
    (words,) = sections([run])[2].words
    least, most = int(total.argmin()), int(total.argmax())
    names = run.summary.device_names
    assert f": {total[least]:.4g} J ({names[least]}) to {total[most]:.4g} J ({names[most]}); uplink " in words


def test_tables_hold_the_numbers_of_the_figures(compared):
    _, _, joules, sparsity, forecast = (section.numbers for section in sections(compared))
    runs = {run.summary.scheme: run for run in compared}
    column = joules.titles.index("unified, uplink J")
    assert [row[column] for row in joules.rows] == [f"{x:.4g}" for x in runs["unified"].device_joules["uplink"]]
    column = sparsity.titles.index("flexible")
    assert [row[column] for row in sparsity.rows] == [f"{x:.4g}" for x in runs["flexible"].summary.sparsity]
    assert ("flexible", "rounds", "45.6", "38") in forecast.rows
    text = Reader(page(compared, "")).text
    assert text.count("The numbers as a table") == 3
    assert all(row[0] in text for row in joules.rows)


def test_the_panels_of_joules_share_one_legend_of_the_kinds_that_they_show(tmp_path):
    runs = load(make_run(tmp_path / "a"), make_run(tmp_path / "b", downlink=True))
    joules = sections(runs)[2]
    assert list(joules.legend) == ["uplink", "downlink", "compute"]
    for panel in joules.panels:
        assert panel["layout"]["showlegend"] is False
        assert all(trace["marker"]["color"] == joules.legend[trace["name"]] for trace in panel["data"])
    text = page(runs, "title")
    assert all(f'style="background:{colour}"></span>{kind}' in text for kind, colour in joules.legend.items())


def test_the_page_tells_where_joules_go_and_where_they_come_from(tmp_path):
    split = {"uplink": {"fitted": 1.0, "measured": 2.0}, "tail": {"profile": 5.0}, "codec": {"assumed": 0.0}}
    runs = load(make_run(tmp_path / "a", joules_by_kind=split), make_run(tmp_path / "b", scheme="dense"))
    kinds, marks = sections(runs)[3:5]
    assert kinds.numbers.titles == ("scheme", "J booked", "uplink J", "tail J")
    assert kinds.numbers.rows == (("flexible", "8", "3 (38 %)", "5 (62 %)"),)
    assert marks.numbers.titles == ("scheme", "J booked", "measured J", "fitted J", "profile J")
    assert marks.numbers.rows == (("flexible", "8", "2 (25 %)", "1 (12 %)", "5 (62 %)"),)
    text = page(runs, "title")
    shown = text.partition("<h2>Where the joules come from</h2>")[2].partition("</section>")[0]
    assert "5 (62 %)" in shown
    assert "<details>" not in shown
    assert len(sections(runs[1:])) == 5, "a run of old does not tell them"


def test_many_devices_without_names_have_words_and_no_table(tmp_path):
    (run,) = load(make_run(tmp_path / "a", devices=100, rounds=10))
    _, _, joules, sparsity, _ = sections([run])
    assert joules.numbers is None
    assert sparsity.numbers is None
    assert joules.words[0].startswith("Bar chart of the joules of each device, flexible: ")


@pytest.mark.parametrize("rounds", [1, 4, 12])
def test_few_rounds_have_ticks_at_whole_numbers(tmp_path, rounds):
    runs = load(make_run(tmp_path / "a", rounds=rounds, evaluate_every=1, target=None))
    axis = sections(runs)[0].panels[0]["layout"]["xaxis"]
    assert (axis["dtick"], axis["tickformat"]) == (1, ",d")


def test_the_first_name_has_room_and_is_not_dropped(tmp_path):
    """A tilted name reaches to the left of its device; plotly drops names that leave the figure unless told not to."""
    runs = load(make_run(tmp_path / "a", names=[f"jetson-orin-nano-{i}" for i in range(12)]))
    for section in sections(runs)[2:4]:
        layout = section.panels[0]["layout"]
        assert layout["xaxis"]["ticklabeloverflow"] == "allow"
        assert layout["xaxis"]["ticktext"][0] == "jetson-orin-nano-0"
        assert layout["margin"]["l"] >= 4 * len("jetson-orin-nano-0")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": None}, "this run had no target"),
        ({"with_plan": False}, "this run had no plan"),
    ],
)
def test_a_page_says_why_no_prediction_is_compared(tmp_path, changes, reason):
    section = sections(load(make_run(tmp_path / "a", **changes)))[-1]
    assert section.panels == ()
    assert reason in section.caption


def coloured(value):
    if isinstance(value, dict):
        return {key: coloured(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [coloured(inner) for inner in value]
    return "#123456" if value in THEME else value


def test_plotly_knows_every_property_that_is_used(compared, tmp_path):
    from plotly.graph_objects import Figure

    many = load(make_run(tmp_path / "many", devices=100, rounds=10, downlink=True))
    for panel in [*Reader(page(compared, "")).figures().values(), *Reader(page(many, "")).figures().values()]:
        Figure(coloured(panel))


def test_theme_colours_stand_only_where_the_page_fills_them_in(compared):
    def places(value, key=""):
        if isinstance(value, dict):
            return [place for inner, v in value.items() for place in places(v, inner)]
        if isinstance(value, list | tuple):
            return [place for v in value for place in places(v)]
        return [key] if value in THEME else []

    keys = [key for section in sections(compared) for panel in section.panels for key in places(panel)]
    assert keys
    assert all(key.endswith("color") for key in keys)


def test_hostile_names_stay_text(tmp_path):
    runs = load(
        make_run(tmp_path / "a", scheme=HOSTILE, names=[HOSTILE] * 12, scenario=HOSTILE, data=HOSTILE, device=HOSTILE),
        make_run(tmp_path / "b", scheme='<img src=x onerror="alert(1)">', stop_reason=HOSTILE, rounds=4),
    )
    (runs[0].folder / "scenario.toml").write_text(HOSTILE)
    runs[0] = RunResults.load(runs[0].folder)
    text = page(runs, HOSTILE)
    harmless = page(load(make_run(tmp_path / "c"), make_run(tmp_path / "d", scheme="dense", rounds=4)), "harmless")
    tags = [tag for tag, _ in Reader(text).elements]
    assert sorted(set(tags)) == sorted({tag for tag, _ in Reader(harmless).elements})
    assert tags.count("script") == len(Reader(text).figures()) + 2
    assert HOSTILE in Reader(text).text
    assert "<script>alert" not in text
    named = [trace["name"] for trace in Reader(text).figures()["figure-0-0"]["data"] if "name" in trace]
    assert all("<" not in name for name in named)  # plotly.js would read tags


def test_figures_cannot_end_their_script_element():
    text = _json({"name": HOSTILE + "<!--"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"name": HOSTILE + "<!--"}


def test_what_is_missing_is_said_instead_of_drawn(tmp_path):
    runs = load(make_run(tmp_path / "a", joules=None, target=None, with_plan=False))
    drawn = {section.title: bool(section.panels) for section in sections(runs)}
    assert list(drawn.values()) == [True, False, False, True, False]
    assert "joules are unknown" in Reader(page(runs, "")).text


def test_a_run_without_any_evaluation_or_round_has_a_page(tmp_path):
    folder = make_run(tmp_path / "a", rounds=3, test_accuracy=None, target=None)
    write_table(folder / "metrics.parquet", METRICS, [])
    assert "No round has a test accuracy" in Reader(page(load(folder), "")).text


def test_a_regression_to_a_loss_has_a_page_that_speaks_of_no_accuracy_it_has_not(tmp_path):
    changes = {"target_accuracy": None, "target_loss": 0.3, "test_loss": 0.29, "test_accuracy": None}
    folder = make_run(tmp_path / "a", **changes)
    metrics = read_table(folder / "metrics.parquet", METRICS)
    metrics["test_loss"], metrics["test_accuracy"] = np.linspace(2.0, 0.29, metrics.size), np.nan
    write_table(folder / "metrics.parquet", METRICS, [metrics])
    text = Reader(page(load(folder), "")).text.replace("\u00a0", " ")
    assert "flexible reached loss 0.3 with" in text
    assert "No round has a test accuracy" in text
    assert "evaluat" not in text


def test_long_runs_of_many_devices_stay_small(tmp_path):
    (run,) = load(make_run(tmp_path / "a", rounds=200_000, speed=2e-5, devices=1000, evaluate_every=1, target=None))
    assert len(page([run], "").encode()) < 5.2e6
    text = page([run] * 12, "")
    assert len(text.encode()) < 6e6
    assert max(len(trace["x"]) for figure in Reader(text).figures().values() for trace in figure["data"]) <= 2000


def test_a_page_of_nothing_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="at least 1 run, got 0"):
        write_page([], tmp_path / "page.html", "")
