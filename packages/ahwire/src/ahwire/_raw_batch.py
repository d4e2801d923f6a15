"""A batch's body cut where its series end, unread. Public as names of `ahwire.batch`.

To parse a batch makes an object of each series, label and point, and a door that knows a series
again by its bytes needs none of them. So a body is cut into the bytes of each series and the rest,
which a parser then reads as a batch without series.

A message is a row of fields, and a parser may be given the fields of a row in two heaps, as long as
each heap keeps its order: what the rest says is what the whole said but for the series. Bodies that
are written in an unusual way (numbers with more bytes than they need, groups) are not cut at all.
"""

import attrs

from ahwire.agent_pb2 import MetricsBatch, Series

_SERIES_TAG = MetricsBatch.SERIES_FIELD_NUMBER << 3 | 2
_TAG_MIN = 1 << 3
_CONTINUES = 0x80
_VARINT_BYTES_MAX = 10
# A batch has four fields beside its series. Each that is kept apart costs more than its bytes.
_OTHERS_MAX = 1_000
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class _UnusualError(Exception):
    """The bytes are not written as a serializer writes them, or are cut; never leaves here."""


@attrs.frozen(kw_only=True)
class RawBatch:
    """A batch whose series are still bytes.

    Attributes:
        head: the batch without its series.
        series: the serialized form of each series, as sent; it may be no readable series.
    """

    head: MetricsBatch
    series: tuple[bytes, ...]

    def whole(self) -> MetricsBatch:
        """The batch with its series.

        Raises:
            google.protobuf.message.DecodeError: the bytes of a series are none.
        """
        batch = MetricsBatch()
        batch.CopyFrom(self.head)
        batch.series.extend(Series.FromString(raw) for raw in self.series)
        return batch


def take_apart(body: bytes, *, series_max: int) -> RawBatch | None:
    """The body of a MetricsBatch, cut where its series end.

    Args:
        body: any bytes.
        series_max: a body of more series is not cut.

    Returns:
        None when it cannot be cut: it has more series, a thousand other fields, is written in an
        unusual way, or is no readable batch. The whole parser then tells which.

    Raises:
        google.protobuf.message.DecodeError: what is not series cannot be read.
    """
    series: list[bytes] = []
    rest: list[bytes] = []
    at, size = 0, len(body)
    try:
        while at < size:
            tag = body[at]
            if tag == _SERIES_TAG:
                length, start = body[at + 1], at + 2
                if length >= _CONTINUES:
                    length, start = _length(body, at + 1)
                at = start + length
                series.append(body[start:at])
            else:
                start, at = at, _end_of_field(body, at)
                rest.append(body[start:at])
                if len(rest) > _OTHERS_MAX:
                    return None
            if at > size or len(series) > series_max:
                return None
    except (_UnusualError, IndexError):
        return None
    return RawBatch(head=MetricsBatch.FromString(b"".join(rest)), series=tuple(series))


def _length(body: bytes, at: int) -> tuple[int, int]:
    """A length of at most three bytes, and where it ends: a longer one does not fit a body."""
    first = body[at]
    if first < _CONTINUES:
        return first, at + 1
    second = body[at + 1]
    if second < _CONTINUES:
        return first & 0x7F | second << 7, at + 2
    third = body[at + 2]
    if third >= _CONTINUES:
        raise _UnusualError
    return first & 0x7F | (second & 0x7F) << 7 | third << 14, at + 3


def _end_of_field(body: bytes, at: int) -> int:
    """Where a field that is no series ends."""
    tag = body[at]
    if not _TAG_MIN <= tag < _CONTINUES:
        raise _UnusualError
    kind = tag & 7
    at += 1
    if kind == _VARINT:
        end = at + _VARINT_BYTES_MAX
        while body[at] >= _CONTINUES:
            at += 1
            if at == end:
                raise _UnusualError
        return at + 1
    if kind == _LENGTH:
        length, start = _length(body, at)
        return start + length
    if kind == _EIGHT_BYTES:
        return at + 8
    if kind == _FOUR_BYTES:
        return at + 4
    raise _UnusualError
