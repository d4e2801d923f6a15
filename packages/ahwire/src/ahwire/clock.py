"""Time and chance as arguments: the two protocols that everything which decides is given."""

from typing import Protocol

__all__ = [
    "Clock",
    "Rng",
    "now_ms",
]


class Clock(Protocol):
    """A wall clock and a steady one. The standard library's `time` module is one."""

    def time(self) -> float:
        """Seconds since the Unix epoch; may step in both directions."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unknown start; never goes back."""
        ...


class Rng(Protocol):
    """A source of chance. `random.Random` is one."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """A number in [a, b]."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number in [0, 2**k)."""
        ...


def now_ms(clock: Clock) -> int:
    """The wall clock in Unix milliseconds, rounded to the nearest."""
    return round(clock.time() * 1000)
