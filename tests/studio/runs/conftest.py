"""One folder of results for all tests of the runs view."""

import pytest

from fewjoules.studio.access import Workspace
from tests.studio.runs.made import make_results


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Results that no test changes."""
    return make_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def workspace(results):
    return Workspace.of(results)
