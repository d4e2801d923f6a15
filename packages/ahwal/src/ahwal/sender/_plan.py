"""What to send next: the head of the backlog, merged while it is long, split while it is too large.

Everything here blocks (it reads the disk, parses and compresses) and runs in a worker thread.
"""

import logging

from attrs import frozen
from google.protobuf.message import DecodeError

from ahwal.sender._backlog import QUEUE_ERRORS, Backlog, Held
from ahwal.sender._batch import Ceilings, SequenceNumbers
from ahwal.sender._books import Books, DropReason, Key
from ahwal.sender._outage import SeldomLog
from ahwal.sender._suspect import Suspicion
from ahwire import Clock, limits, now_ms
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import count_points, drop_old_points, merge, split
from ahwire.codec import GZIP, compress

READ_ENTRIES_MAX = 512
READ_BYTES_MAX = 4 << 20
SAVING_READ_BYTES_MAX = 512 << 10


@frozen(kw_only=True)
class Request:
    """One request that is ready to be posted.

    Attributes:
        keys: The batches that its acknowledgement removes, oldest first.
        batch: Their content, with `sent_at_ms` set.
        body: The same, serialized and compressed.
        coding: How it is compressed.
        points: Points in `batch`.
        too_old: Points that were left out because the collector would refuse them.
        suspect: The batch that this request is compared with, when it stands behind it in the
            queue.
    """

    keys: tuple[Key, ...]
    batch: MetricsBatch
    body: bytes
    coding: str
    points: int
    too_old: int
    suspect: Key | None = None


@frozen(kw_only=True)
class _Candidate:
    key: Key
    batch: MetricsBatch
    points: int
    too_old: int


class ServerTime:
    """The server's clock as far as it is known, for judging what it would call too old.

    After an acknowledgement it is the server's own time plus monotonic time since, so that a step
    of this machine's wall clock cannot make the whole backlog look old. Before, the wall clock
    decides.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms: float | None = None

    def learn(self, server_time_ms: int) -> None:
        """Take the time of an acknowledgement."""
        self._offset_ms = server_time_ms - self._clock.monotonic() * 1000

    def now_ms(self) -> int:
        """Return the server's time in Unix milliseconds, as well as it is known."""
        if self._offset_ms is None:
            return now_ms(self._clock)
        return round(self._clock.monotonic() * 1000 + self._offset_ms)


class Planner:
    """Chooses the next request and keeps what earlier answers taught about its size.

    Attributes:
        group_max: How many batches one request may hold; halved by answers that fault it.
        max_point_age_seconds: Points older than this are not sent.
        coding: Content coding of bodies.
        read_bytes_max: How much of the backlog is read and merged at once.
        answered: Whether the last request got an answer; None before the first. What only finds
            out whether the collector is there need not cost the host much: the first request is a
            small part of the backlog, and after one without an answer the next holds one batch.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        backlog: Backlog,
        books: Books,
        numbers: SequenceNumbers,
        ceilings: Ceilings,
        suspicion: Suspicion,
        server_time: ServerTime,
        logger: logging.Logger,
    ) -> None:
        self._clock = clock
        self._backlog = backlog
        self._books = books
        self._numbers = numbers
        self._ceilings = ceilings
        self._suspicion = suspicion
        self._server_time = server_time
        self._log = logger
        self.group_max = READ_ENTRIES_MAX
        self.max_point_age_seconds = float(limits.MAX_POINT_AGE_SECONDS)
        self.coding = GZIP
        self.read_bytes_max = READ_BYTES_MAX
        self.answered: bool | None = None
        self._faults = SeldomLog(logger=logger)
        self._unreadable = False
        self._old_log = SeldomLog(logger=logger)
        self._old_batches = self._old_points = 0
        self._given_up = 0

    def next_request(self) -> Request | None:
        """Return what to send now, or None when both queues are empty or cannot be read."""
        try:
            return self._next_request()
        except QUEUE_ERRORS as error:
            self._faults.error(self._clock.monotonic(), "the queue refused a change: %s", error)
            return None
        finally:
            self._report_old()

    def notice_losses(self) -> None:
        """Count what the queues gave up since the last look, by what their heads are now."""
        given_up = self._backlog.stats().dropped
        if given_up == self._given_up:
            return
        with self._backlog.lock:
            for durable in (True, False):
                try:
                    held = self._backlog.head(durable=durable)
                except QUEUE_ERRORS:
                    # What cannot be read now says nothing; the next look may.
                    return
                batches = [(each.key.id, _points(_parse(each))) for each in held]
                self._books.seen(durable=durable, batches=batches)
        self._given_up = given_up

    @property
    def _group_limit(self) -> int:
        return 1 if self.answered is False else self.group_max

    @property
    def _bytes_limit(self) -> int:
        return self.read_bytes_max if self.answered else SAVING_READ_BYTES_MAX

    def _next_request(self) -> Request | None:
        while True:
            candidates = self._candidates()
            if not candidates:
                return None
            group, suspect = self._choose(candidates)
            request = self._build(group, suspect)
            if request is not None:
                return request

    def split(self, key: Key, batch: MetricsBatch) -> bool:
        """Put two halves in the place of a batch; False when it has a single point or none."""
        halves = split(batch, self._numbers.next)
        if len(halves) == 1:
            return False
        with self._backlog.lock:
            key, ids = self._backlog.replace(key, [half.SerializeToString() for half in halves])
            # Without ids the queue had evicted the batch; else what is missing was too old.
            parts = list(zip(ids, map(count_points, halves), strict=False))
            reason = DropReason.TOO_OLD if ids else DropReason.EVICTED
            self._books.replaced(key, parts, reason)
        return True

    def _candidates(self) -> list[_Candidate]:
        """Read the head of the backlog; whatever cannot be sent at all is taken out on the way."""
        for durable in (True, False):
            while parsed := self._read(durable=durable):
                last = parsed[-1][0]
                candidates = [
                    candidate
                    for key, batch, points in parsed
                    if (candidate := self._candidate(key, batch, points, is_last=key == last))
                ]
                if candidates:
                    return candidates
        return []

    def _read(self, *, durable: bool) -> list[tuple[Key, MetricsBatch | None, int]]:
        """Read and parse no more of one queue's head than one request can hold."""
        with self._backlog.lock:
            held = self._backlog.read(
                durable=durable,
                entries_max=max(2, self._group_limit),
                bytes_max=self._bytes_limit,
            )
            self._report_reading()
            if held is None:
                return []
            parsed: list[tuple[Key, MetricsBatch | None, int]] = []
            total = 0
            for entry in held:
                batch = _parse(entry)
                points = _points(batch)
                parsed.append((entry.key, batch, points))
                total += points
                # Two at least, so that a suspect can be compared with its successor.
                if total > limits.MAX_POINTS_PER_BATCH and len(parsed) > 1:
                    break
            self._books.seen(
                durable=durable, batches=[(key.id, points) for key, _, points in parsed]
            )
            return parsed

    def _candidate(
        self, key: Key, batch: MetricsBatch | None, points: int, *, is_last: bool
    ) -> _Candidate | None:
        if batch is None:
            self._log.error(
                "a batch in the queue cannot be decoded, dropping it", extra={"id": key.id}
            )
            with self._backlog.lock:
                self._books.drop(self._backlog.remove(key), DropReason.UNREADABLE)
            return None
        fresh, too_old = drop_old_points(
            batch,
            now_ms=self._server_time.now_ms(),
            max_age_seconds=self.max_point_age_seconds,
        )
        # The last one is sent even without points: where a clock is wrong, it is the heartbeat.
        if too_old and not fresh.series and not is_last:
            # After a long outage there are hundreds of them: they are told in one line.
            self._old_batches += 1
            self._old_points += too_old
            with self._backlog.lock:
                self._books.drop(self._backlog.remove(key), DropReason.TOO_OLD)
            return None
        return _Candidate(key=key, batch=fresh, points=points - too_old, too_old=too_old)

    def _report_old(self) -> None:
        if self._old_batches and self._old_log.due(self._clock.monotonic()):
            self._log.warning(
                "%d batches with %d points were older than the collector's window of %.0f s, "
                "they were dropped",
                self._old_batches,
                self._old_points,
                self.max_point_age_seconds,
            )
            self._old_batches = self._old_points = 0

    def _report_reading(self) -> None:
        error = self._backlog.read_error
        if error is not None:
            self._faults.error(
                self._clock.monotonic(),
                "the queue on disk cannot be read, it is tried again at the next cycle: %s",
                error,
            )
        elif self._unreadable:
            self._log.info("the queue on disk can be read again")
        self._unreadable = error is not None

    def _choose(self, candidates: list[_Candidate]) -> tuple[list[_Candidate], Key | None]:
        head = candidates[0]
        if self._suspicion.try_next(head.key) and len(candidates) > 1:
            return [candidates[1]], head.key
        if self._suspicion.isolate:
            return [head], None
        group: list[_Candidate] = []
        points = plain_bytes = 0
        for candidate in candidates[: max(1, self._group_limit)]:
            points += candidate.points
            plain_bytes += candidate.batch.ByteSize()
            over = points > limits.MAX_POINTS_PER_BATCH or plain_bytes > self._bytes_limit
            if over and group:
                break
            group.append(candidate)
        return group, None

    def _build(self, group: list[_Candidate], suspect: Key | None) -> Request | None:
        """Build the request, smaller when need be; None when the queue had to be changed first."""
        while True:
            batch = self._joined(group)
            points = sum(candidate.points for candidate in group)
            body = compress(batch.SerializeToString(), self.coding)
            fits, hard = self._fits(batch, points, len(body))
            # One point cannot be made smaller, so a limit that was only learned does not cost it.
            if not fits and len(group) > 1:
                group = group[: len(group) // 2]
                continue
            if not fits and self.split(group[0].key, group[0].batch):
                return None
            if hard:
                self._log.error("a single point is over the limits, dropping it")
                with self._backlog.lock:
                    self._books.drop(self._backlog.remove(group[0].key), DropReason.TOO_LARGE)
                return None
            return Request(
                keys=tuple(c.key for c in group),
                batch=batch,
                body=body,
                coding=self.coding,
                points=points,
                too_old=sum(c.too_old for c in group),
                suspect=suspect,
            )

    def _joined(self, group: list[_Candidate]) -> MetricsBatch:
        if len(group) == 1:
            batch = MetricsBatch()
            batch.CopyFrom(group[0].batch)
        else:
            batch = merge([c.batch for c in group], self._numbers.next())
        batch.sent_at_ms = now_ms(self._clock)
        return batch

    def _fits(self, batch: MetricsBatch, points: int, body_bytes: int) -> tuple[bool, bool]:
        """Return whether the request fits, and whether it breaks a limit of the protocol."""
        hard = (
            points > limits.MAX_POINTS_PER_BATCH
            or batch.ByteSize() > limits.MAX_PLAIN_BYTES
            or body_bytes > limits.MAX_COMPRESSED_BYTES
        )
        learned = self._ceilings.compressed_bytes(self._clock.monotonic())
        return not hard and body_bytes <= learned, hard


def _points(batch: MetricsBatch | None) -> int:
    return 0 if batch is None else count_points(batch)


def _parse(held: Held) -> MetricsBatch | None:
    try:
        return MetricsBatch.FromString(held.data)
    except DecodeError:
        return None
