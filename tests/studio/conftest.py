"""One browser for all tests that need it."""

import pytest


@pytest.fixture(scope="session")
def browser():
    from tests.studio.browsing import chromium

    with chromium() as started:
        yield started
