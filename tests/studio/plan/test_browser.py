"""The plan view in a real browser: edited, exported, hostile names, keyboard, dark, and a phone's width."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.studio.browsing import PHONE, is_narrow_enough, page_of, studio_process, until

pytestmark = pytest.mark.browser
EXAMPLES = Path(__file__).parents[3] / "examples"
HOSTILE = "<script>document.title='x'</script><img src=x onerror=\"document.title='x'\"><b>bold</b>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("fleets")
    costs = (EXAMPLES / "measured-costs.toml").read_text(encoding="utf-8")
    (made / "costs.toml").write_text(costs, encoding="utf-8")
    hostile = costs.replace('"gateway"', json.dumps(HOSTILE))
    (made / "<img src=x onerror=alert(1)>.toml").write_text(hostile, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def address(folder):
    with studio_process(folder) as started:
        yield started


def at(address, rest):
    """Return another address of the same studio, with its token."""
    start, _, token = address.partition("?token=")
    return f"{start.rstrip('/')}{rest}{'&' if '?' in rest else '?'}token={token}"


def settle(page):
    """Wait until all parts of the plan are shown."""
    until(page, "document.querySelector('.results')?.getAttribute('aria-busy') === 'false'")


def test_an_edit_is_planned_at_once_and_can_be_saved_and_shared(browser, address, tmp_path):
    with page_of(browser, at(address, "/plan?file=costs.toml")) as page:
        settle(page)
        before = page.inner_text("#result")
        page.get_by_label("Deadline of a round (s)").fill("8")
        page.get_by_label("Price of a bit (times)").fill("3")
        until(page, f"document.getElementById('result').textContent !== {json.dumps(before)}")
        settle(page)
        shared, line = page.url, page.inner_text("#result")
        assert "deadline of 8 s" in page.inner_text("#constraints")
        with page.expect_download() as saving:
            page.get_by_role("button", name="Save the scenario").click()
        saving.value.save_as(tmp_path / "costs.toml")
        assert page.inner_text("#command") == "fewjoules plan costs.toml --scheme all"
    assert "#s=" in shared
    assert "token" not in shared
    tables = tomllib.loads((tmp_path / "costs.toml").read_text(encoding="utf-8"))
    assert tables["limits"]["round_seconds"] == 8
    assert tables["device"][0]["joules_per_bit"] == pytest.approx(3 * 4e-8)
    command = [sys.executable, "-m", "fewjoules", "plan", str(tmp_path / "costs.toml"), "--json"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["plans"][0]
    assert f"H = {plan['local_steps']}, " in line
    assert f"{plan['energy_joules']:.4g} J" in line
    with page_of(browser, at(address, "/plan?file=costs.toml")) as page:
        settle(page)
        page.goto(shared)
        page.reload()
        settle(page)
        assert page.inner_text("#result") == line
        assert page.get_by_label("Price of a bit (times)").input_value() == "3"


def test_a_million_devices_are_planned_while_the_slider_moves(browser, address):
    with page_of(browser, at(address, "/plan?example=lte-phone")) as page:
        settle(page)
        slide = page.get_by_label("Devices, slider")
        slide.focus()
        page.keyboard.press("End")
        until(page, "document.getElementById('speed').textContent.includes('1,000,000 devices')")
        settle(page)
        assert slide.get_attribute("aria-valuetext") == "1,000,000"
        told = page.inner_text("#speed")
        assert float(told.split(" in ")[1].split(" ms")[0]) < 1000.0
        assert "one device that stands for 1,000,000 equal ones" in told


def test_an_error_stands_beside_its_field_and_the_last_plan_stays(browser, address):
    with page_of(browser, at(address, "/plan?file=costs.toml")) as page:
        settle(page)
        line = page.inner_text("#result")
        field = page.get_by_label("Most sparsity (one entry in so many is sent)")
        field.fill("0.5")
        page.wait_for_selector("#wrong:not(:empty)")
        sentence = "costs.toml: limits.sparsity.max must be at least 1, got 0.5"
        assert page.inner_text("#wrong") == sentence
        assert page.locator('[data-wrong="limits.sparsity.max"]').inner_text() == sentence
        assert field.get_attribute("aria-invalid") == "true"
        assert page.inner_text("#result") == line
        assert "stale" in page.locator(".cards").get_attribute("class")
        field.fill("2000")
        settle(page)
        assert page.inner_text("#wrong") == ""
        assert field.get_attribute("aria-invalid") is None
        assert page.locator(".stale").count() == 0


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_figure_is_saved_as_an_image(browser, address, tmp_path, kind):
    with page_of(browser, at(address, "/plan")) as page:
        settle(page)
        with page.expect_download() as saving:
            page.get_by_role("button", name=f"Save ridge as {kind.upper()}").click()
        saving.value.save_as(tmp_path / f"ridge.{kind}")
        data = (tmp_path / f"ridge.{kind}").read_bytes()
    assert data.startswith(b"\x89PNG" if kind == "png" else b"<svg")
    assert len(data) > 5000
    if kind == "svg":
        assert b"local steps H" in data
        with page_of(browser, (tmp_path / "ridge.svg").as_uri()) as page:
            assert page.locator("svg").first.is_visible()


def test_hostile_names_are_shown_as_text(browser, address, folder):
    name = next(file.name for file in folder.iterdir() if "img" in file.name)
    with page_of(browser, at(address, "/plan")) as page:
        settle(page)
        page.select_option("#source", label=name)
        until(page, "document.querySelector('.results table').textContent.includes('<script>')")
        settle(page)
        assert page.title() == "Plan - FewJoules studio"
        assert page.locator("main script, main b, main img[src=x]").count() == 0
        assert "<script>docum" in page.locator("#joules-by-group .plot").inner_text()
        assert page.get_by_label("Name").first.input_value() == HOSTILE
        assert HOSTILE in tomllib.loads(page.locator("#toml").text_content())["device"][0]["name"]
        assert HOSTILE in page.locator("#joules-by-group .words").text_content()


def test_groups_are_added_and_removed(browser, address):
    with page_of(browser, at(address, "/plan?example=lte-phone")) as page:
        settle(page)
        page.get_by_role("button", name="Add a group").click()
        until(page, "document.querySelectorAll('.group').length === 2")
        until(page, "document.getElementById('speed').textContent.includes('110 devices')")
        page.get_by_role("button", name="Remove lte-phone").click()
        until(page, "document.getElementById('speed').textContent.includes('Planned 10 devices')")
        page.locator(".group summary").click()
        assert page.get_by_label("Tail of the radio (s)").get_attribute("placeholder") == "0.25"
        page.get_by_label("Profile", exact=True).select_option("5g-phone")
        until(page, "document.getElementById('toml').textContent.includes('5g-phone')")


def test_the_keyboard_reaches_everything_and_focus_is_seen(browser, address):
    with page_of(browser, at(address, "/plan")) as page:
        settle(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "source"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        unnamed = """[...document.querySelectorAll('input, select, button')].filter(one =>
            !one.labels?.length && !one.getAttribute('aria-label') && !one.textContent.trim()).length"""
        assert page.evaluate(unnamed) == 0
        assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.caption)")
        assert page.evaluate("[...document.querySelectorAll('.plot')].every(one => one.getAttribute('aria-label'))")
        assert page.locator("#result").get_attribute("aria-live") == "polite"


def test_the_dark_theme_follows_the_system_and_the_button(browser, address):
    colour = "getComputedStyle(document.body).backgroundColor"
    grid = "document.querySelector('#ridge .plot').layout.font.color"
    with page_of(browser, at(address, "/plan"), color_scheme="dark") as page:
        settle(page)
        assert page.evaluate(colour) == "rgb(21, 24, 28)"
        assert page.evaluate(grid) == "#e6e9ed"
        assert page.locator("#theme").get_attribute("aria-pressed") == "true"
        page.locator("#theme").click()
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        assert page.evaluate(grid) == "#1d2127"
        page.reload()
        settle(page)
        assert page.evaluate(colour) == "rgb(255, 255, 255)"


def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, address):
    with page_of(browser, at(address, "/plan"), viewport=PHONE) as page:
        settle(page)
        assert is_narrow_enough(page)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert is_narrow_enough(page)


def test_without_the_token_nothing_is_shown(browser, address):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(address.partition("?token=")[0] + "plan")
    assert answer.status == 403
    assert "Open the address" in page.inner_text("body")
    context.close()


def test_the_only_file_is_opened_and_the_words_of_the_page_are_explained(browser, tmp_path):
    shutil.copy(EXAMPLES / "measured-costs.toml", tmp_path / "mine.toml")
    with studio_process(tmp_path) as started, page_of(browser, at(started, "/plan")) as page:
        settle(page)
        assert "file=mine.toml" in page.url
        page.get_by_text("What the words mean").click()
        assert "keeps the rest for later messages" in page.inner_text(".meanings")
