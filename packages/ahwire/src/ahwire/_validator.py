"""Judging with a memory. Public as `ahwire.batch.Validator`.

Nearly every series that comes to a door came before, with another time and value. To look at each
label again costs several times what the parsing of the batch did. So a validator keeps, for each
series whose name and labels were clean, the bytes of these and what they came to.

**Why a series may be known by its bytes.** A message is a row of fields, read from the left. A key
is the serialized form of a series that has a name and labels and nothing else, so it ends where a
field ends. When a series serializes to a key and behind it nothing but whole points, reading it
can find only that name, those labels and those points: two different series never meet in one key,
whoever made their bytes. What does not have this form (foreign fields, odd times) is judged the
long way, as is everything that is not clean.

**Why a point may be read from its bytes.** A point of our time is 18 bytes, or 9 when its value is
zero, which protobuf leaves out:

```
0x1a length  0x08 time as a varint of 6 bytes  [0x11 value as a little-endian double]
```

The varint has 6 bytes from 2**35 to 2**42 - 1 ms, which is from 1971 to 2109.
"""

from struct import Struct

from ahwire._judging import CleanSeries, Judge, Validated
from ahwire.agent_pb2 import MetricsBatch, Series
from ahwire.limits import DEFAULT, Limits

_Known = tuple[str, tuple[tuple[str, str], ...]]
_Points = tuple[tuple[int, float], ...]

_POINT = Struct("<3s6sBd")  # head, time, tag of the value, value
_HEAD = b"\x1a\x10\x08"
_VALUE_TAG = 0x11
_ZERO_POINT = Struct("<3s6s")
_ZERO_HEAD = b"\x1a\x07\x08"
_CONTINUES = 0x80
# Longer ones are judged the long way: few are honest, and what is known stays small.
_KEY_BYTES_MAX = 4 << 10
# What an entry costs beside its texts, which are held twice: as the key, and apart.
_ENTRY_BYTES = 400
_LABEL_BYTES = 180


class Validator:
    """`validate` for many batches: equal results, at a fraction of the work for known series.

    What is known is bounded in entries and in bytes. It is kept in two halves: when the newer is
    full it becomes the older, and what was not asked for since is forgotten. Who sends ever new
    series can so make it forget, and never grow. Not for use from several threads at once.
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
            known_bytes_max: about how much memory they may take.
        """
        self._limits = limits
        self._half_series = known_series_max // 2
        self._half_bytes = known_bytes_max // 2
        self._newer: dict[bytes, _Known] = {}
        self._older: dict[bytes, _Known] = {}
        self._newer_bytes = 0

    def __len__(self) -> int:
        """How many series are kept; one that is in both halves counts twice."""
        return len(self._newer) + len(self._older)

    def validate(self, batch: MetricsBatch, *, now_ms: int) -> Validated:
        """Judges a batch; arguments, result and errors are those of `ahwire.batch.validate`."""
        judge = Judge(batch, now_ms, self._limits)
        reader = _PointReader(judge.oldest_ms, judge.newest_ms)
        for index, series in enumerate(batch.series):
            raw = series.SerializeToString()
            start, points = reader.last(raw, len(raw))
            known = self._find(raw[:start])
            if known is None and points:
                start, points = reader.all(raw, self._limits.points_per_batch)
                known = self._find(raw[:start])
            if known is not None and points:
                judge.accept(
                    CleanSeries(index=index, name=known[0], labels=known[1], points=points)
                )
                continue
            clean = judge.see(index, series)
            if clean is not None:
                self._keep(_key_of(series), clean)
        return judge.result()

    def _find(self, key: bytes) -> _Known | None:
        """What the bytes of a name and labels came to; the newer half knows it from now on."""
        known = self._newer.get(key)
        if known is None:
            known = self._older.get(key)
            if known is not None:
                self._remember(key, known)
        return known

    def _keep(self, key: bytes, clean: CleanSeries) -> None:
        if len(key) <= _KEY_BYTES_MAX:
            self._remember(key, (clean.name, clean.labels))

    def _remember(self, key: bytes, known: _Known) -> None:
        cost = _ENTRY_BYTES + 2 * len(key) + _LABEL_BYTES * len(known[1])
        if cost > self._half_bytes or not self._half_series:
            return
        full = len(self._newer) >= self._half_series
        if full or self._newer_bytes + cost > self._half_bytes:
            self._older, self._newer, self._newer_bytes = self._newer, {}, 0
        self._newer[key] = known
        self._newer_bytes += cost


class _PointReader:
    """Reads points from the end of a serialized series: plain and good ones, or none."""

    def __init__(self, oldest_ms: int, newest_ms: int) -> None:
        self._oldest_ms = oldest_ms
        self._newest_ms = newest_ms
        # The points of a batch share a few times; each is decoded once.
        self._stamps: dict[bytes, int] = {}

    def last(self, raw: bytes, end: int) -> tuple[int, _Points]:
        """Where the last point before `end` begins, and the point, if it is plain and good."""
        if end > _POINT.size:
            head, stamp, tag, value = _POINT.unpack_from(raw, end - _POINT.size)
            if head == _HEAD and tag == _VALUE_TAG and value - value == 0:
                ts_ms = self._stamps.get(stamp) or self._decode(stamp)
                if ts_ms is not None:
                    return end - _POINT.size, ((ts_ms, value),)
        if end > _ZERO_POINT.size:
            head, stamp = _ZERO_POINT.unpack_from(raw, end - _ZERO_POINT.size)
            if head == _ZERO_HEAD:
                ts_ms = self._stamps.get(stamp) or self._decode(stamp)
                if ts_ms is not None:
                    return end - _ZERO_POINT.size, ((ts_ms, 0.0),)
        return end, ()

    def all(self, raw: bytes, points_max: int) -> tuple[int, _Points]:
        """Where the points begin, and the points, as far back as they are plain and good."""
        points: list[tuple[int, float]] = []
        start, found = self.last(raw, len(raw))
        while found and len(points) <= points_max:
            points += found
            start, found = self.last(raw, start)
        return start, tuple(reversed(points))

    def _decode(self, stamp: bytes) -> int | None:
        """The time, when the bytes are exactly one varint and the time is inside the window."""
        *others, last = stamp
        if last >= _CONTINUES or min(others) < _CONTINUES:
            return None
        ts_ms = sum((byte & ~_CONTINUES) << (7 * place) for place, byte in enumerate(stamp))
        if not self._oldest_ms <= ts_ms <= self._newest_ms:
            return None
        self._stamps[stamp] = ts_ms
        return ts_ms


def _key_of(series: Series) -> bytes:
    return Series(name=series.name, labels=series.labels).SerializeToString()
