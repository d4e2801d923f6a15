"""Samples become batches that fit: one Series with one Point a sample, stamped with one time."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from attrs import frozen

from ahwal._sample import Sample
from ahwal.sender._books import DropReason
from ahwal.sender._sendable import Remark, common_labels, fault_of, refused, with_common
from ahwire import Clock, limits, next_seq, now_ms
from ahwire.agent_pb2 import AgentStats, MetricsBatch
from ahwire.batch import NOT_FINITE, count_points, split, validate
from ahwire.codec import compress

# A learned limit never goes below this: a server that refuses so little is not a limit but a fault.
LEARNED_BYTES_MIN = 1024
LEARNED_FOR_SECONDS = 3600.0


# Milliseconds get there in the year 287396, and no counter in the life of a machine.
SEQ_MAX = 2**53 - 1


class SequenceNumbers:
    """Numbers that are never used twice by an agent: Unix milliseconds, or the last one plus one.

    Thread-safe.

    Args:
        clock: Gives the milliseconds.
        last: The largest number that was already used.
    """

    def __init__(self, *, clock: Clock, last: int = 0) -> None:
        self._clock = clock
        self._last = last
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return a number above all earlier ones."""
        with self._lock:
            self._last = next_seq(now_ms(self._clock), self._last)
            return self._last

    def above(self, used: int) -> None:
        """Never return `used` or less from now on, if it is a number that can have been given out.

        One above `SEQ_MAX` is a stranger's or damage, and is ignored: going on from it would end
        at the largest number that the protocol has. So the numbers never wrap.
        """
        with self._lock:
            self._last = max(self._last, used if used <= SEQ_MAX else 0)


class Ceilings:
    """How large a request may be: the protocol's limits, and what a server was seen to refuse.

    A refused size holds for an hour, so that a proxy that was set right again is noticed.
    """

    def __init__(self) -> None:
        self._learned_bytes: int | None = None
        self._learned_until = 0.0
        self._accepted_bytes = 0

    def compressed_bytes(self, now: float) -> int:
        """Return the largest body to build, in bytes after compression."""
        if self._learned_bytes is None or now >= self._learned_until:
            return limits.MAX_COMPRESSED_BYTES
        return self._learned_bytes

    def refused(self, compressed_bytes: int, now: float) -> None:
        """Learn from a 413: half of it is what is sent next, unless more was accepted before."""
        if compressed_bytes <= self._accepted_bytes:
            # The server changed its mind: what it took before says nothing any more.
            self._accepted_bytes = 0
        self._learned_bytes = max(LEARNED_BYTES_MIN, self._accepted_bytes, compressed_bytes // 2)
        self._learned_until = now + LEARNED_FOR_SECONDS

    def accepted(self, compressed_bytes: int) -> None:
        """Learn from an acknowledgement."""
        self._accepted_bytes = max(self._accepted_bytes, compressed_bytes)


@frozen(kw_only=True)
class Appended:
    """A batch that the disk has: its append has returned.

    Attributes:
        seq: Sequence number of the batch. A later split or merge gets other numbers.
        collected_at_ms: When it was collected, Unix milliseconds: the time of each of its points.
        samples: What it holds, as it will be sent.
    """

    seq: int
    collected_at_ms: int
    samples: tuple[Sample, ...]


def to_appended(data: bytes) -> Appended:
    """Return what a batch's bytes hold."""
    batch = MetricsBatch.FromString(data)
    return Appended(
        seq=batch.seq,
        collected_at_ms=batch.collected_at_ms,
        samples=tuple(
            Sample(s.name, s.points[0].value, {pair.name: pair.value for pair in s.labels})
            for s in batch.series
        ),
    )


@frozen(kw_only=True)
class Enqueued:
    """What became of samples that were handed over.

    Attributes:
        points: How many went into the backlog.
        on_disk: Whether the disk has all of them: a crash from now on loses none. False when they
            wait in memory because the disk refused them, and when nothing was taken.
        dropped: How many cannot be sent at all, by reason.
    """

    points: int
    on_disk: bool
    dropped: Mapping[DropReason, int]


@frozen(kw_only=True)
class BuiltBatch:
    """A batch that is ready for the queue."""

    batch: MetricsBatch
    points: int
    data: bytes


@frozen(kw_only=True)
class Built:
    """What became of the samples of one cycle.

    Attributes:
        batches: At least one.
        dropped: Points that the protocol cannot carry, by reason.
        left_out: What is wrong with those of the reason `bad_sample`.
        labels_left_out: What is wrong with labels for all samples.
    """

    batches: list[BuiltBatch]
    dropped: dict[DropReason, int]
    left_out: list[Remark]
    labels_left_out: list[Remark]


def build(
    samples: Iterable[object],
    *,
    collected_at_ms: int,
    labels: Mapping[str, str],
    stats: AgentStats,
    compressed_bytes_max: int,
    next_number: Callable[[], int],
) -> Built:
    """Build the batches of one cycle; without samples one empty batch, the heartbeat.

    Args:
        samples: What was collected; among it may be anything.
        collected_at_ms: Time of the cycle, given to every point.
        labels: Added to every sample that does not have a label of the same name.
        stats: The agent's own health, put into every batch.
        compressed_bytes_max: Batches whose body would be larger are split.
        next_number: Source of sequence numbers.
    """
    common, labels_left_out = common_labels(labels)
    built = Built(batches=[], dropped={}, left_out=[], labels_left_out=labels_left_out)
    for chunk in _chunks(_sendable(samples, built), limits.MAX_POINTS_PER_BATCH):
        batch = _to_batch(chunk, collected_at_ms, common, stats, next_number())
        batch = _without_refused(batch, collected_at_ms, built)
        built.batches.extend(
            BuiltBatch(batch=part, points=count_points(part), data=part.SerializeToString())
            for part in fit(batch, compressed_bytes_max, next_number)
        )
    return built


def _sendable(samples: Iterable[object], built: Built) -> Iterator[Sample]:
    """Yield what a series can be made of, and note the rest."""
    for sample in samples:
        fault = fault_of(sample)
        if fault is not None:
            built.left_out.append(fault)
            _count(built, DropReason.BAD_SAMPLE, 1)
        elif isinstance(sample, Sample):
            yield sample


def _count(built: Built, reason: DropReason, points: int) -> None:
    built.dropped[reason] = built.dropped.get(reason, 0) + points


def fit(
    batch: MetricsBatch, compressed_bytes_max: int, next_number: Callable[[], int]
) -> list[MetricsBatch]:
    """Split a batch until each part fits or holds a single point. Order is kept."""
    waiting, parts = [batch], []
    while waiting:
        head = waiting.pop()
        halves = [head] if _fits(head, compressed_bytes_max) else split(head, next_number)
        if len(halves) == 1:
            parts.append(head)
        else:
            waiting.extend(reversed(halves))
    return parts


def _fits(batch: MetricsBatch, compressed_bytes_max: int) -> bool:
    plain_bytes = batch.ByteSize()
    if count_points(batch) > limits.MAX_POINTS_PER_BATCH or plain_bytes > limits.MAX_PLAIN_BYTES:
        return False
    # A plain body under the limit never grows past it by more than gzip's frame.
    if plain_bytes <= compressed_bytes_max // 2:
        return True
    return len(compress(batch.SerializeToString())) <= compressed_bytes_max


def _chunks(samples: Iterable[Sample], size: int) -> Iterator[Sequence[Sample]]:
    source = iter(samples)
    # The first chunk is built even when it is empty: it is the heartbeat.
    chunk = list(islice(source, size))
    yield chunk
    while chunk := list(islice(source, size)):
        yield chunk


def _to_batch(
    samples: Sequence[Sample],
    collected_at_ms: int,
    labels: Mapping[str, str],
    stats: AgentStats,
    seq: int,
) -> MetricsBatch:
    batch = MetricsBatch(seq=seq, collected_at_ms=collected_at_ms, stats=stats)
    for sample in samples:
        series = batch.series.add(name=_text(sample.name))
        for name, value in with_common(sample, labels):
            series.labels.add(name=_text(name), value=_text(value))
        series.points.add(ts_ms=collected_at_ms, value=sample.value)
    return batch


def _text(text: str) -> str:
    # A lone surrogate cannot be sent and would cost the whole batch; the rest of the text is kept.
    return text.encode("utf-8", "replace").decode("utf-8")


def _without_refused(batch: MetricsBatch, collected_at_ms: int, built: Built) -> MetricsBatch:
    """Take out the series that a collector would refuse, and note them."""
    rejected = validate(batch, now_ms=collected_at_ms).rejected
    for fault in rejected:
        if fault.code == NOT_FINITE:
            _count(built, DropReason.NOT_FINITE, fault.points)
        else:
            _count(built, DropReason.BAD_SAMPLE, fault.points)
            built.left_out.append(refused(batch.series[fault.index].name, fault.code))
    for index in sorted({fault.index for fault in rejected}, reverse=True):
        del batch.series[index]
    return batch
