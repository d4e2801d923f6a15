"""One lease of one shard on NATS, from winning it to its end."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

import anyio

from ahcollector.bus._hand_over import Entry, HandOver, Read
from ahcollector.bus._jetstream_consumer import Delivered, ShardConsumer
from ahcollector.bus._jetstream_parts import TenureParts
from ahcollector.bus._jetstream_tries import Tries, take_back
from ahcollector.errors import BusError

__all__ = ["JetStreamTenure"]

READ_ENTRIES: Final = 32
"""How many entries come at a time; at most twice as many wait in memory."""

_AHEAD_BYTES: Final = 512 << 10
_FETCH_ENTRIES: Final = 8
_SETTLE_ENTRIES: Final = 500


class JetStreamTenure:
    """Hands over what a shard brings while its lease lasts.

    An entry is known by its place in the stream. It is *ours* from the moment its turn comes until
    it is acknowledged, and confirmed to be: when the consumer is made anew and delivers it once
    more, only the place where it is acknowledged is new. What merely waited is forgotten then, and
    comes again.

    Args:
        shard: The shard.
        fence: Of the lease.
        until: Steady time at which it is over unless it was renewed.
    """

    def __init__(self, *, shard: int, fence: int, until: float, parts: TenureParts) -> None:
        self.shard = shard
        self.fence = fence
        self.lease = str(fence)
        self.until = until
        self.is_leaving = False
        self.is_drained = False
        self.ends_when_empty = False
        self.ended = anyio.Event()
        self.held: dict[bytes, int] = {}
        self.current: Entry | None = None
        self.tries = Tries(api=parts.api, names=parts.names, shard=shard, fence=fence)
        self._parts = parts
        self._clock = parts.clock
        self._queue: deque[Entry] = deque()
        self._fetched: deque[Entry] = deque()
        self._asked: list[int] = []
        self._acked: dict[int, None] = {}
        # With the time at which NATS took it: a stream that was made anew counts from one again.
        self._ours: dict[int, float] = {}
        self._times: dict[int, float] = {}
        # Of what the present consumer delivered, and how far that is.
        self._places: dict[int, str] = {}
        self._delivered_to = 0
        self._last_hand_over = 0
        self._has_read_tries = False
        self._is_lost = False
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._consumer = ShardConsumer(
            api=parts.api,
            names=parts.names,
            clock=parts.clock,
            shard=shard,
            fence=fence,
            tag=parts.tag,
            pull_seconds=parts.pull_seconds,
            pull_entries=READ_ENTRIES,
            room=parts.room,
            came=self._take,
            changed=self.wake,
        )
        self._hand_over = HandOver(
            tenure=self,
            streams=self,
            handler=parts.handler,
            clock=parts.clock,
            metrics=parts.metrics,
            retry_seconds=parts.retry_seconds,
            dead_max=parts.dead_max,
            alone=parts.alone,
        )

    # --- its lease

    def is_valid(self) -> bool:
        """Return whether the lease is surely held."""
        return not self._is_lost and self._clock.monotonic() < self.until

    def end(self, *, lost: bool) -> None:
        """End it: the handler is cancelled, and what was not settled is the next owner's."""
        self._is_lost = self._is_lost or lost
        self.is_leaving = True
        self._scope.cancel()
        self.wake()

    def close(self) -> None:
        """Take no acknowledgement any more: entries are the next owner's."""
        self.held.clear()
        self._consumer.unbind()

    def wake(self) -> None:
        """Look again at what there is to do."""
        self._news.set()
        self._news = anyio.Event()

    def look(self) -> None:
        """Doubt what NATS owes for too long."""
        self._consumer.look()

    def waiting(self) -> int:
        """Return how many entries wait here, also those that are not in memory any more."""
        return len(self._queue) + len(self._fetched) + len(self._asked)

    def interrupted(self) -> list[int]:
        """Return the places of entries whose try ended with the lease, and was counted."""
        places = self._unfinished()
        if self.current is not None and not self.current.is_first and self.current.is_counted:
            places.append(int(self.current.read.entry_id))
        return places

    def _unfinished(self) -> list[int]:
        """Return the places of entries that have a try counted in whose midst they are.

        A handler took them and is not through with them, or they wait, and were counted together
        with one before them. Not the one of now.
        """
        now = None if self.current is None else self.current.read.entry_id
        places = [int(one) for one in self.held if one != now]
        places += [int(one.read.entry_id) for one in self._queue if one.tries == 1]
        return [seq for seq in places if self.tries.of(seq) > 1]

    # --- what the consumer brings

    def _take(self, one: Delivered) -> None:
        if self.is_leaving:
            return
        self._delivered_to = one.seq
        self._places[one.seq] = one.place
        if self._ours.get(one.seq, one.time) != one.time:
            self._forget(one.seq)
        if one.seq in self._ours:
            if one.seq in self._acked:
                self._parts.changed()
            return
        self._times[one.seq] = one.time
        self._parts.came(self.shard, one.time)
        self._queue.append(self._entry(one.seq, one.data))
        self.wake()

    def _forget(self, seq: int) -> None:
        """Forget what was known by a place in the stream, which another entry has now."""
        self._ours.pop(seq, None)
        self._acked.pop(seq, None)
        self.held.pop(str(seq).encode(), None)
        self.tries.forget(seq)

    def _entry(self, seq: int, data: bytes) -> Entry:
        tries = self.tries.of(seq)
        read = Read(entry_id=str(seq).encode(), tries=max(1, tries), data=data)
        if tries == 0:
            return Entry(read=read, is_counted=True, is_first=True, tries=1)
        return Entry(read=read, is_counted=False, is_first=False, is_suspect=tries > 1, tries=tries)

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
            self._settle_later(int(entry_id))

    def ask_again(self, entry_id: bytes, hand_over: int) -> None:
        """Have a held entry handed over again; it stays ours."""
        if self.held.get(entry_id) == hand_over:
            del self.held[entry_id]
            self.clear_tries(entry_id)
            heapq.heappush(self._asked, int(entry_id))
            self.wake()

    def begun(self, entry_id: bytes, tries: int) -> None:
        """Do nothing: the tries of all entries are at hand."""

    def may_keep_tries(self) -> bool:
        """Return whether tries may be kept of one more entry that the handler took."""
        return self.tries.has_room

    def clear_tries(self, entry_id: bytes) -> None:
        """Take the tries of an entry that is held back."""
        if self.current is not None and self.current.read.entry_id == entry_id:
            self.current.tries = 1
        self.tries.forget(int(entry_id))
        if self.tries.is_changed:
            self._parts.changed()

    def forget(self, entry_id: bytes) -> None:
        """Note that an entry is no more, or not ours any more."""
        self.held.pop(entry_id, None)

    def _settle_later(self, seq: int) -> None:
        self._acked[seq] = None
        self.tries.forget(seq)
        self._parts.changed()

    def has_to_settle(self) -> bool:
        """Return whether something can be settled now."""
        return self.tries.is_changed or self._has_to_acknowledge()

    def _has_to_acknowledge(self) -> bool:
        return self._consumer.is_bound and any(seq in self._places for seq in self._acked)

    async def settle(self) -> None:
        """Settle some of what there is. Raises BusError: then repeat it."""
        some: list[int] = []
        for seq in self._acked:
            if seq in self._places:
                some.append(seq)
                if len(some) == _SETTLE_ENTRIES:
                    break
        if some and await self._consumer.acknowledge([self._places[seq] for seq in some]):
            for seq in some:
                self._acked.pop(seq, None)
                self._ours.pop(seq, None)
                self._places.pop(seq, None)
        # Otherwise they are acknowledged where the next consumer delivers them.
        self._forget_gone()
        if self._has_read_tries and self.tries.is_changed and not await self.tries.write():
            self.end(lost=True)

    def _forget_gone(self) -> None:
        """Forget what is acknowledged although the confirmation was lost: it did not come again."""
        gone = [seq for seq in self._acked if seq <= self._delivered_to and seq not in self._places]
        for seq in gone:
            del self._acked[seq]
            self._ours.pop(seq, None)

    async def leave(self) -> None:
        """Leave the shard in good order, when its work has ended. Raises BusError.

        The consumer goes last: while it is there, the next owner takes what it delivered for tried.
        """
        while self._has_to_acknowledge():
            await self.settle()
        if self._has_read_tries:
            for seq in self._unfinished():
                self.tries.forget(seq)
            if self.current is not None:
                # One that is in the handler had no try; one that waits for its next had all.
                count = self.current.tries - self.current.is_counted
                self.tries.given_back(int(self.current.read.entry_id), count)
            self.tries.keep(up_to=self._delivered_to, known=self._places)
            await self.tries.write()
        await self._consumer.delete()

    async def make_good(self, interrupted: list[int]) -> None:
        """Undo what the next owner would take for a death, after the lease was lost to it.

        Args:
            interrupted: What that returned; emptied when done. Raises BusError: then repeat it.
        """
        if interrupted:
            await take_back(self._parts.api, self._parts.names, self.shard, interrupted)
            interrupted.clear()
        await self._consumer.delete()

    # --- what handing over asks for

    async def begin(self, shard: int, lease: str, entry_id: bytes, tries: int) -> int:
        """Count a try; -1: the lease is lost."""
        assert (shard, lease) == (self.shard, self.lease), "what is handed over is of this lease"
        waiting = [int(one.read.entry_id) for one in self._queue]
        self.tries.keep(up_to=self._delivered_to, known=self._places)
        return 1 if await self.tries.begin(int(entry_id), tries, waiting=waiting) else -1

    async def bury(
        self, shard: int, lease: str, entry_id: bytes, *, reason: str, now: float, dead_max: int
    ) -> int:
        """Make the entry of now a dead letter; return how many were dropped."""
        assert lease == self.lease, "what is handed over is of this lease"
        assert self.current is not None, "what is buried is handed over"
        seq, data = int(entry_id), self.current.read.data
        dropped = await self._parts.letters.bury(
            shard=shard, seq=seq, data=data, reason=reason, now=now, dead_max=dead_max
        )
        self._settle_later(seq)
        return dropped

    # --- its work

    async def serve(self) -> None:
        """Hand over until it ends; returns then."""
        try:
            with self._scope:
                while not self.is_drained and self.is_valid():
                    try:
                        await self._step()
                    except BusError as error:
                        self._parts.tell(error)
                        await self._clock.sleep(self._parts.retry_seconds)
        finally:
            # Whoever was late once has ended, although a renewal that was under way may still come.
            self._is_lost = self._is_lost or not self.is_valid()
            self.is_leaving = True
            self.ended.set()

    async def _step(self) -> None:
        if not self._consumer.is_bound:
            await self._bind()
        elif self._asked and not self._fetched:
            await self._fetch_asked()
        elif self._fetched or self._queue:
            await self._read_ahead()
            self.current = (self._fetched or self._queue).popleft()
            self._own(int(self.current.read.entry_id))
            await self._hand_over.run(self.current)
            self.current = None
        else:
            await self._find_more()

    def _own(self, seq: int) -> None:
        # What was asked for again is ours already.
        if seq not in self._ours:
            self._ours[seq] = self._times.pop(seq, 0.0)

    async def _bind(self) -> None:
        """Make a consumer, the first one or a new one in the place of one that is in doubt."""
        self._queue.clear()
        self._times.clear()
        self._places.clear()
        self._delivered_to = 0
        if not self._has_read_tries:
            if not await self.tries.read():
                self.end(lost=True)
                return
            self._has_read_tries = True
        predecessors = await self._consumer.predecessors()
        if predecessors is None:
            self.end(lost=True)
            return
        self.tries.suspect(max((one.before for one in predecessors), default=0))
        # Before that is deleted which tells it.
        if not await self.tries.write():
            self.end(lost=True)
            return
        await self._consumer.bind(predecessors, is_valid=self.is_valid)

    async def _read_ahead(self) -> None:
        is_room = len(self._queue) < READ_ENTRIES and not self._consumer.is_pulling
        if is_room and sum(len(one.read.data) for one in self._queue) < _AHEAD_BYTES:
            await self._pull()

    async def _pull(self) -> None:
        if self._consumer.was_in_vain:
            await self._clock.sleep(self._parts.retry_seconds)
        if self._consumer.is_bound and self.is_valid():
            await self._consumer.pull()

    async def _find_more(self) -> None:
        news = self._news
        if not self._consumer.is_pulling:
            await self._pull()
        if self.ends_when_empty and await self._consumer.is_empty():
            self.is_drained = not self.waiting()
            return
        if not self.waiting() and self._consumer.is_bound:
            await news.wait()

    async def _fetch_asked(self) -> None:
        """Read some of what was asked for again: the memory of a process is not for all of it."""
        places = [heapq.heappop(self._asked) for _ in range(min(_FETCH_ENTRIES, len(self._asked)))]
        try:
            for seq in places:
                async with self._parts.room:
                    kept = await self._parts.api.get(self._parts.names.stream, seq=seq)
                if kept is None:
                    # Somebody deleted it by hand.
                    self._ours.pop(seq, None)
                    continue
                read = Read(entry_id=str(seq).encode(), tries=1, data=kept.data)
                self._fetched.append(Entry(read=read, is_counted=True, is_first=True, tries=1))
        except BusError:
            self._fetched.clear()
            self._asked = sorted(self._asked + places)
            raise
