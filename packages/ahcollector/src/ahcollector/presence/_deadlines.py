"""Who is due: the up agents by the second of their deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from ahcollector.presence._state import AgentState

__all__ = ["DeadlineQueue"]


class DeadlineQueue:
    """The up agents of a presence by deadline.

    They lie in buckets of one second. A contact moves its agent to another bucket, which costs the
    same however many agents there are; so the buckets that time passes are empty as long as all
    agents speak, and a look costs what fell silent, not what is there. Only what lies in a bucket
    that time reached is brought into an order.

    Args:
        agents: The presence's own mapping; what is no more in it is passed over.
    """

    def __init__(self, agents: Mapping[str, AgentState]) -> None:
        self._agents = agents
        self._buckets: dict[int, dict[str, None]] = {}
        self._seconds: list[int] = []
        self._reached: list[tuple[int, str]] = []
        self.rebuild(agents.values())

    def put(self, state: AgentState) -> None:
        """Note that the deadline of an up agent may have changed."""
        second = state.due_ms // 1000
        if second == state.queued_second:
            return
        agent_id = state.agent.agent_id
        if state.queued_second is not None:
            self._buckets[state.queued_second].pop(agent_id, None)
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = {}
            heapq.heappush(self._seconds, second)
        bucket[agent_id] = None
        state.queued_second = second

    def pop(self, now_ms: int) -> AgentState | None:
        """Return the up agent whose deadline is the longest past, None when none is before now."""
        while self._seconds and self._seconds[0] * 1000 < now_ms:
            self._reach(heapq.heappop(self._seconds))
        while self._reached and self._reached[0][0] < now_ms:
            due_ms, agent_id = heapq.heappop(self._reached)
            state = self._agents.get(agent_id)
            if state is not None and state.down_since is None and state.due_ms == due_ms:
                return state
        return None

    def _reach(self, second: int) -> None:
        for agent_id in self._buckets.pop(second):
            state = self._agents.get(agent_id)
            # Another agent can have come under the id; then it lies in a bucket of its own.
            if state is not None and state.queued_second == second:
                state.queued_second = None
                heapq.heappush(self._reached, (state.due_ms, agent_id))

    def rebuild(self, states: Iterable[AgentState]) -> None:
        """Begin anew after many deadlines changed."""
        self._buckets, self._seconds, self._reached = {}, [], []
        for state in states:
            state.queued_second = None
            if state.down_since is None:
                self.put(state)

    def __len__(self) -> int:
        return len(self._reached) + sum(map(len, self._buckets.values()))
