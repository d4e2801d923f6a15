"""The order of the queue over the segments.

Records stand in the order of their ids, but for replacements, which stand where the replaced one
stood. So each record has a place, a tuple: `(id,)` for most, and the place of the replaced one
with its own id behind it for a replacement. Tuples compare as the queue is ordered.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ahwal.wal._journal import Put
from ahwal.wal._record import HEADER_BYTES, UNIX_MS_MAX
from ahwal.wal._segment import Segment

Place = tuple[int, ...]
# Ids of replacements that failed, of which so many are remembered.
_VOID_IDS_MAX = 4096


class Spot(NamedTuple):
    """One record in one segment. Made anew for each look, so it is as cheap as can be."""

    segment: Segment
    position: int

    @property
    def id(self) -> int:
        """The record's id."""
        return self.segment.record_id(self.position)

    @property
    def unix_ms(self) -> int:
        """When it was appended."""
        return self.segment.unix_ms(self.position)


class Index:
    """All records of all segments, their order, and what is done.

    Attributes:
        live: How many records are not done.
        dead: The segments in which none is live.
        segment_bytes: The size of all segments.
    """

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._first_ids: list[int] = []
        # Kept, because thousands of segments may hold no record at all.
        self._largest_id = 0
        self._places: dict[int, Place] = {}
        # The places of replacements that are not done, in order. They are few.
        self._placed: list[Place] = []
        self._puts: list[Put] = []
        self._void: deque[int] = deque(maxlen=_VOID_IDS_MAX)
        self.live = 0
        self.dead: set[Segment] = set()
        self.segment_bytes = 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return tuple(self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    @property
    def last_segment(self) -> Segment | None:
        """The segment that was begun last."""
        return self._segments[-1] if self._segments else None

    @property
    def largest_id(self) -> int:
        """The largest id of a record that is present; 0 when there is none."""
        return self._largest_id

    def add_segment(self, segment: Segment) -> None:
        """Take up a segment whose ids are larger than all before."""
        # The name of a segment without records may be damage's or a stranger's, and says nothing.
        first_id = segment.record_id(0) if len(segment) else self.largest_id + 1
        self._largest_id = max(self._largest_id, segment.last_id)
        self._segments.append(segment)
        self._first_ids.append(first_id)
        self.live += segment.live
        self.segment_bytes += segment.size_bytes
        if not segment.live:
            self.dead.add(segment)

    def drop_segment(self, segment: Segment) -> None:
        """Forget a segment whose file is gone, with all records in it."""
        for record_id in segment.live_ids():
            self.mark_done(record_id)
        at = self._segments.index(segment)
        del self._segments[at], self._first_ids[at]
        self.dead.discard(segment)
        self.segment_bytes -= segment.size_bytes
        if len(segment) and segment.last_id == self._largest_id:
            self._largest_id = next((s.last_id for s in reversed(self._segments) if len(s)), 0)

    def forget_name(self, name: str) -> None:
        """Forget the segment of this name, if there is one."""
        for segment in self.segments:
            if segment.name == name:
                self.drop_segment(segment)

    def add(self, segment: Segment, record_id: int, payload_bytes: int, unix_ms: int) -> None:
        """A whole record was added to the end of the last segment."""
        segment.add(record_id, segment.size_bytes, payload_bytes, unix_ms)
        self._largest_id = record_id
        size_bytes = HEADER_BYTES + payload_bytes
        segment.size_bytes += size_bytes
        self.segment_bytes += size_bytes
        self.dead.discard(segment)
        self.live += 1

    def find(self, record_id: int) -> Spot | None:
        """Where a record is that is not done; None when it is done or unknown."""
        spot = self.find_any(record_id)
        return None if spot is None or spot.segment.is_done(spot.position) else spot

    def find_any(self, record_id: int) -> Spot | None:
        """Where a record is, done or not."""
        at = bisect_right(self._first_ids, record_id) - 1
        while at >= 0 and not len(self._segments[at]):
            at -= 1
        position = self._segments[at].position(record_id) if at >= 0 else None
        return None if position is None else Spot(self._segments[at], position)

    def mark_done(self, record_id: int) -> bool:
        """A record is done; False when it was already, or is unknown."""
        spot = self.find(record_id)
        if spot is None:
            return False
        spot.segment.mark_done(spot.position)
        self.live -= 1
        if not spot.segment.live:
            self.dead.add(spot.segment)
        place = self._places.get(record_id)
        if place is not None:
            del self._placed[bisect_left(self._placed, place)]
        return True

    def put(self, put: Put) -> None:
        """Records take the place of another, which is done by this."""
        self.mark_done(put.old)
        base = self._places.get(put.old, (put.old,))
        for record_id in put.new:
            if record_id in self._places:
                continue  # a journal that contradicts itself: the first line counts
            self._places[record_id] = place = (*base, record_id)
            if self.find(record_id) is not None:
                insort(self._placed, place)
        self._puts.append(put)

    def void(self, record_ids: Iterable[int]) -> None:
        """A replacement failed: should a power cut show some of its records, they are done."""
        self._void.extend(record_ids)

    def in_order(self) -> Iterator[Spot]:
        """The records that are not done, as the queue is ordered; the index must not change."""
        if not self._placed:
            yield from self._by_id()
            return
        plain = (((spot.id,), spot) for spot in self._by_id() if spot.id not in self._places)
        placed = ((place, self._spot(place[-1])) for place in self._placed)
        for _, spot in heapq.merge(plain, placed, key=lambda pair: pair[0]):
            yield spot

    def first(self) -> Spot | None:
        """The first record of the queue."""
        if self._placed:
            return next(self.in_order(), None)
        # Asked with every append and read, so without the generators.
        for segment in self._segments:
            position = segment.next_live()
            if position is not None:
                return Spot(segment, position)
        return None

    def newest(self) -> Spot | None:
        """The record with the largest id among those that are not done."""
        for segment in reversed(self._segments):
            position = segment.last_live()
            if position is not None:
                return Spot(segment, position)
        return None

    def newest_unix_ms(self, up_to_ms: int = UNIX_MS_MAX) -> int | None:
        """The largest time of a record, done or not, that is not above a limit."""
        newest = (segment.newest_unix_ms(up_to_ms) for segment in self._segments)
        return max((unix_ms for unix_ms in newest if unix_ms is not None), default=None)

    def watermark(self, next_id: int) -> int:
        """The largest id up to which everything is done.

        Never beyond the largest record present while there is one: such a checkpoint would not be
        believed.
        """
        oldest = next(self._by_id(), None)
        if oldest is not None:
            return oldest.id - 1
        return self.largest_id or next_id - 1

    def journal_lines(self, watermark: int) -> tuple[list[int], list[Put]]:
        """The acknowledgements and replacements that a checkpoint at `watermark` does not say."""
        self._forget_finished_puts()
        acks = {
            record_id
            for segment in self._segments
            if segment.last_id > watermark
            for record_id in segment.done_ids()
        }
        # A replacement holds while what it names is valid or done, so what is done must stay so,
        # even where its segment is gone.
        for put in self._puts:
            acks.update(new for new in put.new if self.find(new) is None)
        acks.update(self._void)
        return sorted(record_id for record_id in acks if record_id > watermark), list(self._puts)

    def _forget_finished_puts(self) -> None:
        kept: list[Put] = []
        replaced: set[int] = set()
        for put in reversed(self._puts):
            # A replacement that was replaced in its turn still gives its successors their place.
            if any(new in replaced or self.find(new) is not None for new in put.new):
                kept.append(put)
                replaced.add(put.old)
            else:
                for new in put.new:
                    self._places.pop(new, None)
        self._puts = kept[::-1]

    def _by_id(self) -> Iterator[Spot]:
        for segment in self._segments:
            position = segment.next_live()
            while position is not None:
                yield Spot(segment, position)
                position = segment.next_live(position + 1)

    def _spot(self, record_id: int) -> Spot:
        spot = self.find(record_id)
        assert spot is not None
        return spot
