"""Bodies: read under a clock and two limits, then understood at a bounded cost.

A body that is within its limits of size can still ask for much: an empty message is two bytes on
the wire, three in JSON, and fifty to a hundred in memory. So what can have more pieces than an
honest body is counted before it is parsed and refused, and what takes long is done beside the event
loop, a few bodies at a time.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import anyio
import anyio.to_thread
import attrs
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from starlette.requests import Request

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._headers import Format, body_format, content_coding, declared_bytes
from ahcollector.ingest._wire_count import PieceCounter
from ahwire import BadBodyError, TooLargeError, UnsupportedEncodingError
from ahwire.agent_pb2 import MetricsBatch, Series
from ahwire.batch import RawBatch, take_apart
from ahwire.codec import Decompressor
from ahwire.limits import Limits
from ahwire.status import Code

__all__ = [
    "JSON_BYTES_AT_ONCE",
    "PROTOBUF_BYTES_AT_ONCE",
    "BodyReader",
    "JsonCount",
    "as_refusals",
    "interval_named",
    "parse",
    "read_body",
    "read_sent",
    "refuse_wide_json",
    "render",
]

JSON_BYTES_AT_ONCE = 16 << 10
"""Smaller bodies of JSON are parsed on the event loop: they take it some milliseconds."""

PROTOBUF_BYTES_AT_ONCE = 256 << 10
"""Larger bodies of other protocols take longer than other requests should wait for."""

_JSON_DEPTH_MAX = 16
_THREADS_MAX = 2
# What a body of JSON may have for each point that may come, more than any that fits has: a series,
# a point, and ten labels.
_JSON_OBJECTS_A_POINT = 12
_JSON_VALUES_A_POINT = 25
# The same as points, for bodies that carry none: some thousands of facts of a machine.
_SMALL_AS_POINTS = 1_000
# A series that is longer than this has its own pieces counted.
_SERIES_BYTES_LOOKED_AT = 256 << 10
# What part of a full batch a body may have in it that is not cut where its series end.
_WHOLE_SHARE = 4

_BATCHES = PieceCounter(MetricsBatch)
_SERIES = PieceCounter(Series)

CountedJson = Callable[[Mapping[str, Any]], int]
"""How many of what a body may have so many of are in an object, those within it not counted."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class JsonCount:
    """What a body of JSON may have only so many of, and is counted before it costs much.

    To parse JSON takes a tenth of the time that it takes to make a message of it.

    Attributes:
        of: Counts in one object.
        most: How many there may be.
        what: What they are.
    """

    of: CountedJson
    most: int
    what: str


class BodyReader:
    """Understands bodies, what takes long beside the event loop.

    Args:
        threads_max: How many bodies are understood beside it at once; others wait for their turn,
            so that what they take of memory is bounded.
    """

    def __init__(self, *, threads_max: int = _THREADS_MAX) -> None:
        self._threads = anyio.CapacityLimiter(threads_max)

    async def aside(self, understand: Callable[[], T], *, slow: bool) -> T:
        """Return what a body means; what is slow is found out in a thread.

        A body takes a bounded time, so that a thread is waited for even by who is cancelled: were
        it left behind, those who send and go away could have any number of them.
        """
        if not slow:
            return understand()
        return await anyio.to_thread.run_sync(understand, limiter=self._threads)

    async def batch(self, body: bytes, form: Format, limits: Limits) -> MetricsBatch | RawBatch:
        """Read a batch, its series only as far as must be: see `ahwire.batch.take_apart`.

        Raises:
            RequestRefusedError: bad_request, or too_large: it has more in it than a full batch.
        """
        if form is Format.JSON:
            refuse_wide_json(body, points_max=limits.points_per_batch)
            count = JsonCount(
                of=_series_and_points_in,
                most=2 * limits.points_per_batch,
                what="series and points in all",
            )
            return await self._parsed(body, MetricsBatch, form, count)
        most = limits.points_per_batch * (1 + limits.labels_per_series + 1)
        await self._count_pieces(body, most)
        raw = _taken_apart(body, limits)
        if raw is None:
            # No encoder writes it so, or it has too many series, and all of it is parsed at once.
            await self._count_pieces(body, most // _WHOLE_SHARE)
            return parse(body, MetricsBatch, form)
        return raw

    async def small(self, body: bytes, message: type[M], form: Format) -> M:
        """Read another message than a batch.

        Raises:
            RequestRefusedError: bad_request, or too_large.
        """
        if form is Format.JSON:
            refuse_wide_json(body, points_max=_SMALL_AS_POINTS)
        return await self._parsed(body, message, form)

    async def _count_pieces(self, body: bytes, pieces_max: int) -> None:
        if _BATCHES.may_hold_over(body, pieces_max):
            count = functools.partial(_BATCHES.count, body, pieces_max=pieces_max)
            with as_refusals():
                await self.aside(count, slow=True)

    async def _parsed(
        self, body: bytes, message: type[M], form: Format, count: JsonCount | None = None
    ) -> M:
        slow = form is Format.JSON and len(body) > JSON_BYTES_AT_ONCE
        read = functools.partial(parse, body, message, form, count=count)
        return await self.aside(read, slow=slow)


def _series_and_points_in(found: Mapping[str, Any]) -> int:
    """Count a series and its points; a label, a point and the batch are none."""
    points = found.get("points")
    if isinstance(points, list):
        return 1 + len(points)
    return int("labels" in found or ("name" in found and "value" not in found))


def _taken_apart(body: bytes, limits: Limits) -> RawBatch | None:
    # What cannot be cut, or cannot be read, is left to the parser of the whole.
    with contextlib.suppress(DecodeError):
        raw = take_apart(body, series_max=limits.points_per_batch)
        if raw is not None and len(body) > _SERIES_BYTES_LOOKED_AT:
            _refuse_wide_series(raw.series, limits)
        return raw
    return None


def _refuse_wide_series(series: Sequence[bytes], limits: Limits) -> None:
    """Refuse a series that has more in it than any that an agent makes, which would take long."""
    if max(map(len, series), default=0) <= _SERIES_BYTES_LOOKED_AT:
        return
    most = limits.points_per_batch + 2 * limits.labels_per_series
    with as_refusals():
        for one in series:
            if len(one) > _SERIES_BYTES_LOOKED_AT:
                _SERIES.check(one, pieces_max=most)


@contextmanager
def as_refusals() -> Iterator[None]:
    """Let what bodies are refused for leave as the answer that it is."""
    try:
        yield
    except TooLargeError as error:
        raise RequestRefusedError(Code.TOO_LARGE, str(error)) from error
    except BadBodyError as error:
        raise RequestRefusedError(Code.BAD_REQUEST, str(error)) from error
    except UnsupportedEncodingError as error:
        raise RequestRefusedError(Code.UNSUPPORTED_ENCODING, str(error)) from error


async def read_sent(
    request: Request, *, compressed_bytes_max: int, plain_bytes_max: int, timeout_seconds: float
) -> tuple[Format, bytes]:
    """Return how the body of a request is written, and the plain body: see `read_body`.

    Raises:
        RequestRefusedError: As of `read_body`, or unsupported_encoding: another content type.
    """
    form = body_format(request.headers.get("content-type"))
    body = await read_body(
        request.stream(),
        coding=content_coding(request.headers),
        declared_bytes=declared_bytes(request.headers),
        compressed_bytes_max=compressed_bytes_max,
        plain_bytes_max=plain_bytes_max,
        timeout_seconds=timeout_seconds,
    )
    return form, body


def refuse_wide_json(
    body: bytes, *, points_max: int, objects_a_point: int = _JSON_OBJECTS_A_POINT
) -> None:
    """Return when a body of JSON has no more in it than so many points can.

    JSON is read slowly, some microseconds for each thing in it: nothing that is no honest body is
    read at all.

    Raises:
        RequestRefusedError: too_large.
    """
    if len(body) <= JSON_BYTES_AT_ONCE:
        return
    for piece, each, what in (
        (b"{", objects_a_point, "objects"),
        (b",", _JSON_VALUES_A_POINT, "values"),
    ):
        most = each * points_max
        if body.count(piece) > most:
            raise _too_large(f"the body has over {most} {what}: send less at once")


async def read_body(
    chunks: AsyncIterator[bytes],
    *,
    coding: str | None,
    declared_bytes: int | None,
    compressed_bytes_max: int,
    plain_bytes_max: int,
    timeout_seconds: float,
) -> bytes:
    """Return the plain body.

    Each chunk is inflated as it comes and both sizes are counted, so at most `plain_bytes_max` and
    a little are ever held. What a length header declares is only used to refuse early.

    Raises:
        RequestRefusedError: too_large, timeout, unsupported_encoding, or bad_request.
    """
    if declared_bytes is not None and declared_bytes > compressed_bytes_max:
        raise _too_large(f"body of {declared_bytes} bytes is over {compressed_bytes_max}: split it")
    pieces: list[bytes] = []
    arrived = 0
    try:
        with as_refusals(), anyio.fail_after(timeout_seconds):
            inflate = Decompressor(coding, plain_bytes_max)
            async for chunk in chunks:
                arrived += len(chunk)
                if arrived > compressed_bytes_max:
                    raise _too_large(f"body is over {compressed_bytes_max} bytes: split it")
                pieces.append(inflate.feed(chunk))
            pieces.append(inflate.finish())
    except TimeoutError:
        raise RequestRefusedError(
            Code.TIMEOUT, f"body did not arrive within {timeout_seconds:g} s: send it again"
        ) from None
    return b"".join(pieces)


def _too_large(message: str) -> RequestRefusedError:
    return RequestRefusedError(Code.TOO_LARGE, message)


def parse(
    body: bytes,
    message: type[M],
    form: Format,
    *,
    depth_max: int = _JSON_DEPTH_MAX,
    count: JsonCount | None = None,
) -> M:
    """Read a message; of JSON, no further than `count` lets.

    What was wrong is not quoted: parsers quote values, and a value may be a license.

    Raises:
        RequestRefusedError: bad_request, or too_large.
    """
    parsed = message()
    try:
        if form is Format.JSON:
            json_format.ParseDict(
                _json_object(body, count),
                parsed,
                ignore_unknown_fields=True,
                max_recursion_depth=depth_max,
            )
        else:
            parsed.ParseFromString(body)
    except (DecodeError, json_format.ParseError, ValueError, OverflowError, RecursionError):
        # ValueError: text that is no UTF-8, or half of a surrogate pair; OverflowError: a number
        # of more digits than a double has. From None, so that no trace quotes the body either.
        raise RequestRefusedError(
            Code.BAD_REQUEST,
            f"body is no readable {message.DESCRIPTOR.name} in {form.value}: check its encoding",
        ) from None
    return parsed


def _json_object(body: bytes, count: JsonCount | None) -> dict[str, Any]:
    made = _without_doubles if count is None else _Counting(count).made
    found = json.loads(body.decode("utf-8"), object_pairs_hook=made, parse_constant=_no_json)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of two keys alike, two readers could take different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


class _Counting:
    """Counts while a body is read, so that it is read no further than it may go."""

    def __init__(self, count: JsonCount) -> None:
        self._count = count
        self._left = count.most

    def made(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = _without_doubles(pairs)
        self._left -= self._count.of(found)
        if self._left < 0:
            raise _too_large(
                f"the body has over {self._count.most} {self._count.what}: send less at once"
            )
        return found


def _no_json(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{word} is no JSON")


def render(message: Message, form: Format) -> bytes:
    """Write a message."""
    if form is Format.JSON:
        text = json_format.MessageToJson(
            message, always_print_fields_with_no_presence=True, indent=None
        )
        return text.encode()
    return message.SerializeToString()


def interval_named(batch: MetricsBatch | RawBatch) -> float | None:
    """Return the cycle that a batch names, in seconds, or None."""
    head = batch.head if isinstance(batch, RawBatch) else batch
    seconds = head.stats.interval_seconds
    return float(seconds) if seconds else None
