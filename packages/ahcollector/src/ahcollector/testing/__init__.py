"""What tests of a collector need: a clock, fakes, and one contract suite a protocol."""

from ahcollector.testing._clock import FakeClock
from ahcollector.testing._hub import FakeHub

__all__ = ["FakeClock", "FakeHub"]
