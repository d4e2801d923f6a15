"""What a row of beacons tells. Pure."""

from __future__ import annotations

from ahcollector.presence.base import IngestSight

__all__ = ["after_beacon"]


def after_beacon(
    sight: IngestSight | None, now: float, max_age_seconds: float, *, first: bool
) -> IngestSight:
    """Return what the beacons tell after one more of them, at `now`.

    A pause over `max_age_seconds` ends a row, and its length is kept with the next one. So does the
    `first` beacon of a process, however short the pause: nobody heard agents between two processes.
    After a step back of the clock the row's beginning is brought back too: one in the future would
    mean nothing.
    """
    if sight is None:
        return IngestSight(at=now, since=now, dark_seconds=None)
    pause = now - sight.at
    if first or pause > max_age_seconds:
        return IngestSight(at=now, since=now, dark_seconds=max(pause, 0.0))
    return IngestSight(at=now, since=min(sight.since, now), dark_seconds=sight.dark_seconds)
