"""For tests of this package and of what is built on it; never imported by production code."""

from ahnotify.testing._clock import FakeClock
from ahnotify.testing._samples import DIGEST_RULE, INSTANT_RULE, NOW, incident, seed

__all__ = ["DIGEST_RULE", "INSTANT_RULE", "NOW", "FakeClock", "incident", "seed"]
