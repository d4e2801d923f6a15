"""From when on an event that waits is too old, by a wall clock that may jump."""

from __future__ import annotations

from ahwire.clock import Clock

__all__ = ["Retention"]


class Retention:
    """Ages events so that no jump of the wall clock makes them old at once.

    An event carries the wall time of its append. The clock may have been wrong then, or be so now;
    what it went forward by while this object lives, beyond the time that passed, is no age. What it
    was wrong by before nobody knows here: so for `patience_seconds` nothing is too old.

    Args:
        clock: Wall and steady time.
        retention_seconds: How old an event may become.
        patience_seconds: For so long from now on each event is worth further tries.
    """

    def __init__(self, *, clock: Clock, retention_seconds: float, patience_seconds: float) -> None:
        self._clock = clock
        self._retention_seconds = retention_seconds
        self._patient_until = clock.monotonic() + patience_seconds
        self._offset = clock.time() - clock.monotonic()

    def look(self) -> None:
        """Take note of the clock; each turn of the sender does."""
        self._offset = min(self._offset, self._clock.time() - self._clock.monotonic())

    def cutoff(self) -> float | None:
        """Return the Unix time before which an append is too old; None: there is none yet."""
        self.look()
        steady = self._clock.monotonic()
        if steady < self._patient_until:
            return None
        return steady + self._offset - self._retention_seconds
