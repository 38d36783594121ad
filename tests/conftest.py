"""Settings of all tests: how long an example of Hypothesis takes is no reason to fail."""

from hypothesis import settings

settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")
