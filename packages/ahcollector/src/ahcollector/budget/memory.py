"""The store of known series that outlives no process: for tests, and for a look at the law."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ahcollector.budget.base import TTL_HOURS, AgentSeries, SeriesChange, Window, hour_of, taken

__all__ = ["MemoryBudgetStore"]


class MemoryBudgetStore:
    """`BudgetStore` in a dictionary, for tests: gone with the process, as large as it is told."""

    shared = True

    def __init__(self) -> None:
        self._agents: dict[str, AgentSeries] = {}

    async def load(self, agent_id: str, *, now: float) -> AgentSeries | None:
        """Return what is known of an agent."""
        known = self._agents.get(agent_id)
        return None if known is None else known.at(hour_of(now) - TTL_HOURS)

    async def take(self, changes: Sequence[SeriesChange], *, now: float) -> Sequence[Window]:
        """Take changes."""
        oldest = hour_of(now) - TTL_HOURS
        for change in changes:
            self._agents[change.agent_id] = taken(
                self._agents.get(change.agent_id), change, oldest_hour=oldest
            )
        return [self._agents[change.agent_id].window for change in changes]

    async def forget(self, agent_ids: Collection[str]) -> None:
        """Forget agents."""
        for agent_id in agent_ids:
            self._agents.pop(agent_id, None)
