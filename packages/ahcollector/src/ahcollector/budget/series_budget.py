"""How many new series an agent may begin: bounded memory of those it has.

A node decides alone and at once, from what it has in memory. What it has there is brought by the
`BudgetKeeper` from a store that outlives the process, and taken back there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from ahcollector.budget.base import (
    HOUR_SECONDS,
    TTL_HOURS,
    AgentSeries,
    SeriesChange,
    Window,
    hour_of,
)
from ahcollector.metrics import (
    INGEST_BUDGET_FAILURES,
    INGEST_SERIES_BEGUN,
    INGEST_SERIES_KNOWN,
    Metrics,
    NullMetrics,
)
from ahwire.batch import SeriesKey

__all__ = ["SeriesBudget"]


class _Agent:
    """What is remembered of one agent.

    Attributes:
        hours: Unix hour of the last sending by fingerprint, the least recent hour first.
        untold: The part of `hours` that the store has not been told of.
        begun_untold: How many of these the agent began in this window.
        sure: Whether the store was asked and answered, or there is none.
        looked_at: The hour in which old series were last looked for.
    """

    __slots__ = ("begun_untold", "hours", "looked_at", "sure", "untold", "window")

    def __init__(self, window: Window, *, sure: bool) -> None:
        self.hours: dict[bytes, int] = {}
        self.untold: dict[bytes, int] = {}
        self.begun_untold = 0
        self.window = window
        self.sure = sure
        self.looked_at = 0

    def roll(self, now: float) -> None:
        """Begin a new window when this one is over."""
        window = self.window.at(now)
        if window is not self.window:
            self.window, self.begun_untold = window, 0

    def adopt(self, shared: Window, now: float) -> None:
        """Take the window that all processes share, and what it does not count yet."""
        window = shared.at(now)
        self.window = attrs.evolve(window, begun=window.begun + self.begun_untold)


class SeriesBudget:
    """Which series of an agent are known, and how many it may still begin in this hour.

    A series stays known for `ttl_seconds` after the hour in which it was last sent. An agent's
    hours begin with its first batch. Memory is bounded twice: an agent's least recent series are
    forgotten above `series_per_agent_max`, and the agents heard least lately above `series_max`
    series in all; what is forgotten is new again when it comes back, unless a store knows it.

    Series are equal when their fingerprints (128 bits of BLAKE2b) are, which without a collision of
    that hash is when name and labels are.

    Args:
        per_hour: New series in an hour.
        first_hour: New series in the first hour of an agent.
        ttl_seconds: How long a silent series stays known.
        series_per_agent_max: Series remembered of one agent.
        series_max: Series remembered in all; about 130 bytes each.
        metrics: Where series are counted.
    """

    def __init__(
        self,
        *,
        per_hour: int,
        first_hour: int,
        ttl_seconds: float = TTL_HOURS * HOUR_SECONDS,
        series_per_agent_max: int = 50_000,
        series_max: int = 2_000_000,
        metrics: Metrics | None = None,
    ) -> None:
        self._per_hour = per_hour
        self._first_hour = first_hour
        self._ttl_hours = round(ttl_seconds / HOUR_SECONDS)
        self._series_per_agent_max = series_per_agent_max
        self._series_max = series_max
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._agents: OrderedDict[str, _Agent] = OrderedDict()
        self._total = 0
        self._changed: dict[str, None] = {}
        self._keeps_changes = False
        self._metrics.watch(INGEST_SERIES_KNOWN, lambda: float(self._total))

    def __len__(self) -> int:
        """Return how many series are remembered."""
        return self._total

    def refused(self, agent_id: str, keys: Sequence[SeriesKey], *, now: float) -> Sequence[int]:
        """Return the places of the series that are over the budget; the others are known now.

        Args:
            agent_id: Whose they are.
            keys: The series of a batch.
            now: Unix seconds.
        """
        agent = self._agents.get(agent_id)
        if agent is None:
            agent = self._add(agent_id, now=now, sure=True)
        self._agents.move_to_end(agent_id)
        hour = hour_of(now)
        agent.roll(now)
        if agent.looked_at != hour:
            self._expire(agent, hour)
        known = agent.hours.get
        # By far the most batches end here: all was sent in this hour before.
        if [known(key.fingerprint) for key in keys].count(hour) == len(keys):
            return ()
        return self._refused_of_each(agent_id, agent, keys, hour)

    def _refused_of_each(
        self, agent_id: str, agent: _Agent, keys: Sequence[SeriesKey], hour: int
    ) -> list[int]:
        over: list[int] = []
        left = self._left(agent)
        hours, before = agent.hours, len(agent.hours)
        for place, key in enumerate(keys):
            fingerprint = key.fingerprint
            sent = hours.pop(fingerprint, None)
            if sent is None and len(hours) - before >= left:
                over.append(place)
                continue
            # At the end, so that the least recent hours stay first.
            hours[fingerprint] = hour
            if sent != hour and self._keeps_changes:
                agent.untold[fingerprint] = hour
                self._changed[agent_id] = None
        begun = len(hours) - before
        self._total += begun
        self._shrink(agent)
        if begun:
            agent.window = attrs.evolve(agent.window, begun=agent.window.begun + begun)
            agent.begun_untold += begun
            self._metrics.inc(INGEST_SERIES_BEGUN, begun)
        return over

    def _left(self, agent: _Agent) -> int:
        """How many series an agent may begin now; while nobody can tell, as many as are kept."""
        if not agent.sure:
            return max(0, self._series_per_agent_max - len(agent.hours))
        return (self._first_hour if agent.window.first else self._per_hour) - agent.window.begun

    def agent_gone(self, agent_id: str) -> None:
        """Forget an agent."""
        agent = self._agents.pop(agent_id, None)
        self._changed.pop(agent_id, None)
        if agent is not None:
            self._total -= len(agent.hours)

    # What the keeper does: it brings what a store knows, and tells the store what is new.

    def keep_changes(self) -> None:
        """Remember from now on what a store must be told."""
        self._keeps_changes = True

    def is_sure_of(self, agent_id: str) -> bool:
        """Return whether the agent is in memory, with what the store knows of it."""
        agent = self._agents.get(agent_id)
        return agent is not None and agent.sure

    def learn(self, agent_id: str, known: AgentSeries | None, *, now: float, sure: bool) -> None:
        """Take what a store knows of an agent, beside what is in memory.

        Args:
            agent_id: Whose.
            known: What the store has; None: nothing.
            now: Unix seconds.
            sure: Whether the store answered. If not, new series are admitted until it does.
        """
        agent = self._agents.get(agent_id)
        if agent is None:
            agent = self._add(agent_id, now=now, sure=sure)
        agent.sure = sure
        self._agents.move_to_end(agent_id)
        if known is None:
            return
        agent.adopt(known.window, now)
        before = len(agent.hours)
        hours = dict(known.hours)
        for series, hour in agent.hours.items():
            hours[series] = max(hour, hours.get(series, hour))
        agent.hours = dict(sorted(hours.items(), key=_hour))
        self._total += len(agent.hours) - before
        self._expire(agent, hour_of(now))
        self._shrink(agent)

    def adopt(self, agent_id: str, window: Window, *, now: float) -> None:
        """Take the window that all processes share, as the store told it."""
        agent = self._agents.get(agent_id)
        if agent is not None:
            agent.adopt(window, now)

    def changes(self, agents_max: int) -> list[SeriesChange]:
        """Return what the store must be told of at most so many agents, and count it as told."""
        told: list[SeriesChange] = []
        while self._changed and len(told) < agents_max:
            agent_id = next(iter(self._changed))
            del self._changed[agent_id]
            agent = self._agents[agent_id]
            told.append(
                SeriesChange(
                    agent_id=agent_id,
                    window=agent.window,
                    begun=agent.begun_untold,
                    hours=agent.untold,
                )
            )
            agent.untold, agent.begun_untold = {}, 0
        return told

    def not_told(self, changes: Sequence[SeriesChange]) -> None:
        """Take changes back that the store did not take; they are told again."""
        for change in changes:
            agent = self._agents.get(change.agent_id)
            if agent is not None:
                agent.untold = {**change.hours, **agent.untold}
                if agent.window.start == change.window.start:
                    agent.begun_untold += change.begun
                self._changed[change.agent_id] = None

    def _add(self, agent_id: str, *, now: float, sure: bool) -> _Agent:
        window = Window(start=now, first=True, begun=0)
        agent = self._agents[agent_id] = _Agent(window, sure=sure)
        return agent

    def _expire(self, agent: _Agent, hour: int) -> None:
        agent.looked_at = hour
        old = []
        for series, sent in agent.hours.items():
            if sent >= hour - self._ttl_hours:
                break
            old.append(series)
        for series in old:
            del agent.hours[series]
            agent.untold.pop(series, None)
        self._total -= len(old)

    def _shrink(self, agent: _Agent) -> None:
        while len(agent.hours) > self._series_per_agent_max:
            oldest = next(iter(agent.hours))
            del agent.hours[oldest]
            agent.untold.pop(oldest, None)
            self._total -= 1
        while self._total > self._series_max and len(self._agents) > 1:
            agent_id, untold = next((name, agent.untold) for name, agent in self._agents.items())
            if untold:
                self._metrics.inc(INGEST_BUDGET_FAILURES, call="forgotten")
            self.agent_gone(agent_id)


def _hour(entry: tuple[bytes, int]) -> int:
    return entry[1]
