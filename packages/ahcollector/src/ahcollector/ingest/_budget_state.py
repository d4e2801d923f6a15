"""What is known of one agent's series: values, and how a change of them is taken. No I/O.

Series are known by their fingerprints (`ahwire.batch.SeriesKey`), with the Unix hour in which each
was last sent. An hour is fine enough for what is forgotten after a day, and so a store is told of a
series that comes every cycle once an hour only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

__all__ = ["HOUR_SECONDS", "AgentSeries", "SeriesChange", "Window", "hour_of", "taken"]

HOUR_SECONDS: Final = 3600.0


def hour_of(now: float) -> int:
    """Return the Unix hour of an instant in Unix seconds."""
    return int(now // HOUR_SECONDS)


@attrs.frozen(kw_only=True)
class Window:
    """An hour of an agent, in which it may begin so many series.

    Attributes:
        start: Unix seconds.
        first: Whether it is the agent's first one.
        begun: Series that the agent has begun in it.
    """

    start: float
    first: bool
    begun: int

    def at(self, now: float) -> Window:
        """Return the window of an instant: this one, or a new one when it is over.

        Clocks of two processes differ a little, so one that begins soon is this one too.
        """
        if abs(now - self.start) < HOUR_SECONDS:
            return self
        return Window(start=now, first=False, begun=0)


@attrs.frozen(kw_only=True)
class AgentSeries:
    """All that is known of an agent.

    Attributes:
        window: Its newest hour.
        hours: The Unix hour in which each series was last sent, by fingerprint.
    """

    window: Window
    hours: Mapping[bytes, int]


@attrs.frozen(kw_only=True)
class SeriesChange:
    """What one process has to tell of an agent since it last told.

    Attributes:
        agent_id: Whose series.
        window: The agent's newest hour as this process sees it.
        begun: Series that this process took for new; the store finds out how many of them are.
        hours: Fingerprint to Unix hour, of series that were begun, or sent in a new hour.
    """

    agent_id: str
    window: Window
    begun: int
    hours: Mapping[bytes, int]


def taken(known: AgentSeries | None, change: SeriesChange, *, oldest_hour: int) -> AgentSeries:
    """Return what is known after a change.

    Each series that was not known counts as begun, once, whoever told of it first. The window of
    `change` replaces the known one when it begins after that has ended; windows that overlap are
    the same hour seen by two processes, and the known one stays.

    Args:
        known: What was known.
        change: What is told.
        oldest_hour: Series last sent before are forgotten.
    """
    window = change.window
    if known is None:
        return AgentSeries(
            window=attrs.evolve(window, begun=len(change.hours)), hours=dict(change.hours)
        )
    hours = {series: hour for series, hour in known.hours.items() if hour >= oldest_hour}
    begun = sum(series not in hours for series in change.hours)
    for series, hour in change.hours.items():
        hours[series] = max(hour, hours.get(series, hour))
    if window.start >= known.window.start + HOUR_SECONDS:
        window = attrs.evolve(window, begun=begun)
    else:
        window = attrs.evolve(known.window, begun=known.window.begun + begun)
    return AgentSeries(window=window, hours=hours)
