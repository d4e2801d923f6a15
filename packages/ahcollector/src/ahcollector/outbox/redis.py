"""The outbox that several processes share, in Redis.

Keys, each behind the client's prefix:

| key | type | holds |
| --- | --- | --- |
| `ob:q` | zset | ids of the events that wait, in order of their append (a counter) |
| `ob:e` | hash | id to when it was appended (Unix seconds), a space, and the event (JSON) |
| `ob:dead` | hash | id to a dead letter: its times, its reason, the event |
| `ob:dead:q` | zset | ids of the dead letters in order of their death (a counter) |
| `ob:recent` | zset | the last 10,000 ids that the hub took: appending them again does nothing |
| `ob:fence` | string | the newest fence that was given out or seen |
| `ob:n` | hash | bytes of events and letters; letters dropped; ids that had no body |
| `outbox:sender` | string | the sender's lease: its fence and its holder (`RedisLease`) |

**No halves.** Each change is one Lua script, so no crash leaves an event in two places or in none.
The client sends a script once; when its reply is lost the method raises `OutboxError`, and calling
it again does what is left to do. Many events go in pieces of a few MiB; a piece is in as a whole
or not at all.

**Fences.** `ack` and `dead` are checked in their scripts against `ob:fence`, which `RedisLease`
raises in the step that gives a lease out: from that moment the holder before it can settle nothing.

**Damage.** What is no event becomes a dead letter `unreadable`. An id without a body is dropped,
logged, and counted in ``ahc_events_lost_total{type="unknown"}``. Bodies whose order was deleted are
put in order again. A key of another type is an `OutboxError` that names the command.

**A full Redis** refuses `append`, and events wait at their source; it still lets the sender take
its lease, acknowledge and bury, which makes room.

Durability is that of Redis: with ``appendfsync everysec`` up to two seconds of appended events may
be lost at a power cut, with ``always`` none.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ahcollector import metrics as names
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import FencedOutboxError, OutboxError, RedisError, RedisSettingsError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox._queue import OutboxBounds, full_text
from ahcollector.outbox._redis_lease import RedisLease
from ahcollector.outbox._redis_texts import (
    entry_text,
    id_bytes,
    read_entry,
    read_letter,
    reason_bytes,
)
from ahcollector.outbox.base import (
    REASON_EXPIRED,
    REASON_UNREADABLE,
    DeadLetter,
    OutboxEntry,
    OutboxStats,
)
from ahcollector.redis import RedisClient, Script
from ahwire import Event

__all__ = ["RedisLease", "RedisOutbox"]

_IDS_MAX: Final = 500
_PIECE_BYTES_MAX: Final = 4 << 20
_log = logging.getLogger("ahcollector.outbox")


def _script(name: str) -> Script:
    return Script.load("ahcollector.outbox", name, after=("library",))


_APPEND = _script("append")
_PEEK = _script("peek")
_MEND = _script("mend")
_ACK = _script("ack")
_DEAD = _script("dead")
_EXPIRE = _script("expire")
_STATS = _script("stats")
_LETTERS = _script("letters")
_NAMED = _script("named")
_REPLAY = _script("replay")
_PURGE = _script("purge")


class RedisOutbox:
    """`Outbox` in Redis, for any number of processes; one at a time sends (`RedisLease`).

    `peek` returns fewer than it is asked for where events are large, and always the oldest. `stats`
    counts what all processes did since the keys were made.

    Args:
        client: The Redis; it stays the caller's to close.
        bounds: How large it may grow; all processes should say the same.
        clock: Dates the letters of what `peek` finds unreadable.
        metrics: Where to count what is found damaged.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        bounds: OutboxBounds | None = None,
        clock: AsyncClock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._clock = clock if clock is not None else SystemClock()
        self._bounds = bounds if bounds is not None else OutboxBounds()
        self._metrics = metrics if metrics is not None else NullMetrics()

    # --- the queue

    async def append(self, events: Sequence[Event], now: float) -> int:
        """Make events as durable as this Redis makes its writes."""
        appended = 0
        for piece in _pieces(events, now):
            reply = await self._run(
                _APPEND, self._bounds.events_max, self._bounds.events_bytes_max, *piece
            )
            if reply[0] < 0:
                raise OutboxError(full_text(int(reply[1]), int(reply[2]), self._bounds))
            appended += int(reply[0])
        return appended

    async def peek(self, limit: int) -> list[OutboxEntry]:
        """Return the oldest entries; what is damaged among them is moved out of the way."""
        limit = min(limit, 2 * _IDS_MAX)
        if limit < 1:
            return []
        while True:
            dropped, astray, *pairs = await self._run(_PEEK, limit, _PIECE_BYTES_MAX)
            self._tell_bodiless(int(dropped))
            found, unreadable = [], []
            for event_id, text in zip(pairs[::2], pairs[1::2], strict=True):
                entry = read_entry(event_id, text)
                if entry is None:
                    unreadable.append(event_id)
                else:
                    found.append(entry)
            if unreadable:
                await self._bury_unreadable(unreadable)
            if astray:
                await self._mend("events", int(astray))
            if found or not (dropped or unreadable or astray):
                return found

    async def ack(self, event_ids: Collection[str], fence: int | None) -> int:
        """Forget delivered events."""
        acked = 0
        # No ids are a piece, too: the fence is checked all the same.
        for ids in list(_in_pieces(event_ids)) or [[]]:
            reply = await self._run(_ACK, _fence(fence), *ids)
            acked += _settled(reply, fence)
        return acked

    async def dead(
        self, event_ids: Collection[str], reason: str, now: float, fence: int | None
    ) -> int:
        """Set events aside."""
        buried = 0
        for ids in list(_in_pieces(event_ids)) or [[]]:
            reply = await self._run(
                _DEAD, _fence(fence), reason_bytes(reason), repr(now), 1, *self._kept(now), *ids
            )
            buried += _settled(reply, fence)
        return buried

    async def expire(self, cutoff: float, now: float) -> int:
        """Set old events aside, so many a step that Redis is not held up."""
        expired, more = 0, True
        while more:
            some, unreadable, bodiless, more, astray = await self._run(
                _EXPIRE, repr(cutoff), REASON_EXPIRED, repr(now), *self._kept(now), _IDS_MAX
            )
            expired += int(some)
            self._tell_unreadable(int(unreadable))
            self._tell_bodiless(int(bodiless))
            if astray:
                await self._mend("letters", int(astray))
        return expired

    async def stats(self, now: float) -> OutboxStats:
        """Return the state."""
        depth, oldest, dead, dead_bytes, dropped, bodiless = await self._run(_STATS)
        try:
            age = now - float(oldest.partition(b" ")[0])
        except ValueError:
            age = 0.0
        return OutboxStats(
            depth=int(depth),
            oldest_age_seconds=max(0.0, age),
            dead=int(dead),
            dead_bytes=int(dead_bytes),
            dead_dropped=int(dropped),
            damaged_lines=int(bodiless),
        )

    # --- dead letters

    async def dead_letters(self, *, after: str = "", limit: int = 500) -> list[DeadLetter]:
        """Return a page of dead letters."""
        letters: list[DeadLetter] = []
        while len(letters) < limit:
            last, *pairs = await self._run(
                _LETTERS, id_bytes(after), min(_IDS_MAX, limit - len(letters)), _PIECE_BYTES_MAX
            )
            if not last:
                break
            after = last.decode("utf-8", "surrogateescape")
            letters += [
                read_letter(letter_id, text)
                for letter_id, text in zip(pairs[::2], pairs[1::2], strict=True)
            ]
        return letters

    async def replay(self, letter_ids: Collection[str] | None, now: float) -> int:
        """Put dead letters back, some at a time, as far as there is room.

        Those that come while it works stay, so that what the hub rejects again ends it.
        """
        replayed = 0
        async for letters in self._chosen(letter_ids):
            ids = [letter.letter_id for letter in letters if letter.replayable]
            if not ids:
                continue
            some, full, depth, size = await self._run(
                _REPLAY, repr(now), self._bounds.events_max, self._bounds.events_bytes_max, *ids
            )
            replayed += int(some)
            if full:
                if not replayed:
                    raise OutboxError(full_text(int(depth), int(size), self._bounds))
                break
        return replayed

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete dead letters."""
        if letter_ids is None:
            return int(await self._run(_PURGE))
        purged = 0
        for ids in _in_pieces(letter_ids):
            purged += int(await self._run(_PURGE, *ids))
        return purged

    async def ping(self) -> None:
        """Return when Redis answers and keeps what it is given."""
        with _translated():
            await self._client.ping()

    # --- inside

    async def _chosen(self, letter_ids: Collection[str] | None) -> AsyncIterator[list[DeadLetter]]:
        """Yield letters page by page, oldest first: those named, or all that are there now."""
        if letter_ids is not None:
            for ids in _in_pieces(letter_ids):
                rows = await self._run(_NAMED, *ids)
                found = zip(rows[::3], rows[1::3], rows[2::3], strict=True)
                in_order = sorted(found, key=lambda row: float(row[1]))
                yield [read_letter(letter_id, text) for letter_id, _, text in in_order]
            return
        left = (await self.stats(0.0)).dead
        after = ""
        while left > 0:
            page = await self.dead_letters(after=after, limit=min(_IDS_MAX, left))
            if not page:
                return
            left -= len(page)
            yield page
            # Those that went back are no place to go on from.
            staying = [letter.letter_id for letter in page if not letter.replayable]
            after = staying[-1] if staying else after

    async def _bury_unreadable(self, ids: Sequence[bytes]) -> None:
        """Make letters of entries that are no events, whoever holds the lease."""
        now = self._clock.time()
        for begin in range(0, len(ids), _IDS_MAX):
            some = ids[begin : begin + _IDS_MAX]
            reply = await self._run(
                _DEAD, "", REASON_UNREADABLE, repr(now), 0, *self._kept(now), *some
            )
            self._tell_unreadable(int(reply[0]))

    async def _mend(self, what: str, astray: int) -> None:
        cursor, mended = "0", 0
        while True:
            reply = await self._run(_MEND, what, cursor)
            cursor = reply[0].decode()
            mended += int(reply[1])
            if cursor == "0":
                break
        _log.error(
            "the order of the outbox in Redis was lost and is made anew",
            extra={"what": what, "astray": astray, "mended": mended},
        )

    def _tell_unreadable(self, number: int) -> None:
        if number:
            self._metrics.inc(names.OUTBOX_DEAD_LETTER, number, reason=REASON_UNREADABLE)
            _log.error("events cannot be read; they are dead letters", extra={"events": number})

    def _tell_bodiless(self, number: int) -> None:
        if number:
            self._metrics.inc(names.EVENTS_LOST, number, type="unknown")
            _log.error("ids in Redis have no event any more; dropped", extra={"ids": number})

    def _kept(self, now: float) -> tuple[str, ...]:
        """Return what of the letters is kept, as the scripts take it."""
        bounds = self._bounds
        since = now - bounds.dead_retention_seconds
        return (str(bounds.dead_max), str(bounds.dead_bytes_max), repr(since))

    async def _run(self, script: Script, *args: str | bytes | float) -> Any:
        with _translated():
            return await self._client.run(script, args=[self._client.prefix, *args])


def _pieces(events: Sequence[Event], now: float) -> Iterator[list[str | bytes]]:
    """Yield ids and entries in pieces that one script takes."""
    piece: list[str | bytes] = []
    size = 0
    for event in events:
        text = entry_text(event, now)
        if piece and (len(piece) >= 2 * _IDS_MAX or size + len(text) > _PIECE_BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece += [event.event_id, text]
        size += len(text)
    if piece:
        yield piece


def _in_pieces(ids: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield ids in pieces that one script takes, each once."""
    named = [id_bytes(one) for one in dict.fromkeys(ids)]
    for begin in range(0, len(named), _IDS_MAX):
        yield named[begin : begin + _IDS_MAX]


def _fence(fence: int | None) -> str:
    return "" if fence is None else str(fence)


def _settled(reply: Sequence[Any], fence: int | None) -> int:
    if reply[0] < 0 and fence is not None:
        raise FencedOutboxError(fence=fence, newest=int(reply[1]))
    return int(reply[0])


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the client's error into one of the outbox."""
    try:
        yield
    except (RedisError, RedisSettingsError) as error:
        raise OutboxError(
            f"the outbox in Redis cannot be asked or told ({error}); events wait at their source "
            "until it can"
        ) from error
