"""Settings of the property tests for every test run of the workspace."""

import os

from hypothesis import HealthCheck, settings

# Two busy cores make any deadline a coin toss; time is judged in benchmarks/.
_calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", _calm, derandomize=os.environ.get("CI", "") == "true")
settings.register_profile("nightly", _calm, max_examples=5_000)
settings.load_profile("gate")
