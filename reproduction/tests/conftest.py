"""Settings of all tests, for those that are run alone."""

import tests.conftest  # noqa: F401
