"""Bodies: read under a clock and two limits, then understood."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

import anyio
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._headers import Format
from ahwire import BadBodyError, TooLargeError, UnsupportedEncodingError
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import RawBatch, take_apart
from ahwire.codec import Decompressor
from ahwire.status import Code

__all__ = ["interval_named", "parse", "parse_batch", "read_body", "render"]

_JSON_DEPTH_MAX = 16
M = TypeVar("M", bound=Message)


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
        inflate = Decompressor(coding, plain_bytes_max)
        with anyio.fail_after(timeout_seconds):
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
    except UnsupportedEncodingError as error:
        raise RequestRefusedError(Code.UNSUPPORTED_ENCODING, str(error)) from error
    except TooLargeError as error:
        raise _too_large(str(error)) from error
    except BadBodyError as error:
        raise RequestRefusedError(Code.BAD_REQUEST, str(error)) from error
    return b"".join(pieces)


def _too_large(message: str) -> RequestRefusedError:
    return RequestRefusedError(Code.TOO_LARGE, message)


def parse(body: bytes, message: type[M], form: Format, *, depth_max: int = _JSON_DEPTH_MAX) -> M:
    """Read a message.

    What was wrong is not quoted: parsers quote values, and a value may be a license.

    Raises:
        RequestRefusedError: bad_request.
    """
    parsed = message()
    try:
        if form is Format.JSON:
            if not body.lstrip(b" \t\r\n").startswith(b"{"):
                raise ValueError("no JSON object")  # the parser takes an empty list for one
            json_format.Parse(
                body, parsed, ignore_unknown_fields=True, max_recursion_depth=depth_max
            )
        else:
            parsed.ParseFromString(body)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError):
        # ValueError: text that is no UTF-8, or half of a surrogate pair. From None, so that no
        # trace quotes the body either.
        raise RequestRefusedError(
            Code.BAD_REQUEST,
            f"body is no readable {message.DESCRIPTOR.name} in {form.value}: check its encoding",
        ) from None
    return parsed


def parse_batch(body: bytes, form: Format, *, series_max: int) -> MetricsBatch | RawBatch:
    """Read a batch, its series only as far as must be: see `ahwire.batch.take_apart`.

    Raises:
        RequestRefusedError: bad_request.
    """
    if form is Format.PROTOBUF:
        # What cannot be cut, or cannot be read, is left to the parser of the whole.
        with contextlib.suppress(DecodeError):
            raw = take_apart(body, series_max=series_max)
            if raw is not None:
                return raw
    return parse(body, MetricsBatch, form)


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
