"""The sender's books: every point that was produced is delivered, dropped for a reason, or queued.

Law of this file, true after each call:

    produced + inherited == delivered + sum(dropped.values()) + queued

`inherited` are points of batches that an earlier process left in the queue; they are counted when
they are first read, because reading the whole queue at the start would cost its size in memory.

The queue evicts by age and size on its own. The books notice: they hold the order of the batches,
so that a batch ahead of the queue's oldest one must have been evicted. Its points go to `evicted`.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import define, field, frozen


class DropReason(StrEnum):
    """Why points will never be delivered by this agent.

    The collector decided, with its own code: `bad_request`, `invalid_series`, `refused`,
    `too_large`, `unsupported_encoding`. This library did: `bad_sample`, `not_finite` (before the
    queue), `too_old`, `unreadable`, `quarantined` (the batch is kept aside). The queue gave them
    up: `evicted`. `no_room` is for queues that take nothing more; with those of this library it
    stays 0.
    """

    BAD_REQUEST = "bad_request"  # the whole batch could not be read
    INVALID_SERIES = "invalid_series"  # nothing in the batch was acceptable
    REFUSED = "refused"  # a part of a batch that was otherwise accepted
    TOO_LARGE = "too_large"  # a single point over the collector's limit
    UNSUPPORTED_ENCODING = "unsupported_encoding"  # not even gzip
    TOO_OLD = "too_old"  # older than the collector's window
    EVICTED = "evicted"  # by the queue, for age or size, or found corrupt in it
    UNREADABLE = "unreadable"  # an entry of the queue that is no batch
    QUARANTINED = "quarantined"
    NOT_FINITE = "not_finite"
    BAD_SAMPLE = "bad_sample"  # a name or label that the protocol cannot carry
    NO_ROOM = "no_room"  # neither the disk nor the memory queue took it


@frozen(kw_only=True)
class Key:
    """A batch in one of the two queues: on disk, or in memory while the disk fails."""

    durable: bool
    id: int


@frozen(kw_only=True)
class Figures:
    """The books at one moment; the law of this file holds in it."""

    produced: int
    inherited: int
    delivered: int
    queued: int
    dropped: Mapping[DropReason, int]

    @property
    def dropped_total(self) -> int:
        """Points dropped for any reason."""
        return sum(self.dropped.values())


@define
class _Lane:
    """The batches of one queue that are known, oldest first, as id to points.

    Those that an earlier process left stand ahead of all that this one appended.
    """

    points: dict[int, int] = field(factory=dict)
    inherited: set[int] = field(factory=set)

    def take(self, batch_id: int) -> int:
        self.inherited.discard(batch_id)
        return self.points.pop(batch_id, 0)


class Books:
    """Counts points and keeps the order of the batches that hold them.

    Thread-safe, and never waits for anything but its own lock. The caller tells what was read and
    appended in the order in which it happened.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._produced = 0
        self._inherited = 0
        self._delivered = 0
        self._queued = 0
        self._dropped: dict[DropReason, int] = dict.fromkeys(DropReason, 0)
        self._lanes = {True: _Lane(), False: _Lane()}

    def figures(self) -> Figures:
        """Return all counts at this moment."""
        with self._lock:
            return Figures(
                produced=self._produced,
                inherited=self._inherited,
                delivered=self._delivered,
                queued=self._queued,
                dropped=dict(self._dropped),
            )

    def refuse(self, reason: DropReason, points: int) -> None:
        """Count points that never reached a queue as produced and dropped."""
        with self._lock:
            self._produced += points
            self._dropped[reason] += points

    def appended(self, key: Key, points: int) -> None:
        """Count a new batch at the end of its queue."""
        with self._lock:
            self._produced += points
            self._queued += points
            self._lanes[key.durable].points[key.id] = points

    def moved(self, old: Key, new: Key) -> None:
        """Follow a batch from one queue to the end of the other."""
        with self._lock:
            points = self._lanes[old.durable].take(old.id)
            self._lanes[new.durable].points[new.id] = points

    def seen(self, *, durable: bool, batches: Sequence[tuple[int, int]]) -> None:
        """Compare with what was just read from the head of a queue.

        Args:
            durable: Which queue.
            batches: Ids and points, oldest first, without a gap; nothing when the queue is empty.
        """
        with self._lock:
            lane = self._lanes[durable]
            gone = self._ahead_of(lane, [batch_id for batch_id, _ in batches])
            for batch_id in gone:
                points = lane.take(batch_id)
                self._dropped[DropReason.EVICTED] += points
                self._queued -= points
            head: dict[int, int] = {}
            for batch_id, points in batches:
                if batch_id not in lane.points:
                    self._inherited += points
                    self._queued += points
                    lane.inherited.add(batch_id)
                head[batch_id] = lane.points.get(batch_id, points)
            lane.points = head | {b: p for b, p in lane.points.items() if b not in head}

    def settle(self, keys: Iterable[Key], losses: Mapping[DropReason, int]) -> None:
        """Take batches out as delivered, all but `losses`, the points lost of them by reason."""
        with self._lock:
            points = sum(self._take(key) for key in keys)
            lost = 0
            for reason, count in losses.items():
                # A server may claim to have dropped more than it got; the books stay balanced.
                part = min(count, points - lost)
                self._dropped[reason] += part
                lost += part
            self._delivered += points - lost

    def drop(self, key: Key, reason: DropReason) -> None:
        """Take a batch out as lost."""
        with self._lock:
            self._dropped[reason] += self._take(key)

    def replaced(self, key: Key, parts: Sequence[tuple[int, int]], reason: DropReason) -> None:
        """Put parts, as ids and points, in the place of a batch; what is missing was lost."""
        with self._lock:
            lane = self._lanes[key.durable]
            lost = lane.points.get(key.id, 0) - sum(points for _, points in parts)
            if key.id in lane.inherited:
                lane.inherited.update(batch_id for batch_id, _ in parts)
            rebuilt: dict[int, int] = {}
            for batch_id, points in lane.points.items():
                rebuilt.update(parts if batch_id == key.id else [(batch_id, points)])
            lane.points = rebuilt
            lane.inherited.discard(key.id)
            self._dropped[reason] += lost
            self._queued -= lost

    def _take(self, key: Key) -> int:
        points = self._lanes[key.durable].take(key.id)
        self._queued -= points
        return points

    @staticmethod
    def _ahead_of(lane: _Lane, read: Sequence[int]) -> list[int]:
        """Return the known batches that must be gone, judged by what the head of the queue is."""
        if not read:
            return list(lane.points)
        present = set(read)
        # A batch nobody knew was left by an earlier process, and stands behind all known such ones.
        gone = [] if present <= lane.points.keys() else sorted(lane.inherited - present)
        known = [batch_id for batch_id in read if batch_id in lane.points]
        if known:
            for batch_id in lane.points:
                if batch_id == known[-1]:
                    break
                if batch_id not in present and batch_id not in gone:
                    gone.append(batch_id)
        return gone
