"""A studio in a real browser: Debian's chromium, driven by Playwright, which brings none of its own here."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = {"width": 1440, "height": 1000}
PHONE = {"width": 360, "height": 780}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser of this machine."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is missing; make test-browser installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def studio_process(folder: Path) -> Iterator[str]:
    """Start ``fewjoules studio`` of a folder; yield its address, and end it by Ctrl-C."""
    command = [sys.executable, "-m", "fewjoules", "studio", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = next(re.findall(r"http://\S+", line)[0] for line in process.stdout if "http://" in line)
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0


@contextmanager
def page_of(browser: Browser, address: str, **options: object) -> Iterator[Page]:
    """Open an address in a context of its own; no error and no blocked script may be on its console."""
    context = browser.new_context(**({"viewport": DESKTOP, "accept_downloads": True} | options))
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    try:
        page.goto(address)
        page.wait_for_url(lambda url: "token=" not in url)
        yield page
    finally:
        context.close()
    assert complaints == []


def is_narrow_enough(page: Page) -> bool:
    """Tell whether the page fits its window without scrolling sideways."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def until(page: Page, expression: str, *, seconds: float = 20.0) -> None:
    """Wait until an expression is true; Playwright's own way of waiting for one is what the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not true after {seconds} s: {expression}"
        page.wait_for_timeout(20)
