"""What the console shows, gathered from presence, the store and the hub's events."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

import attrs

from ah_server.hub import EventLog, LoggedEvent
from ahcollector.presence import AgentPresence, Presence, PresenceState
from ahcollector.store import LatestSample, RangeSeries, Reader

_SERVERS_MAX = 1000
_PAGE = 500


class ServerState(StrEnum):
    """What is known of a server."""

    UP = "up"
    DOWN = "down"
    WAITING = "waiting"
    """An agent of it is enrolled and was never heard."""


@attrs.frozen(kw_only=True)
class ServerLine:
    """One server as the fleet page lists it; times are aware UTC.

    Attributes:
        interval_seconds: the longest interval of its agents.
    """

    company_id: str
    server_id: str
    state: ServerState
    last_seen: datetime | None
    interval_seconds: float


class FleetView(Protocol):
    """Where the console's pages get what they show."""

    async def servers(self, company_id: str | None = None) -> Sequence[ServerLine]:
        """All servers, or those of a company; those that are down first."""
        ...

    async def server(self, company_id: str, server_id: str) -> ServerLine | None:
        """One server, or None when no agent of it is known."""
        ...

    async def latest(self, company_id: str, server_id: str) -> Sequence[LatestSample]:
        """The newest sample of each of its series."""
        ...

    async def history(
        self,
        company_id: str,
        server_id: str,
        metric: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> Sequence[RangeSeries]:
        """A metric over time."""
        ...

    async def events(self, company_id: str, limit: int) -> Sequence[LoggedEvent]:
        """The newest events of a company, newest first."""
        ...


class Fleet:
    """The view of a process that holds all parts.

    Args:
        presence: who was heard when.
        store: the samples.
        event_log: the development hub's events; None when the hub is elsewhere.
    """

    def __init__(self, *, presence: Presence, store: Reader, event_log: EventLog | None) -> None:
        self._presence = presence
        self._store = store
        self._event_log = event_log

    async def servers(self, company_id: str | None = None) -> Sequence[ServerLine]:
        """All servers, or those of a company; those that are down first."""
        found: dict[tuple[str, str], list[AgentPresence]] = {}
        for one in await self._agents(company_id):
            found.setdefault((one.agent.company_id, one.agent.server_id), []).append(one)
        lines = [_line(*key, agents) for key, agents in found.items()]
        return sorted(
            lines,
            key=lambda line: (line.state is not ServerState.DOWN, line.company_id, line.server_id),
        )[:_SERVERS_MAX]

    async def server(self, company_id: str, server_id: str) -> ServerLine | None:
        """One server, or None when no agent of it is known."""
        agents = await self._agents(company_id)
        mine = [one for one in agents if one.agent.server_id == server_id]
        return _line(company_id, server_id, mine) if mine else None

    async def _agents(self, company_id: str | None) -> list[AgentPresence]:
        agents: list[AgentPresence] = []
        after = ""
        while page := await self._presence.agents(company_id=company_id, after=after, limit=_PAGE):
            agents += page
            after = page[-1].agent.agent_id
        return agents

    async def latest(self, company_id: str, server_id: str) -> Sequence[LatestSample]:
        """The newest sample of each of its series."""
        return await self._store.latest(company_id, server_id)

    async def history(
        self,
        company_id: str,
        server_id: str,
        metric: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> Sequence[RangeSeries]:
        """A metric over time."""
        return await self._store.range(
            company_id, server_id, metric, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms
        )

    async def events(self, company_id: str, limit: int) -> Sequence[LoggedEvent]:
        """The newest events of a company, newest first."""
        if self._event_log is None:
            return ()
        return await self._event_log.newest(limit, company_id)


def _line(company_id: str, server_id: str, agents: Sequence[AgentPresence]) -> ServerLine:
    seen = [one.last_seen for one in agents if one.last_seen is not None]
    return ServerLine(
        company_id=company_id,
        server_id=server_id,
        state=_state(agents),
        last_seen=datetime.fromtimestamp(max(seen), UTC) if seen else None,
        interval_seconds=max(one.interval_seconds for one in agents),
    )


def _state(agents: Sequence[AgentPresence]) -> ServerState:
    up = [one for one in agents if one.state is PresenceState.UP]
    if not up:
        return ServerState.DOWN
    return ServerState.UP if any(one.last_seen for one in up) else ServerState.WAITING
