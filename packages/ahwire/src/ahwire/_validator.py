"""Judging with a memory. Public as `ahwire.batch.Validator`.

Nearly every series that comes to a door came before, with another time and value. To look at each
label again costs several times what the parsing of the batch did. So a validator keeps, for each
series whose name and labels were clean, the bytes of these and what they came to. Of a batch that
was cut (`take_apart`) such a series is not even parsed.

**Why a series may be known by its bytes.** A message is a row of fields, read from the left. A key
is the serialized form of a series that has a name and labels and nothing else, so it ends where a
field ends. When a series serializes to a key and behind it nothing but whole points, reading it
can find only that name, those labels and those points: two different series never meet in one key,
whoever made their bytes, and whether a parser wrote them again or not. What does not have this form
(foreign fields, fields in another order, odd times) is judged the long way, as is everything that
is not clean.

**Why a point may be read from its bytes.** A point of our time is 18 bytes, or 9 when its value is
zero, which protobuf leaves out:

```
0x1a length  0x08 time as a varint of 6 bytes  [0x11 value as a little-endian double]
```

The varint has 6 bytes from 2**35 to 2**42 - 1 ms, which is from 1971 to 2109.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable
from struct import Struct
from sys import getsizeof

import attrs
from google.protobuf.message import DecodeError

from ahwire._judging import (
    CleanSeries,
    Judge,
    Judged,
    Points,
    SeriesKey,
    Validated,
)
from ahwire._raw_batch import RawBatch
from ahwire.agent_pb2 import MetricsBatch, Series
from ahwire.errors import BadBodyError
from ahwire.limits import DEFAULT, Limits

_POINT = Struct("<10sd")  # head, time and tag of the value; value
_HEAD = b"\x1a\x10\x08"
_VALUE_TAG = 0x11
_ZERO_HEAD = b"\x1a\x07\x08"
_ZERO_POINT_BYTES = 9
_HEAD_BYTES = len(_HEAD)
_STAMP_END = _HEAD_BYTES + 6
_CONTINUES = 0x80
# Longer ones are judged the long way: few are honest, and what is known stays small.
_KEY_BYTES_MAX = 4 << 10
# Of series that are not known, some tens of milliseconds' worth.
_BYTES_AT_ONCE = 32 << 10
# What an entry costs beside its texts, which are held twice: as the key, and apart. Its objects, in
# the multiples of 16 in which memory is given, and a place in a dict that has just grown.
_ENTRY_BYTES = 360
_LABEL_BYTES = 88
# What part of each half one owner may fill.
_OWNER_SHARE = 4


class Validator:
    """`validate` for many batches: equal results, at a fraction of the work for known series.

    What is known is bounded in entries and in bytes. It is kept in two halves: when the newer is
    full it becomes the older, and what was not asked for since is forgotten. Who sends ever new
    series can so make it forget, and never grow. Of those who name themselves nobody gets more than
    a quarter of it, so that none can make it forget what others send. Not for use from several
    threads at once.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT,
        known_series_max: int = 200_000,
        known_bytes_max: int = 128 << 20,
    ) -> None:
        """Begin with nothing known.

        Args:
            limits: what batches are held to.
            known_series_max: how many series are kept; 0 keeps none.
            known_bytes_max: how much memory they may take.
        """
        self._limits = limits
        self._half_series = known_series_max // 2
        self._half_bytes = known_bytes_max // 2
        self._newer: dict[bytes, SeriesKey] = {}
        self._older: dict[bytes, SeriesKey] = {}
        self._newer_bytes = 0
        self._owned_bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many series are kept; one that is in both halves counts twice."""
        return len(self._newer) + len(self._older)

    def validate(self, batch: MetricsBatch, *, now_ms: int) -> Validated:
        """Judges a batch; arguments, result and errors are those of `ahwire.batch.validate`."""
        judged = self.judge(batch, now_ms=now_ms)
        return Validated(
            series=tuple(
                CleanSeries(index=index, name=key.name, labels=key.labels, points=points)
                for index, key, points in zip(
                    judged.indexes, judged.keys, judged.points, strict=True
                )
            ),
            rejected=judged.rejected,
            accepted_points=judged.accepted_points,
            dropped_points=judged.dropped_points,
            warnings=judged.warnings,
        )

    def judge(self, batch: MetricsBatch | RawBatch, *, now_ms: int) -> Judged:
        """Judges a batch, whole or cut, as `ahwire.batch.validate` does.

        Raises:
            TooLargeError: as of `ahwire.batch.validate`.
            BadBodyError: a series of a batch that was cut cannot be read.
        """
        steps = self.judging(batch, now_ms=now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                judged: Judged = end.value
                return judged

    def judging(
        self,
        batch: MetricsBatch | RawBatch,
        *,
        now_ms: int,
        owner: str = "",
        remember: bool = True,
    ) -> Generator[None, None, Judged]:
        """As `judge`, for who has other work: yields now and then, and returns what `judge` does.

        Args:
            batch: whole or cut.
            now_ms: the collector's wall clock in Unix milliseconds.
            owner: on whose share of what is kept series are remembered; empty: on nobody's.
            remember: whether new series are known from now on. If not, the result has them in
                `fresh`, for `remember`: who refuses some of them does not fill the memory so.

        A batch of 20,000 new series takes a second. From one yield to the next are at most some
        tens of milliseconds, but for a series that is long itself. In between another batch may be
        judged, and it may be left unfinished.
        """
        try:
            judged = yield from self._judge(batch, now_ms, owner)
        except DecodeError:
            # From None: parsers quote values.
            msg = "a series of the batch cannot be read; check its encoding"
            raise BadBodyError(msg) from None
        if not remember:
            return judged
        self.remember(judged, owner=owner)
        return attrs.evolve(judged, fresh=())

    def remember(self, judged: Judged, *, without: Collection[int] = (), owner: str = "") -> None:
        """Know the new series of a batch from now on.

        Args:
            judged: what `judging` returned.
            without: places in its rows of series that were refused all the same.
            owner: as of `judging`.
        """
        left_out = set(without)
        for place, raw_key in judged.fresh:
            if place not in left_out:
                self._remember(raw_key, judged.keys[place], owner)

    def _judge(
        self, batch: MetricsBatch | RawBatch, now_ms: int, owner: str
    ) -> Generator[None, None, Judged]:
        raws, parsed, whole = _sources(batch)
        judge = Judge(len(batch.series), now_ms, self._limits, whole=whole)
        reader = _PointReader(judge.oldest_ms, judge.newest_ms)
        newer = self._newer.get
        stamps, unpack, one_point_bytes = reader.stamps, _POINT.unpack_from, _POINT.size
        indexes: list[int] = []
        keys: list[SeriesKey] = []
        rows: list[Points] = []
        fresh: list[tuple[int, bytes]] = []
        single_labels = singles = looked_at_bytes = 0
        for index, raw in enumerate(raws):
            # By far the most series are known and have one point, so this is all there is to do.
            start = len(raw) - one_point_bytes
            if start > 0:
                stamp, value = unpack(raw, start)
                ts_ms = stamps.get(stamp)
                if ts_ms is not None and value - value == 0:
                    key = newer(raw[:start])
                    if key is not None:
                        indexes.append(index)
                        keys.append(key)
                        rows.append(((ts_ms, value),))
                        single_labels += len(key.labels)
                        singles += 1
                        continue
            found = self._known(raw, reader, owner)
            if found is not None:
                judge.spend(len(found[1]), len(found[0].labels))
            else:
                series = parsed(index)
                seen = judge.see(index, series)
                if seen is not None:
                    found = SeriesKey.of(seen.name, seen.labels), seen.points
                    raw_key = _key_of(series) if seen.lasting else b""
                    if 0 < len(raw_key) <= _KEY_BYTES_MAX:
                        fresh.append((len(keys), raw_key))
                looked_at_bytes += len(raw)
                if looked_at_bytes > _BYTES_AT_ONCE:
                    looked_at_bytes = 0
                    yield
            if found is not None:
                indexes.append(index)
                keys.append(found[0])
                rows.append(found[1])
            newer = self._newer.get
        judge.spend(singles, single_labels)
        return Judged(
            indexes=indexes,
            keys=keys,
            points=rows,
            rejected=judge.rejected,
            accepted_points=sum(map(len, rows)),
            dropped_points=judge.dropped_points(),
            warnings=judge.warnings(),
            fresh=fresh,
        )

    def _known(
        self, raw: bytes, reader: "_PointReader", owner: str
    ) -> tuple[SeriesKey, Points] | None:
        """What a series comes to when it is known and its points are plain and good."""
        start, points = reader.last(raw, len(raw))
        if not points:
            return None
        key = self._find(raw[:start], owner)
        if key is None:
            start, points = reader.all(raw, self._limits.points_per_batch)
            key = self._find(raw[:start], owner)
        return None if key is None else (key, points)

    def _find(self, raw_key: bytes, owner: str) -> SeriesKey | None:
        """What the bytes of a name and labels came to; the newer half knows it from now on."""
        known = self._newer.get(raw_key)
        if known is None:
            known = self._older.get(raw_key)
            if known is not None:
                self._remember(raw_key, known, owner)
        return known

    def _remember(self, raw_key: bytes, key: SeriesKey, owner: str) -> None:
        if raw_key in self._newer:
            return
        cost = _cost_bytes(raw_key, key)
        if cost > self._half_bytes or not self._half_series:
            return
        full = len(self._newer) >= self._half_series
        if owner and self._owned_bytes[owner] + cost > self._half_bytes // _OWNER_SHARE:
            # It is judged the long way; to forget for it would be at the cost of others.
            return
        if full or self._newer_bytes + cost > self._half_bytes:
            self._older, self._newer, self._newer_bytes = self._newer, {}, 0
            self._owned_bytes.clear()
        self._newer[raw_key] = key
        self._newer_bytes += cost
        if owner:
            self._owned_bytes[owner] += cost


def _cost_bytes(raw_key: bytes, key: SeriesKey) -> int:
    """How much memory an entry takes.

    One letter of another script makes all letters of a text as wide as it is, and those who write
    the text later make Python keep its bytes beside it.
    """
    texts = getsizeof(key.name) + sum(getsizeof(text) for pair in key.labels for text in pair)
    written = 0 if all(text.isascii() for _, text in key.labels) else len(raw_key)
    return _ENTRY_BYTES + getsizeof(raw_key) + texts + written + _LABEL_BYTES * len(key.labels)


def _sources(
    batch: MetricsBatch | RawBatch,
) -> tuple[Iterable[bytes], Callable[[int], Series], Callable[[], MetricsBatch]]:
    """The bytes of each series, what gives a parsed one, and what gives the whole batch."""
    if isinstance(batch, RawBatch):
        raws = batch.series
        return raws, lambda index: Series.FromString(raws[index]), batch.whole
    parsed = batch.series
    return (
        (series.SerializeToString() for series in parsed),
        lambda index: parsed[index],
        lambda: batch,
    )


class _PointReader:
    """Reads points from the end of a serialized series: plain and good ones, or none.

    Attributes:
        stamps: time by the bytes from the head to the tag of the value, of what was plain and good.
    """

    def __init__(self, oldest_ms: int, newest_ms: int) -> None:
        self._oldest_ms = oldest_ms
        self._newest_ms = newest_ms
        # The points of a batch share a few times; each is decoded once.
        self.stamps: dict[bytes, int] = {}
        self._zero_stamps: dict[bytes, int] = {}

    def last(self, raw: bytes, end: int) -> tuple[int, Points]:
        """Where the last point before `end` begins, and the point, if it is plain and good."""
        if end > _POINT.size:
            stamp, value = _POINT.unpack_from(raw, end - _POINT.size)
            if value - value == 0:
                ts_ms = self.stamps.get(stamp) or self._time_of(stamp)
                if ts_ms is not None:
                    return end - _POINT.size, ((ts_ms, value),)
        if end > _ZERO_POINT_BYTES:
            stamp = raw[end - _ZERO_POINT_BYTES : end]
            ts_ms = self._zero_stamps.get(stamp) or self._zero_time_of(stamp)
            if ts_ms is not None:
                return end - _ZERO_POINT_BYTES, ((ts_ms, 0.0),)
        return end, ()

    def all(self, raw: bytes, points_max: int) -> tuple[int, Points]:
        """Where the points begin, and the points, as far back as they are plain and good."""
        points: list[tuple[int, float]] = []
        start, found = self.last(raw, len(raw))
        while found and len(points) <= points_max:
            points += found
            start, found = self.last(raw, start)
        return start, tuple(reversed(points))

    def _time_of(self, stamp: bytes) -> int | None:
        if not stamp.startswith(_HEAD) or stamp[_STAMP_END] != _VALUE_TAG:
            return None
        ts_ms = self._decode(stamp[_HEAD_BYTES:_STAMP_END])
        if ts_ms is not None:
            self.stamps[stamp] = ts_ms
        return ts_ms

    def _zero_time_of(self, stamp: bytes) -> int | None:
        if not stamp.startswith(_ZERO_HEAD):
            return None
        ts_ms = self._decode(stamp[_HEAD_BYTES:])
        if ts_ms is not None:
            self._zero_stamps[stamp] = ts_ms
        return ts_ms

    def _decode(self, varint: bytes) -> int | None:
        """The time, when the bytes are exactly one varint and the time is inside the window."""
        *others, last = varint
        if last >= _CONTINUES or min(others) < _CONTINUES:
            return None
        ts_ms = sum((byte & ~_CONTINUES) << (7 * place) for place, byte in enumerate(varint))
        return ts_ms if self._oldest_ms <= ts_ms <= self._newest_ms else None


def _key_of(series: Series) -> bytes:
    return Series(name=series.name, labels=series.labels).SerializeToString()
