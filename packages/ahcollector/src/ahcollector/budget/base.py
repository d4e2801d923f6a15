"""Where known series outlive a process: values, the protocol, and how a change is taken.

The law that every implementation keeps:

* What `take` returned from is known to `load`, in every process that shares the store, until a day
  after the hour in which the series was last sent.
* `take` counts each series as begun once, whoever tells of it and however often: a change may be
  told again after an error.
* Agents are apart: nothing of one is read or changed by what is told of another.
* What cannot be read is counted and logged, never raised and never in the way of what can be.

Series are known by their fingerprints (`ahwire.batch.SeriesKey`), with the Unix hour in which each
was last sent. An hour is fine enough for what is forgotten after a day, and so a store is told of a
series that comes every cycle once an hour only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import attrs

__all__ = [
    "HOUR_SECONDS",
    "TTL_HOURS",
    "AgentSeries",
    "BudgetStore",
    "SeriesChange",
    "Window",
    "hour_of",
    "taken",
]

HOUR_SECONDS: Final = 3600.0
TTL_HOURS: Final = 24
"""How many hours behind the one it was last sent in a series stays known."""


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

    def at(self, oldest_hour: int) -> AgentSeries:
        """Return it without the series that were last sent before an hour."""
        hours = {series: hour for series, hour in self.hours.items() if hour >= oldest_hour}
        return AgentSeries(window=self.window, hours=hours)


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
    hours = dict(known.at(oldest_hour).hours)
    begun = sum(series not in hours for series in change.hours)
    for series, hour in change.hours.items():
        hours[series] = max(hour, hours.get(series, hour))
    if window.start >= known.window.start + HOUR_SECONDS:
        window = attrs.evolve(window, begun=begun)
    else:
        window = attrs.evolve(known.window, begun=known.window.begun + begun)
    return AgentSeries(window=window, hours=hours)


class BudgetStore(Protocol):
    """Keeps the known series of agents."""

    @property
    def shared(self) -> bool:
        """Whether other processes may write there too."""
        ...

    async def load(self, agent_id: str, *, now: float) -> AgentSeries | None:
        """Return what is known of an agent at `now` (Unix seconds), or None.

        Raises:
            BudgetStoreError: Nobody can tell now.
        """
        ...

    async def take(self, changes: Sequence[SeriesChange], *, now: float) -> Sequence[Window]:
        """Take changes, and return each agent's window as all processes now see it, in order.

        Raises:
            BudgetStoreError: Some may be taken, some not; tell all of them again.
        """
        ...

    async def forget(self, agent_ids: Collection[str]) -> None:
        """Forget agents.

        Raises:
            BudgetStoreError: Some may be forgotten.
        """
        ...
