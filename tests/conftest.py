"""Settings of all tests: one thread for PyTorch's kernels in each process, and the same examples of Hypothesis.

Tests use tiny models, and two processes of tests share two cores: threads would wait for each other, four times longer
than the work takes. Examples are the same in every run, and how long they take is no reason to fail; ``make
test-random`` tries others.
"""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported, and for the commands that tests start
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("steady"), derandomize=False)
settings.load_profile("steady")
