"""Gives entries of a shard to a handler, counts tries, and sets aside what nobody can take."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import nullcontext
from typing import Final, Protocol

import attrs

from ahcollector import metrics as names
from ahcollector.bus._alone import Alone
from ahcollector.bus._entries import decode
from ahcollector.bus._ready import until_ready, writable
from ahcollector.bus.base import ALONE_FROM, TRIES_MAX, Handler, SampleBatch
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics

__all__ = ["Counts", "Entry", "HandOver", "Holder", "Read", "once_more", "taken_over"]

# So long, what else is taken over may still be coming from the backend.
_GATHER_SECONDS: Final = 0.2
_log = logging.getLogger("ahcollector.bus")


@attrs.frozen(kw_only=True)
class Read:
    """An entry as it was read.

    Attributes:
        tries: How many tries were counted, among them the one that may follow a first reading.
    """

    entry_id: bytes
    tries: int
    data: bytes


class Counts(Protocol):
    """What a backend does for handing over. Every method may raise `BusError`: then repeat it."""

    async def begin(self, shard: int, lease: str, entry_id: bytes, tries: int) -> int:
        """Count a try; 0: the entry is pending no more, -1: the lease is lost."""
        ...

    async def bury(
        self, shard: int, lease: str, entry_id: bytes, *, reason: str, now: float, dead_max: int
    ) -> int:
        """Make an entry a dead letter; return how many were dropped, or -1: the lease is lost."""
        ...


class Holder(Protocol):
    """The tenure of a shard, as far as handing over needs it.

    Attributes:
        held: Entries handed over and not settled, and the number of the hand-over of each.
    """

    shard: int
    lease: str
    held: dict[bytes, int]

    def is_valid(self) -> bool:
        """Return whether the lease is surely held."""
        ...

    def end(self, *, lost: bool) -> None:
        """End the tenure."""
        ...

    def hold(self, entry_id: bytes) -> int:
        """Hold an entry; return the number of this hand-over."""
        ...

    def ack(self, entry_id: bytes, hand_over: int) -> None:
        """Take an acknowledgement."""
        ...

    def ask_again(self, entry_id: bytes, hand_over: int) -> None:
        """Have an entry handed over again."""
        ...

    def begun(self, entry_id: bytes, tries: int) -> None:
        """Note that an entry that is held has so many tries, over one."""
        ...

    def may_keep_tries(self) -> bool:
        """Return whether tries may be kept of one more entry that the handler took."""
        ...

    def clear_tries(self, entry_id: bytes) -> None:
        """Take the tries of an entry that is held back."""
        ...

    def forget(self, entry_id: bytes) -> None:
        """Note that an entry is pending no more."""
        ...


@attrs.define(kw_only=True, eq=False)
class Entry:
    """An entry that waits in memory.

    Attributes:
        is_counted: Whether the try that comes next is counted already, as a first reading is.
        is_first: Whether it was never handed over before, as far as the backend tells.
        is_suspect: Whether it may have ended a process.
        batch: What it holds, once that was read in a try of it.
    """

    read: Read
    is_counted: bool
    is_first: bool
    is_suspect: bool = False
    tries: int
    batch: SampleBatch | None = None


def once_more(read: Read) -> Entry:
    """Return an entry whose hand-over is the first one again: what a handler took has no tries."""
    # As a rule the one that its first reading counted is there, and stands for this one.
    is_counted = read.tries == 1
    return Entry(
        read=read, is_counted=is_counted, is_first=is_counted, tries=1 if is_counted else 0
    )


def taken_over(read: Read, counted: Collection[bytes]) -> Entry:
    """Return an entry that was pending; `counted` are those whose second try is counted by now."""
    is_counted = read.entry_id in counted
    return Entry(
        read=read,
        is_counted=is_counted,
        is_first=read.tries == 0,
        is_suspect=read.tries > 1,
        tries=2 if is_counted else read.tries,
    )


class _Receipt:
    """Settles one hand-over, which it knows by its number: one that is past has no effect."""

    def __init__(self, *, tenure: Holder, entry_id: bytes, hand_over: int) -> None:
        self._tenure = tenure
        self._entry_id = entry_id
        self._hand_over = hand_over

    async def ack(self) -> None:
        self._tenure.ack(self._entry_id, self._hand_over)

    async def again(self) -> None:
        self._tenure.ask_again(self._entry_id, self._hand_over)


class _Delivery(_Receipt):
    """One hand-over of an entry."""

    def __init__(
        self,
        *,
        tenure: Holder,
        entry_id: bytes,
        hand_over: int,
        batch: SampleBatch,
        attempt: int,
    ) -> None:
        super().__init__(tenure=tenure, entry_id=entry_id, hand_over=hand_over)
        self._batch = batch
        self._attempt = attempt

    @property
    def batch(self) -> SampleBatch:
        return self._batch

    @property
    def shard(self) -> int:
        return self._tenure.shard

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def receipt(self) -> _Receipt:
        return _Receipt(tenure=self._tenure, entry_id=self._entry_id, hand_over=self._hand_over)

    async def clear_tries(self) -> None:
        if self._tenure.held.get(self._entry_id) == self._hand_over:
            self._tenure.clear_tries(self._entry_id)


class HandOver:
    """Hands over one entry after the other, while the lease of their shard lasts."""

    def __init__(
        self,
        *,
        tenure: Holder,
        streams: Counts,
        handler: Handler,
        clock: AsyncClock,
        metrics: Metrics,
        retry_seconds: float,
        dead_max: int,
        alone: Alone,
    ) -> None:
        self._tenure = tenure
        self._streams = streams
        self._handler = handler
        self._clock = clock
        self._metrics = metrics
        self._retry_seconds = retry_seconds
        self._dead_max = dead_max
        self._alone = alone

    async def run(self, entry: Entry) -> None:
        """Give one entry to the handler until it takes it, or has failed too often."""
        hand_over = self._tenure.hold(entry.read.entry_id)
        if entry.is_suspect and entry.tries >= ALONE_FROM:
            # Those of fewer tries come first, also those that are being read just now.
            await self._clock.sleep(min(_GATHER_SECONDS, self._retry_seconds))
        while self._tenure.is_valid() and self._is_held(entry, hand_over):
            # When a process dies, all entries that are in a handler then have one more try. So an
            # entry that had two or more is tried while no other such one is, of any shard: those
            # that are innocent pass, and only the one that kills goes on counting.
            async with self._alone.turn(entry.tries) if entry.is_suspect else nullcontext():
                is_done = await self._try(entry, hand_over)
            if is_done:
                return
            entry.is_counted = entry.is_first = entry.is_suspect = False
            await self._clock.sleep(self._retry_seconds)

    def _is_held(self, entry: Entry, hand_over: int) -> bool:
        return self._tenure.held.get(entry.read.entry_id) == hand_over

    async def _try(self, entry: Entry, hand_over: int) -> bool:
        """Hand over once; return whether that was the last time."""
        entry_id = entry.read.entry_id
        if not entry.is_counted:
            if entry.tries >= TRIES_MAX:
                # Nor is it read to tell its request: that may be what ends a process.
                text = f"the process ended, or its lease, in each of {entry.tries} tries"
                await self._bury(entry, "handler_died", text)
                return True
            # Before it is counted: a process that dies while the handler only waits costs no try.
            await until_ready(self._handler, self._tenure.shard)
            if not (self._is_held(entry, hand_over) and await self._begin(entry)):
                return True
        try:
            # Once the try is counted, for it may end the process, too.
            batch = entry.batch = decode(entry.read.data) if entry.batch is None else entry.batch
        except BusError as error:
            await self._bury(entry, "unreadable", str(error))
            return True
        if entry.tries > 1:
            self._tenure.begun(entry_id, entry.tries)
        delivery = _Delivery(
            tenure=self._tenure,
            entry_id=entry_id,
            hand_over=hand_over,
            batch=batch,
            attempt=entry.tries,
        )
        try:
            await self._handler(delivery)
        except Exception as error:  # noqa: BLE001 - the supervisor of the handler, see below
            # Whatever a handler raises is a failed try of this entry
            # and must not stop the entries behind it.
            return await self._failed(entry, hand_over, batch, error)
        has_kept = entry.tries < ALONE_FROM and self._tenure.may_keep_tries()
        if entry.tries > 1 and not has_kept and self._is_held(entry, hand_over):
            self._tenure.clear_tries(entry_id)
        return True

    async def _failed(
        self, entry: Entry, hand_over: int, batch: SampleBatch, error: Exception
    ) -> bool:
        """See to an entry whose handler raised; return whether that was the last time."""
        entry.is_counted = False
        _log.warning(
            "a batch could not be handled",
            exc_info=error,
            extra={"request_id": batch.request_id, "attempt": entry.tries},
        )
        if not self._is_held(entry, hand_over):
            return True
        if entry.tries >= TRIES_MAX:
            text = f"{type(error).__name__}: {error}"
            await self._bury(entry, "handler_failed", text, request_id=batch.request_id)
            return True
        return False

    async def _begin(self, entry: Entry) -> bool:
        """Count a try; return whether it may be made."""
        entry_id = entry.read.entry_id
        while self._tenure.is_valid():
            try:
                verdict = await self._streams.begin(
                    self._tenure.shard, self._tenure.lease, entry_id, entry.tries + 1
                )
            except BusError:
                # Repeated: the same number is written again.
                await self._clock.sleep(self._retry_seconds)
                continue
            if verdict > 0:
                entry.tries += 1
                entry.is_counted = True
                return True
            self._tenure.forget(entry_id)
            if verdict < 0:
                self._tenure.end(lost=True)
            return False
        return False

    async def _bury(
        self, entry: Entry, kind: str, reason: str, *, request_id: str | None = None
    ) -> None:
        entry_id = entry.read.entry_id
        reason = writable(reason)
        told = {"shard": self._tenure.shard, "entry": entry_id.decode(), "error": reason}
        _log.error(
            "an entry of the bus is set aside",
            extra=told if request_id is None else told | {"request_id": request_id},
        )
        while self._tenure.is_valid():
            try:
                dropped = await self._streams.bury(
                    self._tenure.shard,
                    self._tenure.lease,
                    entry_id,
                    reason=reason,
                    now=self._clock.time(),
                    dead_max=self._dead_max,
                )
            except BusError:
                # Repeated: an entry is set aside once, whatever became of the reply.
                await self._clock.sleep(self._retry_seconds)
                continue
            self._tenure.forget(entry_id)
            if dropped < 0:
                self._tenure.end(lost=True)
                return
            self._metrics.inc(names.BUS_DEAD_LETTER, reason=kind)
            if dropped:
                self._metrics.inc(names.BUS_DEAD_LETTERS_DROPPED, dropped)
            return
