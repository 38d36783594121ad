"""Settings of all tests: one thread for PyTorch's kernels in each process, and no deadline for examples of Hypothesis.

Tests use tiny models, and two processes of tests share two cores: threads would wait for each other, four times longer
than the work takes. How long an example takes is no reason to fail.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported, and for the commands that tests start
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")
