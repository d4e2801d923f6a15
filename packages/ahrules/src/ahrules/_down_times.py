"""Agents that are down, by when they went down."""

import heapq
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Protocol, TypeVar

from ahwire.hub import Event


class Down(Protocol):
    """An agent that is down."""

    @property
    def event(self) -> Event:
        """Its agent.down."""
        ...


D = TypeVar("D", bound=Down)


def newest(members: Mapping[str, D], window_seconds: float) -> Mapping[str, D]:
    """Return those who went down within the window that ends with the newest down."""
    last = max((member.event.occurred_at for member in members.values()), default=None)
    if last is None:
        return MappingProxyType({})
    return MappingProxyType(
        {
            agent: member
            for agent, member in members.items()
            if (last - member.event.occurred_at).total_seconds() <= window_seconds
        }
    )


def first(members: Mapping[str, D], limit: int) -> list[tuple[str, D]]:
    """Return at most `limit` members by when they went down, then by id."""
    return heapq.nsmallest(limit, members.items(), key=_place)


def copied(members: Mapping[str, D]) -> dict[str, D]:
    """Return a dictionary of one's own."""
    # A proxy copies the dictionary behind it; `dict(proxy)` asks it for each member.
    return members.copy() if isinstance(members, MappingProxyType) else dict(members)


def _place(pair: tuple[str, Down]) -> tuple[datetime, str]:
    return pair[1].event.occurred_at, pair[0]
