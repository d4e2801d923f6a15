"""Events the hub was told, each recorded once, with the state they lead to.

The log's position is the cursor of the bridge. A fence under the newest one seen is refused whole:
the sender that holds it lost its lease.
"""

import json
from collections.abc import Sequence
from typing import Any

import attrs
from sqlalchemy import Connection, Select, func, insert, select, update

from ah_server.hub._database import HubDatabase
from ah_server.hub._tables import events, heartbeats, late_events, meta, states
from ahwire import Clock, Event, now_ms
from ahwire.hub import EventsReply, EventType, Heartbeat, RejectedEvent
from ahwire.limits import MAX_FENCE

_FENCE = "fence"


class FencedError(Exception):
    """The request carries a fence older than `newest`; nothing of it was taken."""

    def __init__(self, newest: int) -> None:
        super().__init__(f"a newer sender holds the lease (fence {newest})")
        self.newest = newest


@attrs.frozen(kw_only=True)
class LoggedEvent:
    """An event with its place in the log.

    Attributes:
        position: Rises from one to the next.
        received_ms: When it came, in Unix milliseconds.
        event: The event.
        superseded_by: Type of the newest event of its state when it came, where that had a higher
            seq: then it came late, and changed no state. None: it was in its turn.
    """

    position: int
    received_ms: int
    event: Event
    superseded_by: str | None = None

    @property
    def suppressed_by(self) -> str | None:
        """What keeps the event from people, as its sender says; None: nothing does."""
        if not self.event.suppressed:
            return None
        return self.event.suppress_reason or "an unknown reason"


class EventLog:
    """Records events once by event_id and answers what came after a position."""

    def __init__(self, *, database: HubDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def record(
        self,
        accepted: Sequence[Event],
        *,
        rejected: Sequence[RejectedEvent] = (),
        fence: int | None = None,
    ) -> EventsReply:
        """Stores the events that are new; returns all their ids as accepted.

        Raises:
            FencedError: a newer fence was seen; nothing was stored.
        """
        received_ms = now_ms(self._clock)

        def write(sync: Connection) -> None:
            if fence is not None:
                _check_fence(sync, fence)
            for event in accepted:
                _record_one(sync, event, received_ms)

        async with self._database.begin() as connection:
            await connection.run_sync(write)
        return EventsReply(
            accepted=tuple(event.event_id for event in accepted), rejected=tuple(rejected)
        )

    async def after(self, position: int, limit: int) -> tuple[LoggedEvent, ...]:
        """Events behind a position, in order."""
        query = (
            _logged().where(events.c.position > position).order_by(events.c.position).limit(limit)
        )
        return await self._read(query)

    async def newest(self, limit: int, company_id: str | None = None) -> tuple[LoggedEvent, ...]:
        """The newest events, newest first."""
        query = _logged().order_by(events.c.position.desc()).limit(limit)
        if company_id is not None:
            query = query.where(events.c.company_id == company_id)
        return await self._read(query)

    async def _read(self, query: "Select[Any]") -> tuple[LoggedEvent, ...]:
        async with self._database.begin() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return tuple(
            LoggedEvent(
                position=row["position"],
                received_ms=row["received_ms"],
                event=Event.from_json(row["body"].encode()),
                superseded_by=row["newest_type"],
            )
            for row in rows
        )

    async def count_by_type(self) -> dict[str, int]:
        """How many events of each type were recorded."""
        query = select(events.c.type, func.count()).group_by(events.c.type)
        async with self._database.begin() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}

    async def cursor(self, name: str) -> int:
        """A reader's place in the log; 0 at first."""
        async with self._database.begin() as connection:
            found = await connection.scalar(select(meta.c.value).where(meta.c.name == name))
        return found or 0

    async def move_cursor(self, name: str, position: int) -> None:
        """Notes that a reader is done with all up to a position."""
        async with self._database.begin() as connection:
            await connection.run_sync(_put_meta, name, position)

    async def record_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Keeps the newest sign of life of a collector."""
        values = {
            "received_ms": now_ms(self._clock),
            "body": heartbeat.to_json().decode(),
        }

        def write(sync: Connection) -> None:
            mine = heartbeats.c.collector_id == heartbeat.collector_id
            if sync.execute(update(heartbeats).where(mine).values(**values)).rowcount == 0:
                sync.execute(
                    insert(heartbeats).values(collector_id=heartbeat.collector_id, **values)
                )

        async with self._database.begin() as connection:
            await connection.run_sync(write)


def _logged() -> "Select[Any]":
    joined = events.outerjoin(late_events, events.c.position == late_events.c.position)
    return select(events, late_events.c.newest_type).select_from(joined)


def _check_fence(sync: Connection, fence: int) -> None:
    newest = sync.scalar(select(meta.c.value).where(meta.c.name == _FENCE))
    # Over the largest is what an earlier version took; no sender could ever be above it.
    if newest is not None and fence < newest <= MAX_FENCE:
        raise FencedError(newest)
    _put_meta(sync, _FENCE, fence)


def _put_meta(sync: Connection, name: str, value: int) -> None:
    if sync.execute(update(meta).where(meta.c.name == name).values(value=value)).rowcount == 0:
        sync.execute(insert(meta).values(name=name, value=value))


def _record_one(sync: Connection, event: Event, received_ms: int) -> None:
    known = sync.scalar(select(events.c.position).where(events.c.event_id == event.event_id))
    if known is not None:
        return
    recorded = sync.execute(
        insert(events).values(
            event_id=event.event_id,
            company_id=event.company_id,
            server_id=event.server_id,
            agent_id=event.agent_id,
            type=event.type.value,
            seq=event.seq,
            received_ms=received_ms,
            body=event.to_json().decode(),
        )
    )
    key = _state_key(event)
    newest = sync.execute(select(states.c.seq, states.c.type).where(states.c.state_key == key))
    last = newest.one_or_none()
    values = {"type": event.type.value, "seq": event.seq, "event_id": event.event_id}
    if last is None:
        sync.execute(insert(states).values(state_key=key, company_id=event.company_id, **values))
    elif event.seq >= last.seq:
        sync.execute(update(states).where(states.c.state_key == key).values(**values))
    else:
        # It came late: it is on record as such, and changes no state.
        sync.execute(insert(late_events).values(position=recorded.lastrowid, newest_type=last.type))


def _state_key(event: Event) -> str:
    parts: list[str | None]
    if event.type in (EventType.GROUP_DOWN, EventType.GROUP_UP):
        parts = [event.company_id, "group_down", event.group_key]
    else:
        server, agent = event.server_id, event.agent_id
        parts = [event.company_id, server, event.rule_id, event.series_key, agent]
    return json.dumps(parts)
