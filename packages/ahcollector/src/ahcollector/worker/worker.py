"""Takes batches from the bus and writes them to the store."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector.bus.base import SHARDS, TRIES_MAX, Bus, Delivery
from ahcollector.clock import AsyncClock
from ahcollector.errors import DeadBatchesError, PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.store.base import Writer
from ahcollector.worker._breaker import CircuitBreaker
from ahcollector.worker._buffer import ShardBuffer
from ahcollector.worker._dead_memory import MemoryDeadBatches
from ahcollector.worker.deadletter import DeadBatches
from ahwire.clock import Rng

__all__ = ["Worker", "WorkerStats"]

_IDLE_POLL_SECONDS: Final = 0.02
_log = logging.getLogger("ahcollector.worker")


@attrs.frozen(kw_only=True)
class WorkerStats:
    """Counts since the worker was made.

    Attributes:
        batches: Taken from the bus and settled (written or set aside).
        samples_written: Samples in the writes that the store took.
        pending_samples: Taken from the bus and not yet settled.
        dead: Batches set aside.
    """

    batches: int
    samples_written: int
    pending_samples: int
    dead: int


class Worker:
    """Writes what its shards bring, each shard in order, and acknowledges only what is written.

    A shard's batches are written together at `flush_samples` or after `flush_seconds`. While the
    store cannot take them, they are kept and tried again (0.2 s doubling to 30 s, one probe at a
    time over all shards), and a shard with four flushes of unwritten samples takes no more from the
    bus. When the store refuses a write for good, its batches are written one by one, and those
    refused alone are set aside; so is a batch that makes the store raise something unexpected five
    times.

    Args:
        bus: Where batches come from.
        store: Where samples go.
        clock: Paces flushes and retries.
        rng: Gives the jitter of retries.
        shards: Which shards to take; all by default.
        dead_batches: Where refused batches go; memory by default.
        metrics: Where to count.
        flush_samples: Samples of one write, about.
        flush_seconds: How long the first batch of a write waits for others.
        retry_min_seconds: First step of the wait for a store that is down.
        retry_max_seconds: Largest step.
        shutdown_flush_seconds: How long `run` goes on writing after it was cancelled.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        store: Writer,
        clock: AsyncClock,
        rng: Rng,
        shards: Collection[int] = range(SHARDS),
        dead_batches: DeadBatches | None = None,
        metrics: Metrics | None = None,
        flush_samples: int = 5_000,
        flush_seconds: float = 0.5,
        retry_min_seconds: float = 0.2,
        retry_max_seconds: float = 30.0,
        shutdown_flush_seconds: float = 10.0,
    ) -> None:
        self._bus = bus
        self._store = store
        self._clock = clock
        self._dead_batches = dead_batches if dead_batches is not None else MemoryDeadBatches()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._breaker = CircuitBreaker(
            clock=clock,
            rng=rng,
            retry_min_seconds=retry_min_seconds,
            retry_max_seconds=retry_max_seconds,
        )
        self._buffers = {
            shard: ShardBuffer(
                clock=clock, flush_samples=flush_samples, flush_seconds=flush_seconds
            )
            for shard in shards
        }
        self._shutdown_flush_seconds = shutdown_flush_seconds
        self._batches = 0
        self._samples_written = 0
        self._dead = 0
        self._failed = False

    async def run(self) -> None:
        """Work until cancelled, or until the bus is closed and everything is written.

        Cancelled, it goes on for at most `shutdown_flush_seconds` with what its shards hold; what
        is left then stays on the bus, unacknowledged.
        """
        done = anyio.Event()
        scope = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve, scope, done)
            try:
                await done.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.move_on_after(self._shutdown_flush_seconds, shield=True):
                    # Idle is a matter of bus and buffers together, which no one event tells; in
                    # real time, because the bound of the shutdown is real time too.
                    while not (self._failed or self._idle()):  # noqa: ASYNC110 - see above
                        await anyio.sleep(_IDLE_POLL_SECONDS)
                scope.cancel()
                raise

    async def _serve(self, scope: anyio.CancelScope, done: anyio.Event) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as tasks:
                    for buffer in self._buffers.values():
                        tasks.start_soon(self._write_shard, buffer)
                    await self._bus.subscribe(list(self._buffers), self._take)
                    for buffer in self._buffers.values():
                        buffer.close()
        except BaseException:
            self._failed = True
            raise
        finally:
            done.set()

    def _idle(self) -> bool:
        depth = self._bus.depth()
        return all(
            not buffer.samples and not buffer.entries and not depth.get(shard)
            for shard, buffer in self._buffers.items()
        )

    async def _take(self, delivery: Delivery) -> None:
        buffer = self._buffers[delivery.shard]
        await buffer.put(delivery)
        self._tell_pending()

    async def _write_shard(self, buffer: ShardBuffer) -> None:
        while True:
            deliveries = await buffer.ready()
            if not deliveries:
                return
            await self._write(deliveries)
            buffer.written(deliveries)
            self._batches += len(deliveries)
            self._metrics.inc(names.WORKER_BATCHES, len(deliveries))
            self._tell_pending()

    async def _write(self, deliveries: list[Delivery]) -> None:
        """Settle deliveries: written or set aside, then acknowledged."""
        tries = 0
        while True:
            error = await self._try(deliveries)
            if error is None:
                for delivery in deliveries:
                    await delivery.ack()
                return
            if isinstance(error, TemporaryStoreError):
                continue
            if len(deliveries) > 1:
                for delivery in deliveries:
                    await self._write([delivery])
                return
            tries += 1
            if isinstance(error, PermanentStoreError) or tries >= TRIES_MAX:
                await self._bury(deliveries[0], error)
                return

    async def _try(self, deliveries: list[Delivery]) -> Exception | None:
        """Write once; return what went wrong."""
        batches = [delivery.batch for delivery in deliveries]
        async with self._breaker.turn():
            begin = self._clock.monotonic()
            try:
                await self._store.write(batches)
            except TemporaryStoreError as error:
                if not self._breaker.open:
                    _log.warning("the store takes no samples", extra={"error": str(error)})
                self._breaker.failed()
                self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="temporary")
                return error
            except PermanentStoreError as error:
                self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="permanent")
                self._closed()
                return error
            except Exception as error:  # noqa: BLE001 - the supervisor of the write loop
                # Whatever a batch makes a store raise must not stop the batches behind it.
                _log.exception("the store failed in an unexpected way")
                self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="unexpected")
                return error
            self._closed()
        self._metrics.observe(names.TSDB_FLUSH_SECONDS, self._clock.monotonic() - begin)
        self._samples_written += sum(batch.samples for batch in batches)
        return None

    def _closed(self) -> None:
        if self._breaker.open:
            _log.info("the store takes samples again")
        self._breaker.succeeded()

    async def _bury(self, delivery: Delivery, error: Exception) -> None:
        """Set a batch aside; while that fails, it stays on the bus."""
        reason = f"{type(error).__name__}: {error}"
        _log.error(
            "a batch is set aside",
            extra={"request_id": delivery.batch.request_id, "error": reason},
        )
        while True:
            try:
                await self._dead_batches.put(delivery.batch, reason, self._clock.time())
            except DeadBatchesError as failure:
                _log.warning("a dead letter was not kept", extra={"error": str(failure)})
                await self._clock.sleep(1.0)
            else:
                break
        await delivery.ack()
        self._dead += 1
        kind = "refused" if isinstance(error, PermanentStoreError) else "unexpected"
        self._metrics.inc(names.TSDB_BATCHES_DROPPED, reason=kind)

    def _tell_pending(self) -> None:
        self._metrics.set(names.WORKER_PENDING_SAMPLES, self.stats().pending_samples)

    def stats(self) -> WorkerStats:
        """Return the counts."""
        return WorkerStats(
            batches=self._batches,
            samples_written=self._samples_written,
            pending_samples=sum(buffer.samples for buffer in self._buffers.values()),
            dead=self._dead,
        )
