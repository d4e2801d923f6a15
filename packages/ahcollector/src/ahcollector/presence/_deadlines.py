"""Who is due: a queue of deadlines in which moving a deadline ahead costs nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from ahcollector.presence._state import AgentState

__all__ = ["DeadlineQueue"]


class DeadlineQueue:
    """The up agents of a presence by deadline.

    A deadline that moves ahead keeps its old place: it is looked at then and put back. So a contact
    costs nothing here, and an agent is looked at about once in its threshold.

    Args:
        agents: The presence's own mapping; what is no more in it is passed over.
    """

    def __init__(self, agents: Mapping[str, AgentState]) -> None:
        self._agents = agents
        self._queue: list[tuple[int, str]] = []
        self.rebuild(agents.values())

    def put(self, state: AgentState) -> None:
        """Note that the deadline of an up agent may have changed."""
        if state.queued_ms is None or state.due_ms < state.queued_ms:
            state.queued_ms = state.due_ms
            heapq.heappush(self._queue, (state.due_ms, state.agent.agent_id))

    def pop(self, now_ms: int) -> AgentState | None:
        """Return the up agent whose deadline is the longest past, None when none is before now."""
        while self._queue and self._queue[0][0] < now_ms:
            queued_ms, agent_id = heapq.heappop(self._queue)
            state = self._agents.get(agent_id)
            if state is None or state.queued_ms != queued_ms:
                continue
            state.queued_ms = None
            if state.down_since is not None:
                continue
            if state.due_ms <= queued_ms:
                return state
            self.put(state)
        return None

    def rebuild(self, states: Iterable[AgentState]) -> None:
        """Begin anew after many deadlines changed."""
        self._queue = []
        for state in states:
            state.queued_ms = None if state.down_since is not None else state.due_ms
            if state.queued_ms is not None:
                self._queue.append((state.queued_ms, state.agent.agent_id))
        heapq.heapify(self._queue)
