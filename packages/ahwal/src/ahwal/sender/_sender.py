"""The sender: batches go into the backlog, and from its head to the collector.

A thin shell. What is sent is chosen by `_plan`, what an answer means by `ahwire.status`, what
follows from it by `_verdict`; here they are put together. Blocking work runs in worker threads, so
that a slow disk never stops the event loop.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import anyio

from ahwal._sample import Sample
from ahwal._threads import in_thread
from ahwal.clock import SystemClock
from ahwal.errors import TransportError
from ahwal.queue import DropReason as QueueDropReason
from ahwal.queue import MemoryQueue, Queue
from ahwal.sender._backlog import Backlog
from ahwal.sender._batch import Appended, Ceilings, Enqueued, SequenceNumbers, build
from ahwal.sender._books import Books, DropReason
from ahwal.sender._outage import OutageLog
from ahwal.sender._pace import Pace
from ahwal.sender._plan import READ_BYTES_MAX, SAVING_READ_BYTES_MAX, Planner, Request, ServerTime
from ahwal.sender._sendable import Complaints, as_list, to_unix_ms
from ahwal.sender._snapshot import SenderStatus
from ahwal.sender._state import Delivery, DeliveryState, Signal
from ahwal.sender._storing import Storing, guarded_listener
from ahwal.sender._suspect import Suspicion
from ahwal.sender._verdict import Verdicts
from ahwal.transport.base import MetricsTransport
from ahwire import Backoff, Clock, Rng, limits, now_ms
from ahwire.agent_pb2 import AgentStats
from ahwire.status import Action, Code, classify

DEFAULT_INTERVAL_SECONDS = 30.0
DEFAULT_CATCH_UP_BATCHES = 2
DEFAULT_MEMORY_BYTES_MAX = 4 << 20


class Sender:
    """Delivers batches at least once, oldest first.

    `enqueue` and `tick` may run at the same time in two tasks of one event loop; two `tick` may
    not. `append` may be called from any thread. Nothing here raises because of the network, the
    collector or the disk.

    Args:
        queue: The durable queue; None to begin in memory, see `attach`.
        transport: Carries the requests, such as `ahwal.Client`.
        clock: Wall and monotonic clock.
        rng: Jitter of the backoff.
        interval_seconds: The collection interval in force; fixes the pace.
        catch_up_batches: Requests that one tick may make after its first.
        labels: Added to every sample, as far as it has room for 27 labels with its own.
        memory_bytes_max: Size of the queue that takes over while the disk fails.
        probe_interval_seconds: Pause between two probes after a 401.
        on_appended: Told of each batch that has become durable, right after its append returned and
            in a worker thread. What it raises is logged.
        on_config_etag: Told once of each new etag that an acknowledgement carries.
        on_renew_token: Told when the collector wants the token renewed.
        logger: Default: the logger `ahwal.sender`.
    """

    def __init__(
        self,
        *,
        queue: Queue | None,
        transport: MetricsTransport,
        clock: Clock | None = None,
        rng: Rng | None = None,
        interval_seconds: float = DEFAULT_INTERVAL_SECONDS,
        catch_up_batches: int = DEFAULT_CATCH_UP_BATCHES,
        labels: Mapping[str, str] | None = None,
        memory_bytes_max: int = DEFAULT_MEMORY_BYTES_MAX,
        probe_interval_seconds: float = 600.0,
        on_appended: Callable[[Appended], None] | None = None,
        on_config_etag: Callable[[str], None] | None = None,
        on_renew_token: Callable[[], None] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._transport = transport
        self._log = logger if logger is not None else logging.getLogger("ahwal.sender")
        self._on_config_etag = on_config_etag
        self._on_renew_token = on_renew_token
        self.catch_up_batches = catch_up_batches
        self.labels = dict(labels or {})
        self._interval_seconds = interval_seconds
        self._numbers = SequenceNumbers(clock=self._clock)
        self._books = Books()
        self._ceilings = Ceilings()
        self._server_time = ServerTime(clock=self._clock)
        self._suspicion = Suspicion()
        self._pace = Pace(interval_seconds=interval_seconds, now=self._clock.monotonic())
        self._delivery = Delivery(
            backoff=Backoff(rng=rng if rng is not None else random.Random()),
            probe_interval_seconds=probe_interval_seconds,
        )
        self._backlog = Backlog(
            durable=queue,
            memory=MemoryQueue(max_bytes=memory_bytes_max, clock=self._clock),
            on_durable=guarded_listener(on_appended, self._log),
            on_moved=self._books.moved,
        )
        self._storing = Storing(backlog=self._backlog, books=self._books, logger=self._log)
        self._planner = Planner(
            clock=self._clock,
            backlog=self._backlog,
            books=self._books,
            numbers=self._numbers,
            ceilings=self._ceilings,
            suspicion=self._suspicion,
            server_time=self._server_time,
            logger=self._log,
        )
        self._verdicts = Verdicts(
            clock=self._clock,
            backlog=self._backlog,
            books=self._books,
            ceilings=self._ceilings,
            suspicion=self._suspicion,
            server_time=self._server_time,
            pace=self._pace,
            delivery=self._delivery,
            planner=self._planner,
            outage=OutageLog(logger=self._log),
            logger=self._log,
        )
        self._complaints = Complaints(logger=self._log)
        self._seeded = False
        self._appending = threading.Lock()
        self._requests = 0
        self._last_etag = ""

    def __repr__(self) -> str:
        # Of what is in memory only: the queue may be closed, and a repr must not raise.
        return f"<Sender delivery={self.state} requests={self._requests}>"

    @property
    def state(self) -> DeliveryState:
        """The delivery state."""
        return self._delivery.state

    def due_in_seconds(self) -> float | None:
        """Return when `tick` can next do something: 0 at once, None never (revoked)."""
        due = self._delivery.due_in(self._clock.monotonic())
        if due is None or self.state is DeliveryState.UNAUTHORIZED:
            return due
        return max(due, self._pace.wait_seconds(self._clock.monotonic()))

    def set_interval(self, interval_seconds: float) -> None:
        """Use the pace of another collection interval, and report it in the stats."""
        self._interval_seconds = interval_seconds
        self._pace.set_interval(interval_seconds, now=self._clock.monotonic())

    def set_max_point_age(self, max_age_seconds: float) -> None:
        """Drop points older than this instead of sending them; 0 means the protocol's 24 hours."""
        self._planner.max_point_age_seconds = max_age_seconds or float(limits.MAX_POINT_AGE_SECONDS)

    def save_memory(self, save: bool) -> None:
        """Read and merge less of the backlog at once, or as much as usual again."""
        self._planner.read_bytes_max = SAVING_READ_BYTES_MAX if save else READ_BYTES_MAX

    def use_transport(self, transport: MetricsTransport) -> None:
        """Send through another transport from the next request on."""
        self._transport = transport

    def resume(self) -> None:
        """Try again at the next tick: a new token was obtained after a 401."""
        self._delivery.signal(Signal.PROBE_PASSED, now=self._clock.monotonic())

    async def attach(self, queue: Queue) -> None:
        """Begin to use a queue on disk; what waits in memory moves to it."""
        self._seeded = False
        await in_thread(self._backlog.attach, queue)

    async def save(self) -> int:
        """Give the disk once more what waits in memory, as at an end.

        Returns:
            The batches that still are in memory only.
        """
        return await in_thread(self._backlog.save)

    async def enqueue(
        self,
        samples: Iterable[Sample],
        *,
        collected_at_ms: int | None = None,
        cpu_percent: float = 0.0,
        rss_bytes: int = 0,
    ) -> int:
        """Put the samples of one cycle into the backlog; without samples a heartbeat.

        When it returns, the batch is on disk, or in memory if the disk refused it. A cancellation
        leaves either all of it or nothing.

        Args:
            samples: What was collected.
            collected_at_ms: When; default now.
            cpu_percent: This process's processor use, for the stats.
            rss_bytes: This process's memory, for the stats.

        Returns:
            The number of points that went into the backlog.
        """
        time_ms = now_ms(self._clock) if collected_at_ms is None else collected_at_ms
        append = partial(
            self.append,
            as_list(samples),
            collected_at_ms=time_ms,
            cpu_percent=cpu_percent,
            rss_bytes=rss_bytes,
        )
        return (await in_thread(append)).points

    def append(
        self,
        samples: Iterable[Sample],
        *,
        collected_at_ms: int | None = None,
        cpu_percent: float = 0.0,
        rss_bytes: int = 0,
    ) -> Enqueued:
        """Do what `enqueue` does, blocking; from any thread, and beside everything else here.

        Whatever cannot be sent, of whatever type, is counted in the result; with a time that is
        none, that is all of it. What the iterable itself raises goes through, and nothing is taken.
        """
        given = as_list(samples)
        time_ms = to_unix_ms(now_ms(self._clock) if collected_at_ms is None else collected_at_ms)
        if time_ms is None:
            self._log.warning("samples were left out: collected_at_ms is not in Unix milliseconds")
            self._books.refuse(DropReason.BAD_SAMPLE, len(given))
            dropped = {DropReason.BAD_SAMPLE: len(given)} if given else {}
            return Enqueued(points=0, on_disk=False, dropped=dropped)
        stats = self._stats(cpu_percent, rss_bytes)
        # One at a time, so that sequence numbers rise in the order of the queue.
        with self._appending:
            self._seed_numbers()
            built = build(
                given,
                collected_at_ms=time_ms,
                labels=self.labels,
                stats=stats,
                compressed_bytes_max=self._ceilings.compressed_bytes(self._clock.monotonic()),
                next_number=self._numbers.next,
            )
            on_disk = self._storing.store(built)
            self._planner.notice_losses()
            self._complaints.left_out(built.left_out)
            self._complaints.labels_left_out(built.labels_left_out)
        points = sum(part.points for part in built.batches)
        return Enqueued(points=points, on_disk=on_disk, dropped=built.dropped)

    async def tick(self) -> int:
        """Send the head of the backlog, then up to `catch_up_batches` requests more.

        Stops at the first failure, when nothing is left, or when the pace is spent. While
        unauthorized it only probes, when the time has come.

        Returns:
            The number of requests that were acknowledged.
        """
        if self._delivery.may_probe(self._clock.monotonic()):
            await self._probe()
        acknowledged = 0
        for _ in range(1 + self.catch_up_batches):
            now = self._clock.monotonic()
            if not self._delivery.may_send(now) or self._pace.wait_seconds(now) > 0:
                break
            request = await in_thread(self._next_request)
            if request is None:
                break
            self._pace.take(self._clock.monotonic())
            self._requests += 1
            try:
                reply = await self._transport.post_metrics(request.body, coding=request.coding)
            except TransportError as error:
                self._planner.answered = False
                self._verdicts.no_answer(error)
                break
            self._planner.answered = True
            action = classify(
                reply.status, code=reply.code, ack=reply.ack, sent_seq=request.batch.seq
            )
            # What the answer decided must reach the queue, even when we are told to stop now.
            with anyio.CancelScope(shield=True):
                go_on = await in_thread(self._verdicts.apply, action, request, reply)
            if action is Action.REVOKE:
                self._transport.clear_token()
            if action is Action.ACCEPT and reply.ack is not None:
                acknowledged += 1
                self._tell_agent(reply.ack.config_etag, renew=reply.ack.renew_token)
            if not go_on:
                break
        return acknowledged

    def status(self) -> SenderStatus:
        """Return all figures at this moment; never waits for the disk."""
        queues = self._backlog.stats()
        figures = self._books.figures()
        return SenderStatus(
            state=self.state,
            upgrade_required=self._delivery.upgrade_required,
            on_disk=self._backlog.on_disk,
            queued_batches=queues.batches,
            queue_bytes=queues.bytes,
            evicted_batches=queues.dropped,
            evicted_batches_by_reason={
                str(reason): queues.dropped_by_reason.get(reason, 0) for reason in QueueDropReason
            },
            produced=figures.produced,
            inherited=figures.inherited,
            delivered=figures.delivered,
            dropped=figures.dropped,
            queued=figures.queued,
            requests=self._requests,
            send_failures=self._verdicts.failures,
            transitions=dict(self._delivery.transitions),
            clock_skew_seconds=self._verdicts.clock_skew_seconds,
            last_success_unix_seconds=self._verdicts.last_success_unix_seconds,
            last_error=self._verdicts.last_error,
        )

    def _next_request(self) -> Request | None:
        self._seed_numbers()
        return self._planner.next_request()

    def _seed_numbers(self) -> None:
        # Before the first number is taken, and in a worker thread, because it reads the disk: a
        # clock that went back while no agent ran must not make numbers come twice.
        if not self._seeded:
            self._numbers.above(self._backlog.largest_seq())
            self._seeded = True

    async def _probe(self) -> None:
        now = self._clock.monotonic()
        try:
            reply = await self._transport.get_config()
        except TransportError as error:
            self._log.debug("the probe failed: %s", error, extra={"request_id": error.request_id})
            self._delivery.signal(Signal.FAILED, now=now)
            return
        if reply.status in (200, 304):
            self._log.info("the collector accepts the token again, resuming")
            self._delivery.signal(Signal.PROBE_PASSED, now=now)
        elif reply.status == 403 and reply.code == Code.AGENT_REVOKED:
            self._verdicts.revoke(reply.request_id)
            self._transport.clear_token()
        else:
            self._log.warning(
                "the collector still does not accept the token: status %d %s",
                reply.status,
                reply.code or "",
                extra={"request_id": reply.request_id},
            )
            self._delivery.signal(
                Signal.FAILED, now=now, retry_after_seconds=reply.retry_after_seconds
            )

    def _tell_agent(self, etag: str, *, renew: bool) -> None:
        if etag and etag != self._last_etag:
            self._last_etag = etag
            if self._on_config_etag is not None:
                self._on_config_etag(etag)
        if renew and self._on_renew_token is not None:
            self._on_renew_token()

    def _stats(self, cpu_percent: float, rss_bytes: int) -> AgentStats:
        queues = self._backlog.stats()
        return AgentStats(
            cpu_percent=cpu_percent,
            rss_bytes=rss_bytes,
            wal_bytes=queues.bytes,
            wal_batches=queues.batches,
            dropped_samples_total=self._books.figures().dropped_total,
            send_failures_total=self._verdicts.failures,
            clock_skew_seconds=self._verdicts.clock_skew_seconds,
            wal_dropped_batches_total=queues.dropped,
            delivery_state=str(self.state),
            interval_seconds=max(1, round(self._interval_seconds)),
        )
