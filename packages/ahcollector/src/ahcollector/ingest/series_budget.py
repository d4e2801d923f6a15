"""How many new series an agent may begin: bounded memory of those it has."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from ahwire.batch import CleanSeries

__all__ = ["SeriesBudget", "fingerprint"]

_HOUR_SECONDS = 3600.0


def fingerprint(series: CleanSeries) -> bytes:
    """Return 8 bytes that stand for a series' name and labels.

    The written form of the labels is quoted, so no two different label sets look the same.
    """
    said = repr((series.name, series.labels)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(said, digest_size=8).digest()


class _AgentSeries:
    """What is remembered of one agent."""

    __slots__ = ("begun", "first_window", "known", "window_start")

    def __init__(self, now: float) -> None:
        self.known: OrderedDict[bytes, float] = OrderedDict()
        self.window_start = now
        self.first_window = True
        self.begun = 0


class SeriesBudget:
    """Which series of an agent are known, and how many it may still begin in this hour.

    A series stays known for `ttl_seconds` after it was last sent. An agent's hours begin with its
    first batch. Memory is bounded twice: an agent's least recent series are forgotten above
    `series_per_agent_max`, and the agents heard least lately above `series_max` series in all; what
    is forgotten is new again when it comes back.

    Args:
        per_hour: New series in an hour.
        first_hour: New series in the first hour of an agent.
        ttl_seconds: How long a silent series stays known.
        series_per_agent_max: Series remembered of one agent.
        series_max: Series remembered in all; about 150 bytes each.
    """

    def __init__(
        self,
        *,
        per_hour: int,
        first_hour: int,
        ttl_seconds: float = 24 * 3600.0,
        series_per_agent_max: int = 50_000,
        series_max: int = 2_000_000,
    ) -> None:
        self._per_hour = per_hour
        self._first_hour = first_hour
        self._ttl_seconds = ttl_seconds
        self._series_per_agent_max = series_per_agent_max
        self._series_max = series_max
        self._agents: OrderedDict[str, _AgentSeries] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        """Return how many series are remembered."""
        return self._total

    def admit(
        self, agent_id: str, series: tuple[CleanSeries, ...], *, now: float
    ) -> tuple[tuple[CleanSeries, ...], tuple[CleanSeries, ...]]:
        """Split a batch's series into those that may be stored and those over the budget.

        Args:
            agent_id: Whose they are.
            series: As validated, in order.
            now: Monotonic seconds.
        """
        agent = self._agents.get(agent_id)
        if agent is None:
            agent = self._agents[agent_id] = _AgentSeries(now)
        self._agents.move_to_end(agent_id)
        if now - agent.window_start >= _HOUR_SECONDS:
            agent.window_start, agent.first_window, agent.begun = now, False, 0
        self._expire(agent, now)
        limit = self._first_hour if agent.first_window else self._per_hour
        admitted: list[CleanSeries] = []
        over: list[CleanSeries] = []
        for one in series:
            key = fingerprint(one)
            if key not in agent.known:
                if agent.begun >= limit:
                    over.append(one)
                    continue
                agent.begun += 1
                self._total += 1
            agent.known[key] = now
            agent.known.move_to_end(key)
            admitted.append(one)
        self._shrink(agent)
        return tuple(admitted), tuple(over)

    def agent_gone(self, agent_id: str) -> None:
        """Forget an agent."""
        agent = self._agents.pop(agent_id, None)
        if agent is not None:
            self._total -= len(agent.known)

    def _expire(self, agent: _AgentSeries, now: float) -> None:
        while agent.known:
            key, seen = next(iter(agent.known.items()))
            if now - seen < self._ttl_seconds:
                return
            del agent.known[key]
            self._total -= 1

    def _shrink(self, agent: _AgentSeries) -> None:
        while len(agent.known) > self._series_per_agent_max:
            agent.known.popitem(last=False)
            self._total -= 1
        while self._total > self._series_max and len(self._agents) > 1:
            _, oldest = self._agents.popitem(last=False)
            self._total -= len(oldest.known)
