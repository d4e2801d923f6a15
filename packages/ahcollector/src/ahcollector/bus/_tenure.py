"""One lease of one shard, from winning it to its end: what is read, handed over, held, settled."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from ahcollector.bus._alone import Alone
from ahcollector.bus._bulk import READ_ENTRIES, Bulk
from ahcollector.bus._hand_over import Entry, HandOver, Read, once_more, taken_over
from ahcollector.bus._streams import Settlement, ShardStreams, id_of, place_of
from ahcollector.bus.base import Handler
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics

__all__ = ["Tenure", "TenureSettings"]

_LIST_ENTRIES: Final = 100
_SETTLE_ENTRIES: Final = 500


@attrs.frozen(kw_only=True)
class TenureSettings:
    """What all tenures of a bus share.

    Attributes:
        retry_seconds: Pause before an entry is tried again, and before Redis is asked again.
        dead_max: Dead letters kept.
        block_seconds: How long a reader waits.
        claim_idle_seconds: What is pending and unknown for so long was read by a stale owner.
    """

    retry_seconds: float
    dead_max: int
    claim_idle_seconds: float
    block_seconds: float


class Tenure:
    """Hands over what a shard brings while its lease lasts.

    Entries come in two ways. New ones are put in by a reader, which reads the shards of several
    tenures at once. Those that are pending and unknown here (of an owner that died, or of a reading
    whose reply was lost) are found by the tenure itself, before anything new is read: `is_in_doubt`
    keeps the readers away until then.

    Args:
        shard: The shard.
        lease: What Redis knows the lease by.
        until: Steady time at which it is over unless it was renewed.
        pending: How many entries were pending when it was won.
        alone: Held while an entry is tried that may have ended a process.
        came: Told the shard and the number of new entries that were read.
        changed: Told when there is something to settle, or to read.
    """

    def __init__(
        self,
        *,
        shard: int,
        lease: str,
        until: float,
        pending: int,
        streams: ShardStreams,
        bulk: Bulk,
        handler: Handler,
        clock: AsyncClock,
        metrics: Metrics,
        settings: TenureSettings,
        alone: Alone,
        came: Callable[[int, int], None],
        changed: Callable[[], None],
    ) -> None:
        self.shard = shard
        self.lease = lease
        self.until = until
        self.is_in_doubt = pending > 0
        self.is_read = False
        self.is_behind = False
        self.is_leaving = False
        self.is_drained = False
        self.ends_when_empty = False
        self.ended = anyio.Event()
        self.queue: deque[Entry] = deque()
        self.held: dict[bytes, int] = {}
        self.current: Entry | None = None
        self._known: set[bytes] = set()
        # Of held entries that have more than one try, which are to be taken back.
        self._tries: dict[bytes, int] = {}
        self._acked: list[bytes] = []
        self._taken: list[bytes] = []
        self._last_hand_over = 0
        self._asked: list[tuple[int, int]] = []
        self._fetched: deque[Entry] = deque()
        self._after = b"0-0"
        self._cursor = b"0-0"
        self._streams = streams
        self._bulk = bulk
        self._clock = clock
        self._settings = settings
        self._came = came
        self._changed = changed
        self._hand_over = HandOver(
            tenure=self,
            streams=streams,
            handler=handler,
            clock=clock,
            metrics=metrics,
            retry_seconds=settings.retry_seconds,
            dead_max=settings.dead_max,
            alone=alone,
        )
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._is_lost = False

    # --- its lease

    def is_valid(self, *, margin_seconds: float = 0.0) -> bool:
        """Return whether the lease is surely held, and will be for so long."""
        return not self._is_lost and self._clock.monotonic() + margin_seconds < self.until

    def end(self, *, lost: bool) -> None:
        """End it: the handler is cancelled, and what was not settled is the next owner's."""
        self._is_lost = self._is_lost or lost
        self.is_leaving = True
        self._scope.cancel()
        self.wake()

    def close(self) -> None:
        """Take no acknowledgement any more: entries are the next owner's."""
        self.held.clear()
        self._tries.clear()

    def wake(self) -> None:
        """Look again at what there is to do."""
        self._news.set()
        self._news = anyio.Event()

    # --- what the readers bring

    def wants_more(self) -> bool:
        """Return whether a reader may read for it now."""
        if self.is_leaving or self.is_read or self.is_in_doubt or self.ends_when_empty:
            return False
        if len(self.queue) >= self._bulk.ration.of_one:
            # It is not among those that the next command waits for, so it reads for itself first.
            self.is_behind = True
            return False
        # What it waits for is read while the lease still lasts, or not at all.
        return self.is_valid(margin_seconds=self._settings.block_seconds)

    def put(self, found: list[Read]) -> None:
        """Add new entries."""
        for read in found:
            self._known.add(read.entry_id)
            self.queue.append(Entry(read=read, is_counted=True, is_first=True, tries=1))
        if found:
            self._came(self.shard, len(found))
            self.wake()

    def doubt(self) -> None:
        """Note that something may have been read whose reply is lost."""
        self.is_in_doubt = True
        self._after = b"0-0"
        self.wake()

    # --- what is settled

    def hold(self, entry_id: bytes) -> int:
        """Hold an entry; return the number of this hand-over."""
        self._last_hand_over += 1
        self.held[entry_id] = self._last_hand_over
        return self._last_hand_over

    def ack(self, entry_id: bytes, hand_over: int) -> None:
        """Take an acknowledgement; one that comes after the end has no effect."""
        if self.held.get(entry_id) == hand_over:
            del self.held[entry_id]
            self._tries.pop(entry_id, None)
            self._acked.append(entry_id)
            self._changed()

    def ask_again(self, entry_id: bytes, hand_over: int) -> None:
        """Have a held entry handed over again; it stays pending, and known."""
        if self.held.get(entry_id) == hand_over:
            del self.held[entry_id]
            self.clear_tries(entry_id)
            heapq.heappush(self._asked, place_of(entry_id))
            self.wake()

    def begun(self, entry_id: bytes, tries: int) -> None:
        """Note that an entry that is held has so many tries, over one."""
        self._tries[entry_id] = tries

    def may_keep_tries(self) -> bool:
        """Return whether tries may be kept of one more entry that the handler took: always."""
        return True

    def clear_tries(self, entry_id: bytes) -> None:
        """Take the tries of an entry that is held back."""
        if self._tries.pop(entry_id, None) is None:
            return
        if self.current is not None and self.current.read.entry_id == entry_id:
            self.current.tries = 1
        self._taken.append(entry_id)
        self._changed()

    def forget(self, entry_id: bytes) -> None:
        """Note that an entry is pending no more."""
        self.held.pop(entry_id, None)
        self._tries.pop(entry_id, None)
        self._known.discard(entry_id)

    def settlement(self) -> Settlement | None:
        """Return what is to be settled now; None: nothing."""
        if not (self._acked or self._taken):
            return None
        return Settlement(
            shard=self.shard,
            lease=self.lease,
            acked=tuple(self._acked[:_SETTLE_ENTRIES]),
            taken=tuple(self._taken[:_SETTLE_ENTRIES]),
        )

    def settled(self, done: Settlement) -> None:
        """Forget what was settled."""
        del self._acked[: len(done.acked)]
        del self._taken[: len(done.taken)]
        self._known.difference_update(done.acked)

    def given_back(self) -> dict[bytes, int]:
        """Return entries that were not handed over to the end, with the tries they really had.

        What a handler took and is not through with had that of its first reading.
        """
        counted = {one.read.entry_id: one.tries - 1 for one in self._counted()}
        return dict.fromkeys(self._taken_tries(), 1) | counted

    def interrupted(self) -> dict[tuple[int, bytes], int]:
        """Return the same entries, with the tries that are counted: they end with the lease."""
        counted = {one.read.entry_id: one.tries for one in self._counted()}
        return {(self.shard, one): tries for one, tries in (self._taken_tries() | counted).items()}

    def _taken_tries(self) -> dict[bytes, int]:
        tries = dict(self._tries)
        if self.current is not None:
            # It is in the handler, or waits for its next try and had all that are counted.
            tries.pop(self.current.read.entry_id, None)
        return tries

    def _counted(self) -> list[Entry]:
        current = [] if self.current is None else [self.current]
        return [one for one in [*current, *self._fetched, *self.queue] if one.is_counted]

    def waiting(self) -> int:
        """Return how many entries wait here, also those that are not in memory any more."""
        return len(self.queue) + len(self._fetched) + len(self._asked)

    # --- its work

    async def serve(self) -> None:
        """Hand over until it ends; returns then."""
        try:
            with self._scope:
                while not self.is_drained and self.is_valid():
                    await self._step()
        finally:
            # Whoever was late once has ended, although a renewal that was under way may still come.
            self._is_lost = self._is_lost or not self.is_valid()
            self.is_leaving = True
            self.ended.set()

    async def _step(self) -> None:
        if self._asked and not self._fetched:
            await self._fetch_asked()
        elif self._fetched or self.queue:
            self.current = (self._fetched or self.queue).popleft()
            await self._hand_over.run(self.current)
            self.current = None
        else:
            await self._find_more()

    async def _find_more(self) -> None:
        news = self._news
        if self.is_in_doubt:
            if not self.is_read:
                await self._recover()
                return
        elif (self.is_behind or self.ends_when_empty) and not self.is_read:
            await self._read_alone()
            return
        elif not self.is_read:
            self._changed()
        await news.wait()

    async def _read_alone(self) -> None:
        """Read without waiting: the readers wait for others just now."""
        self.is_read = True
        try:
            found = await self._bulk.read_alone(self.shard, is_valid=self.is_valid)
        except BusError:
            self.doubt()
            await self._clock.sleep(self._settings.retry_seconds)
            return
        finally:
            self.is_read = False
        self.put(found)
        self.is_behind = bool(found)
        self.is_drained = self.ends_when_empty and not found and not self._asked

    async def _recover(self) -> None:
        """Find a page of what is pending and unknown here."""
        try:
            page = await self._streams.pending(
                self.shard, self.lease, after=self._after, count=_LIST_ENTRIES
            )
            if page is None:
                self.end(lost=True)
                return
            unknown = [one for one in page if one not in self._known]
            looked_at = await self._adopt(unknown[:READ_ENTRIES])
        except BusError:
            await self._clock.sleep(self._settings.retry_seconds)
            return
        if len(unknown) > looked_at:
            self._after = unknown[looked_at - 1]
        elif len(page) == _LIST_ENTRIES:
            self._after = page[-1]
        else:
            self.is_in_doubt = False

    async def sweep(self) -> int:
        """Find what a stale owner read after its lease; return how many. Raises BusError."""
        found = 0
        while not self.is_leaving:
            page = await self._streams.sweep(
                self.shard,
                self.lease,
                idle_ms=round(self._settings.claim_idle_seconds * 1000),
                cursor=self._cursor,
                count=READ_ENTRIES,
            )
            if page is None:
                self.end(lost=True)
                break
            self._cursor, ids = page
            unknown = [one for one in ids if one not in self._known]
            if unknown and not self.is_in_doubt:
                found += len(unknown)
                if await self._adopt(unknown) < len(unknown):
                    # It finds the others a few at a time, when these are handed over.
                    self.doubt()
            if self._cursor == b"0-0":
                break
        return found

    async def _fetch_asked(self) -> None:
        """Read some of what was asked for again: the memory of a process is not for all of it."""
        places = [heapq.heappop(self._asked) for _ in range(min(READ_ENTRIES, len(self._asked)))]
        ids = [id_of(place) for place in places]
        try:
            found = await self._bulk.fetch(self.shard, self.lease, ids)
        except BusError:
            self._asked = sorted(self._asked + places)
            await self._clock.sleep(self._settings.retry_seconds)
            return
        if found is None:
            self.end(lost=True)
            return
        self._asked = sorted(self._asked + places[found.looked_at :])
        self._known -= set(ids[: found.looked_at]).difference(one.entry_id for one in found.reads)
        self._fetched.extend(map(once_more, found.reads))

    async def _adopt(self, ids: list[bytes]) -> int:
        """Put the first of some pending entries before what waits; return how many it was about."""
        if not ids:
            return 0
        found = await self._bulk.fetch(self.shard, self.lease, ids)
        if found is None:
            self.end(lost=True)
            return len(ids)
        news = [read for read in found.reads if read.entry_id not in self._known]
        once = [read.entry_id for read in news if read.tries == 1]
        # Their second try is counted together, as the first one is by reading them: one command for
        # each would make a take-over slow. From then on each is counted alone.
        counted = await self._streams.begin_together(self.shard, self.lease, once, 2)
        # Somebody else may have found them meanwhile.
        entries = [taken_over(one, counted) for one in news if one.entry_id not in self._known]
        self._known.update(one.read.entry_id for one in entries)
        self.queue.extendleft(reversed(entries))
        self.wake()
        return found.looked_at
