"""Takes batches from the bus and writes them to the store."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.bus.base import SHARDS, TRIES_MAX, Bus, Delivery
from ahcollector.clock import AsyncClock
from ahcollector.errors import DeadBatchesError, PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.store.base import Restarts, Writer
from ahcollector.worker._breaker import CircuitBreaker
from ahcollector.worker._buffer import ShardBuffer
from ahcollector.worker._dead_memory import MemoryDeadBatches
from ahcollector.worker._settling import AtOnce, Settling, WhenDurable
from ahcollector.worker._taking import Taking
from ahcollector.worker._trials import Trials
from ahcollector.worker.deadletter import DeadBatches
from ahwire.clock import Rng

__all__ = ["Worker", "WorkerStats"]

# VictoriaMetrics, killed, was seen to lose its last 9.9 s.
_DURABLE_AFTER_SECONDS: Final = 15.0
_IDLE_POLL_SECONDS: Final = 0.02
_STALLED_SECONDS: Final = 2.0
_REQUESTS_TOLD: Final = 10
_log = logging.getLogger("ahcollector.worker")


@attrs.frozen(kw_only=True)
class WorkerStats:
    """Counts since the worker was made.

    Attributes:
        batches: Taken from the bus, and written or set aside; one that is written again counts
            again.
        samples_written: Samples in the writes that the store took.
        pending_samples: Taken from the bus, and not yet written or set aside.
        dead: Batches set aside.
        held: Batches written and not acknowledged yet, because the store may still lose them.
        rewritten: Batches that the bus was asked for again, because the store may have lost them.
    """

    batches: int
    samples_written: int
    pending_samples: int
    dead: int
    held: int
    rewritten: int


class Worker:
    """Writes what its shards bring, each shard in order, and acknowledges only what is kept.

    A shard's batches are written together at `flush_samples` or after `flush_seconds`. While the
    store cannot take them, they are kept and tried again (0.2 s doubling to 30 s, one probe at a
    time over all shards), and a shard with four flushes of unwritten samples takes no more from the
    bus. When the store refuses a write for good, its batches are written one by one, and those
    refused alone are set aside; so is a batch that makes the store raise something unexpected five
    times.

    **A batch that ends the process.** What a process held that died comes with a try more until it
    is in a write that ends no process. From the third try on a batch is written by itself, and the
    bus waits for that with all that may be other such ones. So one that kills in its write is a
    dead letter of the bus after five deaths, and those that were with it pass. A store that is away
    ends such a wait, and takes the tries of what waits back; a further try is begun only when the
    buffer has room and, with `restarts`, the store gave an answer within the last second. Nothing
    tells a batch that kills from one in whose own write somebody else killed the process, three
    times.

    **Acknowledged means durable.** With `durable_after_seconds` a batch that was written stays on
    the bus, and out of this process's memory, until the store has lived for so long after the
    write: then it surely is on the store's disk. When the store was started again meanwhile, or
    could not be asked whether it was, all that is not acknowledged is taken from the bus once more
    and written again, which changes nothing where it was kept. While it cannot be asked, nothing
    is written. A batch that was set aside is acknowledged as soon as the dead letters have it.

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
        durable_after_seconds: How long after a write a kill of the store may still cost it. 0: a
            write that returned is kept, and acknowledged at once. None: 15 s with `restarts`,
            which is enough for VictoriaMetrics; else 0.
        restarts: Tells whether the store may have lost something; None: the store itself, where it
            has an `epoch`, as a writer of this package before it then has. A store inside a writer
            of somebody else, which has none, is to be named here.
        held_max: Batches that may wait to become durable, at about 300 bytes each; then the shards
            wait.

    Raises:
        ValueError: There is a time after which a write is durable, and no `restarts`; or it is
            negative, or nothing may wait for it.
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
        durable_after_seconds: float | None = None,
        restarts: Restarts | None = None,
        held_max: int = 100_000,
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
        self._metrics.watch(names.WORKER_PENDING_SAMPLES, self._pending)
        self._shutdown_flush_seconds = shutdown_flush_seconds
        self._unkept = Trouble(_log, "a dead letter was not kept", "dead letters are kept again")
        if restarts is None and isinstance(store, Restarts):
            restarts = store
        if durable_after_seconds is None:
            durable_after_seconds = 0.0 if restarts is None else _DURABLE_AFTER_SECONDS
        self._settling = self._settling_of(durable_after_seconds, restarts, held_max)
        self._writing = len(self._buffers)
        self._all_written = anyio.Event()
        self._batches = 0
        self._samples_written = 0
        self._dead = 0
        self._failed = False
        self._trials = Trials()
        self._taking = Taking(
            buffers=self._buffers,
            breaker=self._breaker,
            trials=self._trials,
            settling=self._settling,
            away=self._away,
        )

    def _settling_of(
        self, after_seconds: float, restarts: Restarts | None, held_max: int
    ) -> Settling:
        if after_seconds == 0:
            return AtOnce()
        if restarts is None or after_seconds < 0 or held_max < 1:
            raise ValueError(
                f"durable_after_seconds is {after_seconds:g} with held_max {held_max} and "
                f"{'no' if restarts is None else 'a'} restarts: it takes a positive time, room for "
                "a batch at least, and a store that tells of its restarts"
            )
        return WhenDurable(
            restarts=restarts,
            clock=self._clock,
            metrics=self._metrics,
            after_seconds=after_seconds,
            held_max=held_max,
        )

    async def run(self) -> None:
        """Work until cancelled, or until the bus is closed and everything is written; once.

        Cancelled, it goes on for at most `shutdown_flush_seconds`. From a bus that others share it
        takes nothing more, and writes what it has, as long as no 2 s pass without a batch written:
        store or bus hang then, and nothing is lost by leaving. A bus of this process it empties,
        since what it holds ends with the process. What is left
        stays on the bus unacknowledged, and so does what is written and not known to be durable:
        the next worker writes it again.
        """
        done = anyio.Event()
        scope = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve, scope, done)
            try:
                await done.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.move_on_after(self._shutdown_flush_seconds, shield=True):
                    await self._finish()
                scope.cancel()
                raise

    async def _finish(self) -> None:
        """Return when nothing is left to write, or nothing can be hoped for."""
        if self._bus.is_shared:
            self._close_buffers()
        # Idle is a matter of bus and buffers together, which no one event tells; in real time,
        # because the bound of the shutdown is real time too.
        done, since = self._batches, anyio.current_time()
        while not (self._failed or self._idle()):
            await anyio.sleep(_IDLE_POLL_SECONDS)
            if self._batches != done:
                done, since = self._batches, anyio.current_time()
            elif self._bus.is_shared and anyio.current_time() - since >= _STALLED_SECONDS:
                _log.warning(
                    "the stop waits no longer for store and bus: what is left stays on the bus",
                    extra={"samples": self._pending()},
                )
                return

    async def _serve(self, scope: anyio.CancelScope, done: anyio.Event) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._settling.run)
                    for buffer in self._buffers.values():
                        tasks.start_soon(self._write_shard, buffer)
                    await self._bus.subscribe(
                        list(self._buffers), self._taking, at_end=self._write_the_rest
                    )
                    tasks.cancel_scope.cancel()
        except BaseException:
            self._failed = True
            raise
        finally:
            done.set()

    async def _write_the_rest(self) -> None:
        """Return when all that a closed bus handed over is written."""
        self._close_buffers()
        if self._writing:
            await self._all_written.wait()

    def _close_buffers(self) -> None:
        for buffer in self._buffers.values():
            buffer.close()

    def _idle(self) -> bool:
        if any(buffer.samples or buffer.entries for buffer in self._buffers.values()):
            return False
        if self._bus.is_shared:
            return True
        depth = self._bus.depth()
        return not any(depth.get(shard) for shard in self._buffers)

    async def _write_shard(self, buffer: ShardBuffer) -> None:
        while deliveries := await buffer.ready():
            await self._settling.room(len(deliveries))
            await self._write(deliveries)
            buffer.written(deliveries)
            self._batches += len(deliveries)
            self._metrics.inc(names.WORKER_BATCHES, len(deliveries))
            # Or each shard would keep its last batches, some of them large, until others come.
            del deliveries
        self._writing -= 1
        if not self._writing:
            self._all_written.set()

    async def _write(self, deliveries: list[Delivery]) -> None:
        """Have deliveries written or set aside, in any number of tries."""
        tries = 0
        while True:
            error = await self._try(deliveries)
            if error is None:
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
        """Write once, and see to the acknowledgement; return what went wrong."""
        batches = [delivery.batch for delivery in deliveries]
        async with self._breaker.turn():
            try:
                spell = await self._settling.begin()
                begin = self._clock.monotonic()
                await self._store.write(batches)
            except TemporaryStoreError as error:
                await self._away(error, deliveries)
                return error
            except PermanentStoreError as error:
                self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="permanent")
                await self._trials.survived(deliveries)
                self._closed()
                return error
            except Exception as error:  # noqa: BLE001 - the supervisor of the write loop
                # Whatever a batch makes a store raise must not stop the batches behind it.
                _log.exception("the store failed in an unexpected way", extra=_requests(deliveries))
                self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="unexpected")
                await self._trials.survived(deliveries)
                return error
            await self._trials.survived(deliveries)
            self._closed()
        self._metrics.observe(names.TSDB_FLUSH_SECONDS, self._clock.monotonic() - begin)
        self._samples_written += sum(batch.samples for batch in batches)
        await self._settling.written(deliveries, spell)
        return None

    async def _away(self, error: TemporaryStoreError, deliveries: Sequence[Delivery] = ()) -> None:
        if not self._breaker.open:
            _log.warning(
                "the store takes no samples", extra={"error": str(error), **_requests(deliveries)}
            )
        self._breaker.failed()
        await self._trials.adjourn()
        self._metrics.inc(names.TSDB_WRITE_ERRORS, kind="temporary")

    def _closed(self) -> None:
        if self._breaker.open:
            _log.info("the store takes samples again")
        self._breaker.succeeded()

    async def _bury(self, delivery: Delivery, error: Exception) -> None:
        """Set a batch aside; while that fails, it stays on the bus."""
        # Half a surrogate pair has no UTF-8, and nobody could keep it.
        reason = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
        _log.error(
            "a batch is set aside",
            extra={"request_id": delivery.batch.request_id, "error": reason},
        )
        while True:
            try:
                await self._dead_batches.put(delivery.batch, reason, self._clock.time())
            except DeadBatchesError as failure:
                self._unkept.goes_on(
                    self._clock.monotonic(),
                    {"request_id": delivery.batch.request_id, "error": str(failure)},
                )
                await self._clock.sleep(1.0)
            else:
                self._unkept.is_over()
                break
        await delivery.ack()
        self._settling.set_aside()
        self._dead += 1
        kind = "refused" if isinstance(error, PermanentStoreError) else "unexpected"
        self._metrics.inc(names.TSDB_BATCHES_DROPPED, reason=kind)

    def _pending(self) -> int:
        return sum(buffer.samples for buffer in self._buffers.values())

    def stats(self) -> WorkerStats:
        """Return the counts."""
        return WorkerStats(
            batches=self._batches,
            samples_written=self._samples_written,
            pending_samples=self._pending(),
            dead=self._dead,
            held=self._settling.held,
            rewritten=self._settling.rewritten,
        )


def _requests(deliveries: Sequence[Delivery]) -> dict[str, Any]:
    """Return what a log line tells of the batches of a write; of many, the first ones."""
    ids = [delivery.batch.request_id for delivery in deliveries]
    if not ids:
        return {}
    if len(ids) == 1:
        return {"request_id": ids[0]}
    return {"batches": len(ids), "request_ids": ids[:_REQUESTS_TOLD]}
