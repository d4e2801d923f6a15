"""The sender's books: every point that was produced is delivered, dropped for a reason, or queued.

Law of this file, true after each call:

    produced + inherited == delivered + sum(dropped.values()) + queued

`inherited` are points of batches that an earlier process left in the queue; they are counted when
they are first read, because reading the whole queue at the start would cost its size in memory.

The queue evicts by age and size on its own. The books notice: they hold the order of the batches,
so that a batch ahead of the queue's oldest one must have been evicted. Its points go to `evicted`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import frozen


class DropReason(StrEnum):
    """Why points will never be delivered."""

    BAD_REQUEST = "bad_request"
    INVALID_SERIES = "invalid_series"
    REFUSED = "refused"  # a part of a batch that was otherwise accepted
    TOO_LARGE = "too_large"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    TOO_OLD = "too_old"
    EVICTED = "evicted"  # by the queue, for age or size, or found corrupt in it
    UNREADABLE = "unreadable"
    QUARANTINED = "quarantined"
    NOT_FINITE = "not_finite"
    BAD_SAMPLE = "bad_sample"  # a name or label that the protocol cannot carry
    NO_ROOM = "no_room"  # neither the disk nor the memory queue took it


@frozen(kw_only=True)
class Key:
    """A batch in one of the two queues: on disk, or in memory while the disk fails."""

    durable: bool
    id: int


class Books:
    """Counts points and keeps the order of the batches that hold them. Not thread-safe."""

    def __init__(self) -> None:
        self.produced = 0
        self.inherited = 0
        self.delivered = 0
        self.queued = 0
        self.dropped: dict[DropReason, int] = dict.fromkeys(DropReason, 0)
        # One ordered lane a queue: batch id to its points, oldest first.
        self._lanes: dict[bool, dict[int, int]] = {True: {}, False: {}}

    @property
    def dropped_total(self) -> int:
        """Points dropped for any reason."""
        return sum(self.dropped.values())

    @property
    def balanced(self) -> bool:
        """Whether the law of this file holds."""
        return self.produced + self.inherited == self.delivered + self.dropped_total + self.queued

    def refuse(self, reason: DropReason, points: int) -> None:
        """Count points that never reached a queue as produced and dropped."""
        self.produced += points
        self.dropped[reason] += points

    def appended(self, key: Key, points: int) -> None:
        """Count a new batch at the end of its queue."""
        self.produced += points
        self.queued += points
        self._lanes[key.durable][key.id] = points

    def moved(self, old: Key, new: Key) -> None:
        """Follow a batch from one queue to the end of the other."""
        self._lanes[new.durable][new.id] = self._lanes[old.durable].pop(old.id, 0)

    def seen(self, *, durable: bool, batches: Sequence[tuple[int, int]]) -> None:
        """Compare with what was just read from the head of a queue.

        Args:
            durable: Which queue.
            batches: Ids and points, oldest first and without a gap; nothing when the queue is
                empty.
        """
        lane = self._lanes[durable]
        known = [batch_id for batch_id, _ in batches if batch_id in lane]
        following = dict(lane)
        if known or not batches:
            # All that stood ahead of the last known one, and was not read, is gone.
            last = known[-1] if known else None
            for batch_id in list(following):
                del following[batch_id]
                if batch_id == last:
                    break
        head: dict[int, int] = {}
        for batch_id, points in batches:
            if batch_id not in lane:
                self.inherited += points
                self.queued += points
            head[batch_id] = lane.get(batch_id, points)
        evicted = sum(lane.values()) - sum(
            points for batch_id, points in (head | following).items() if batch_id in lane
        )
        self.dropped[DropReason.EVICTED] += evicted
        self.queued -= evicted
        self._lanes[durable] = head | following

    def settle(self, keys: Iterable[Key], losses: Mapping[DropReason, int]) -> None:
        """Take batches out as delivered, all but `losses`, the points lost of them by reason."""
        points = sum(self._take(key) for key in keys)
        lost = 0
        for reason, count in losses.items():
            # A server may claim to have dropped more than it was sent; the books stay balanced.
            part = min(count, points - lost)
            self.dropped[reason] += part
            lost += part
        self.delivered += points - lost

    def drop(self, key: Key, reason: DropReason) -> None:
        """Take a batch out as lost."""
        self.dropped[reason] += self._take(key)

    def replaced(self, key: Key, parts: Sequence[tuple[int, int]], reason: DropReason) -> None:
        """Put parts, as ids and points, in the place of a batch; what is missing was lost."""
        lane = self._lanes[key.durable]
        before = lane.get(key.id, 0)
        rebuilt: dict[int, int] = {}
        for batch_id, points in lane.items():
            if batch_id == key.id:
                rebuilt.update(parts)
            else:
                rebuilt[batch_id] = points
        self._lanes[key.durable] = rebuilt
        lost = before - sum(points for _, points in parts)
        self.dropped[reason] += lost
        self.queued -= lost

    def _take(self, key: Key) -> int:
        points = self._lanes[key.durable].pop(key.id, 0)
        self.queued -= points
        return points
