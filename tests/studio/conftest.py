"""A browser for each module of tests that need one."""

import pytest


@pytest.fixture(scope="module")
def browser():
    from tests.studio.browsing import chromium

    with chromium() as started:
        yield started
