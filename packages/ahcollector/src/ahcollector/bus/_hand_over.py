"""Gives entries of a shard to a handler, counts tries, and sets aside what nobody can take."""

from __future__ import annotations

import logging
from typing import Protocol

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector.bus._entries import decode
from ahcollector.bus._streams import Read, ShardStreams
from ahcollector.bus.base import TRIES_MAX, Handler, SampleBatch
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics

__all__ = ["Entry", "HandOver", "Holder"]

_log = logging.getLogger("ahcollector.bus")


class Holder(Protocol):
    """The tenure of a shard, as far as handing over needs it.

    Attributes:
        held: Entries handed over and not acknowledged.
    """

    shard: int
    lease: str
    held: set[bytes]

    def is_valid(self) -> bool:
        """Return whether the lease is surely held."""
        ...

    def end(self, *, lost: bool) -> None:
        """End the tenure."""
        ...

    def ack(self, entry_id: bytes) -> None:
        """Take an acknowledgement."""
        ...

    def taken(self, entry_id: bytes) -> None:
        """Note that the handler took an entry, whose tries are to be taken back."""
        ...

    def forget(self, entry_id: bytes) -> None:
        """Note that an entry is pending no more."""
        ...


@attrs.define(kw_only=True, eq=False)
class Entry:
    """An entry that waits in memory.

    Attributes:
        is_counted: Whether the try that comes next is in Redis already, as a first reading is.
        is_first: Whether it was never handed over before, as far as Redis tells.
        is_suspect: Whether it may have ended a process.
    """

    read: Read
    is_counted: bool
    is_first: bool
    is_suspect: bool = False
    tries: int


class _Delivery:
    """One hand-over of an entry."""

    def __init__(
        self, *, tenure: Holder, entry_id: bytes, batch: SampleBatch, attempt: int
    ) -> None:
        self._tenure = tenure
        self._entry_id = entry_id
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

    async def ack(self) -> None:
        self._tenure.ack(self._entry_id)


class HandOver:
    """Hands over one entry after the other, while the lease of their shard lasts."""

    def __init__(
        self,
        *,
        tenure: Holder,
        streams: ShardStreams,
        handler: Handler,
        clock: AsyncClock,
        metrics: Metrics,
        retry_seconds: float,
        dead_max: int,
        alone: anyio.Lock,
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
        try:
            batch = decode(entry.read.data)
        except BusError as error:
            await self._bury(entry, "unreadable", str(error))
            return
        self._tenure.held.add(entry.read.entry_id)
        while self._tenure.is_valid():
            if entry.is_suspect:
                # When a process dies, all entries that are in a handler then have one more try. So
                # an entry that had two or more is tried while no other such one is, of any shard:
                # those that are innocent pass, and only the one that kills goes on counting.
                async with self._alone:
                    is_done = await self._try(entry, batch)
            else:
                is_done = await self._try(entry, batch)
            if is_done:
                return
            entry.is_counted = entry.is_first = entry.is_suspect = False
            await self._clock.sleep(self._retry_seconds)

    async def _try(self, entry: Entry, batch: SampleBatch) -> bool:
        """Hand over once; return whether that was the last time."""
        entry_id = entry.read.entry_id
        if not entry.is_counted:
            if entry.tries >= TRIES_MAX:
                text = f"the process ended, or its lease, in each of {entry.tries} tries"
                await self._bury(entry, "handler_died", text)
                return True
            if not await self._begin(entry):
                return True
        delivery = _Delivery(
            tenure=self._tenure, entry_id=entry_id, batch=batch, attempt=entry.tries
        )
        try:
            await self._handler(delivery)
        except Exception as error:  # noqa: BLE001 - the supervisor of the handler, see below
            # Whatever a handler raises is a failed try of this entry
            # and must not stop the entries behind it.
            _log.warning(
                "a batch could not be handled",
                exc_info=error,
                extra={"request_id": batch.request_id, "attempt": entry.tries},
            )
            if entry_id not in self._tenure.held:
                return True
            if entry.tries >= TRIES_MAX:
                await self._bury(entry, "handler_failed", f"{type(error).__name__}: {error}")
                return True
            return False
        if not entry.is_first and entry_id in self._tenure.held:
            self._tenure.taken(entry_id)
        return True

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

    async def _bury(self, entry: Entry, kind: str, reason: str) -> None:
        entry_id = entry.read.entry_id
        _log.error(
            "an entry of the bus is set aside",
            extra={"shard": self._tenure.shard, "entry": entry_id.decode(), "error": reason},
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
