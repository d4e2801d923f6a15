"""Transitions decided and not yet confirmed, each agent's in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ahcollector.errors import PresenceError
from ahcollector.presence.base import Transition

__all__ = ["Intents"]


class Intents:
    """The intents of a memory presence; agents in the order of their oldest intent."""

    def __init__(self, transitions: Iterable[Transition] = ()) -> None:
        self._by_agent: dict[str, deque[Transition]] = {}
        for transition in transitions:
            self.add(transition)

    def add(self, transition: Transition) -> None:
        """Put an intent behind the agent's others."""
        self._by_agent.setdefault(transition.agent.agent_id, deque()).append(transition)

    def first(self, limit: int) -> list[Transition]:
        """Return at most `limit` intents; never one without the agent's older ones before it."""
        result: list[Transition] = []
        for intents in self._by_agent.values():
            if len(result) >= limit:
                break
            result.extend(list(intents)[: limit - len(result)])
        return result

    def all(self) -> tuple[Transition, ...]:
        """Return every intent."""
        return tuple(self.first(len(self)))

    def has(self, agent_id: str) -> bool:
        """Whether the agent has an intent."""
        return agent_id in self._by_agent

    def confirm(self, transition: Transition) -> bool:
        """Drop an intent; return whether it was there. Raises PresenceError when not the oldest."""
        agent_id = transition.agent.agent_id
        intents = self._by_agent.get(agent_id, deque())
        if all(held.event_id != transition.event_id for held in intents):
            return False
        if intents[0].event_id != transition.event_id:
            raise PresenceError(
                f"transition {transition.event_id} of agent {agent_id} is not its oldest: "
                "confirm them in the order in which they were handed out"
            )
        intents.popleft()
        if not intents:
            del self._by_agent[agent_id]
        return True

    def __len__(self) -> int:
        return sum(map(len, self._by_agent.values()))
