"""The runs view in a real browser: a run watched live and killed, runs compared by keyboard, a ledger saved as CSV."""

import csv
import io
import signal
import subprocess
import sys
from urllib.parse import urlencode
from xml.etree import ElementTree

import polars
import pytest

import fewjoules as fj
from fewjoules.studio.runs.rows import listed
from tests.studio.browsing import PHONE, chromium, is_narrow_enough, page_of, studio_process
from tests.studio.runs.made import FOLDER, HOSTILE, hostile_text
from tests.test_bad_input import write

pytestmark = pytest.mark.browser
WAIT = 60_000  # milliseconds, on a machine that is busy
LOSS = "#training-loss-by-round-and-by-energy-1 .plot"


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def studio(results):
    with studio_process(results) as address:
        yield address


def opened(browser, studio, address, **options):
    """Open an address of the studio, after the one with the token."""
    target = studio.replace("/?", f"{address}{'&' if '?' in address else '?'}")
    return page_of(browser, target, **options)


def last_round(page):
    return page.evaluate(f"document.querySelector('{LOSS}')?.data?.[0]?.x?.at(-1) ?? 0")


def grows_beyond(page, before):
    page.wait_for_function(
        f"before => (document.querySelector('{LOSS}')?.data?.[0]?.x?.at(-1) ?? 0) > before", arg=before, timeout=WAIT
    )


def train(folder, *arguments):
    command = [sys.executable, "-m", "fewjoules", "train", *map(str, arguments), "--device", "cpu"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_run_is_watched_killed_and_continued(browser, tmp_path):
    file = write(tmp_path, hostile_text(rounds=100_000).replace("[training]", "[training]\nevaluate_every = 50"))
    process = train(tmp_path, file, "--out", tmp_path / "run", "--checkpoint-seconds", "2")
    try:
        with studio_process(tmp_path) as address, opened(browser, address, "/runs") as page:
            page.get_by_role("link", name="run", exact=True).click(timeout=WAIT)
            grows_beyond(page, 0)
            assert page.locator(".state").first.text_content() == "running"
            grows_beyond(page, last_round(page))
            grows_beyond(page, last_round(page))
            assert "is training" in page.locator("h1").text_content()
            page.wait_for_selector("#joules-by-kind-1 .plot .trace", timeout=WAIT)  # a checkpoint was written
            process.send_signal(signal.SIGKILL)
            process.wait()
            page.wait_for_selector(".state.stopped", timeout=WAIT)
            assert "fewjoules train --resume run" in page.locator(".commands").text_content()
            kept = last_round(page)
            process = train(tmp_path, "--resume", "run")
            page.wait_for_selector(".state.running", timeout=WAIT)
            grows_beyond(page, kept)
    finally:
        process.kill()
        process.wait()


def test_runs_are_chosen_and_compared_by_keyboard(browser, studio):
    with opened(browser, studio, "/runs?sort=folder&order=rising") as page:
        page.wait_for_selector("table.runs tbody tr", timeout=WAIT)
        page.locator("#find").focus()
        page.keyboard.type("seed-1")
        page.wait_for_function("document.querySelectorAll('table.runs tbody tr').length === 2")
        for name in ("sides/fedavg/seed-1", "sides/flexible/seed-1"):
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.dataset.folder") == name:
                    break
            page.keyboard.press("Space")
        assert page.locator("#count").text_content().startswith("2 of ")
        page.locator("#compare").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("table.ranking tbody tr", timeout=WAIT)
        assert page.url.endswith("/runs/compare?run=sides%2Ffedavg%2Fseed-1&run=sides%2Fflexible%2Fseed-1")
        assert page.locator("table.ranking tbody th").all_text_contents() == ["fedavg", "flexible"]
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the comparison as CSV").click()
        assert len(saved.value.path().read_text(encoding="utf-8").splitlines()) == 3


def test_headings_sort_and_the_address_keeps_it(browser, studio, workspace):
    with opened(browser, studio, "/runs?kind=run") as page:
        page.get_by_role("button", name="Joules").click(timeout=WAIT)
        page.wait_for_selector("th[aria-sort=ascending] >> text=Joules")
        page.reload()
        page.wait_for_selector("th[aria-sort=ascending] >> text=Joules", timeout=WAIT)
        shown = page.locator("table.runs tbody th a").all_text_contents()
    rows = sorted((row for row in listed(workspace)["rows"] if row["kind"] == "run"), key=lambda row: row["joules"])
    assert shown == [row["folder"] for row in rows]


def test_the_ledger_is_filtered_summed_and_saved(browser, studio, results):
    with opened(browser, studio, f"/runs/ledger?{urlencode({'folder': FOLDER})}") as page:
        page.get_by_label("Group").fill(HOSTILE, timeout=WAIT)
        page.get_by_label("to round").fill("3")
        page.get_by_label("Joules of").select_option("uplink")
        page.wait_for_function("document.querySelector('#count').textContent.startsWith('6 rows')")
        shown = float(page.locator("[data-sum=uplink_joules]").get_attribute("data-value"))
        with page.expect_download() as saved:
            page.get_by_role("link", name="CSV of these rows").click()
        text = saved.value.path().read_text(encoding="utf-8")
        page.get_by_role("button", name="uplink joules").first.click()
        page.wait_for_selector("th[aria-sort=ascending] >> text=uplink joules")
        assert "group=" in page.url
        assert "sort=uplink_joules" in page.url
    ledger = fj.Run.load(results / FOLDER).to_polars("ledger")
    wanted = ledger.filter(polars.col("device").is_in([2, 3]) & (polars.col("round") <= 3))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["uplink_joules"]) for row in rows] == wanted["uplink_joules"].to_list()
    assert shown == pytest.approx(wanted["uplink_joules"].sum())


@pytest.mark.parametrize(
    "address",
    [
        "/runs",
        f"/runs/run?{urlencode({'folder': FOLDER})}",
        "/runs/tuning?folder=tuning",
        "/runs/compare?folder=sides",
        f"/runs/ledger?{urlencode({'folder': FOLDER})}",
    ],
)
def test_names_are_text_and_every_view_fits_a_phone_in_the_dark(browser, studio, address):
    with opened(browser, studio, address, viewport=PHONE, color_scheme="dark") as page:
        page.on("dialog", lambda dialog: pytest.fail("a name was run as a script"))
        page.wait_for_selector("main table tbody tr", timeout=WAIT)
        page.wait_for_timeout(300)
        assert is_narrow_enough(page)
        assert page.locator("main script").count() == 0
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
        if "tuning" not in address and "sides" not in address:
            assert "<script" in page.locator("main").text_content()
        for table in page.locator("main table").all():
            assert table.locator("caption").count() == 1
        assert all(
            page.locator(".plot").nth(place).get_attribute("aria-label")
            for place in range(page.locator(".plot").count())
        )


def test_figures_are_saved_as_pictures(browser, studio):
    with opened(browser, studio, f"/runs/run?{urlencode({'folder': FOLDER})}") as page:
        page.wait_for_selector("#energy-by-device-1 .plot .trace", timeout=WAIT)
        saved = {}
        for kind in ("png", "svg"):
            with page.expect_download() as download:
                page.locator("#energy-by-device-1").get_by_role("button", name=kind.upper()).click()
            saved[kind] = download.value.path().read_bytes()
    assert saved["png"].startswith(b"\x89PNG")
    drawn = ElementTree.fromstring(saved["svg"])
    assert drawn.tag.endswith("svg")
    assert not [one for one in drawn.iter() if one.tag.endswith("script")]
    assert any((one.text or "").startswith("<script>alert") for one in drawn.iter())
