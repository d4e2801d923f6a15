"""Prometheus remote write 1.0 and 2.0 at the ingest door: ``POST /api/v1/write``.

Who sends so knows two kinds of answers: a 5xx, after which it tries the same again, and any other
but a 2xx, after which it writes one line of the body into its log and goes on to the next. So:

======  ===========================================================================================
status  when
======  ===========================================================================================
204     every sample was taken
400     some were refused and the rest is stored, or the body cannot be read; nothing is to be sent
        again
401     the token is unknown, pending or expired
403     the agent was revoked
413     over a limit of size
415     another type or coding: only snappy's block format of the two messages is read
500     there is a defect here
503     over the rate, the bus is full, the hub cannot be asked, or the body came too slowly;
        ``Retry-After`` says when to try again
======  ===========================================================================================

``X-AH-Code`` has our own code of each. Answers to 2.0 say how much was written in their headers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from google.protobuf.message import DecodeError
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from ahcollector._refusal_headers import refusal_headers
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._body import PROTOBUF_BYTES_AT_ONCE, BodyReader, as_refusals, read_body
from ahcollector.ingest._foreign import (
    ForeignDoor,
    Read,
    Taken,
    Translated,
    foreign_status,
    log_refused,
    retry_after_seconds,
    shortened,
    told,
)
from ahcollector.ingest._headers import content_coding, declared_bytes
from ahcollector.ingest._remote_write_bodies import translate_1, translate_2
from ahcollector.ingest._snappy import inflate
from ahcollector.ingest._wire_count import PieceCounter
from ahcollector.ingest.limits import IngestLimits
from ahwire.remote_write_pb2 import Request, WriteRequest
from ahwire.status import Code

__all__ = ["RemoteWriteDoor", "Version", "version_named"]

_MEDIA_TYPE = "application/x-protobuf"
_CODING = "snappy"
_NO_CONTENT = 204
_BAD_REQUEST = 400
# Prometheus logs the first line of an answer, and no more of it than this.
_TEXT_CHARS_MAX = 1000
_HEADER_CHARS_SHOWN = 80

# A series' name, a sample, metadata, and symbols, beside the series and its labels.
_PIECES_BESIDE = 9

M = TypeVar("M", WriteRequest, Request)


class Version(Enum):
    """Which message a body is; the value is what the type's parameter ``proto`` calls it."""

    ONE = "prometheus.WriteRequest"
    TWO = "io.prometheus.write.v2.Request"


_COUNTERS: Mapping[Version, PieceCounter] = MappingProxyType(
    {
        Version.ONE: PieceCounter(WriteRequest),
        # A label is two references.
        Version.TWO: PieceCounter(Request, numbers_a_piece=2),
    }
)


def version_named(content_type: str | None) -> Version | None:
    """Return which message a content type names; None: another type, or none at all."""
    media, *parameters = (content_type or "").split(";")
    if media.strip().lower() != _MEDIA_TYPE:
        return None
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "proto":
            try:
                return Version(value.strip().strip('"'))
            except ValueError:
                return None
    return Version.ONE


class RemoteWriteDoor:
    """Takes remote write.

    Args:
        door: What every door of another protocol goes through.
        reader: Has what takes long done beside the event loop.
        limits: What bodies are held to.
    """

    def __init__(self, *, door: ForeignDoor, reader: BodyReader, limits: IngestLimits) -> None:
        self._door = door
        self._reader = reader
        self._limits = limits

    async def write(self, request: HttpRequest) -> Response:
        """Answer a request that was understood."""
        taken = await self._door.take(request, self._translate)
        # The mark of a series' end was taken for what it is, so a sender that counts finds it.
        marks = sum(one.points for one in taken.passed_over)
        headers = _written(request, taken.accepted_points + marks)
        if not taken.refused:
            return Response(status_code=_NO_CONTENT, headers=headers)
        text = _refused_text(taken)
        log_refused(request, text)
        return PlainTextResponse(
            text,
            status_code=_BAD_REQUEST,
            headers={"X-AH-Code": Code.INVALID_SERIES.value, **headers},
        )

    def refuse(self, request: HttpRequest, refusal: RequestRefusedError) -> Response:
        """Answer a request of which nothing was taken."""
        headers = refusal_headers(refusal.code, retry_after_seconds(refusal))
        return PlainTextResponse(
            _one_line(str(refusal)),
            status_code=foreign_status(refusal.code),
            headers={"Cache-Control": "no-store", **headers, **_written(request, 0)},
        )

    async def _translate(self, request: HttpRequest, read: Read) -> Translated:
        version = version_named(request.headers.get("content-type"))
        if version is None:
            raise _not_read("content type", request.headers.get("content-type"), _MEDIA_TYPE)
        coding = content_coding(request.headers)
        if (coding or "").strip().lower() != _CODING:
            raise _not_read("content coding", coding, _CODING)
        plain = await self._plain(request)
        read(len(plain))
        return await self._reader.aside(
            functools.partial(self._understood, plain, version),
            slow=len(plain) > PROTOBUF_BYTES_AT_ONCE,
        )

    def _understood(self, plain: bytes, version: Version) -> Translated:
        batch, bytes_max = self._limits.batch, self._limits.plain_bytes_max
        pieces_max = batch.points_per_batch * (1 + batch.labels_per_series + _PIECES_BESIDE)
        with as_refusals():
            _COUNTERS[version].check(plain, pieces_max=pieces_max)
        if version is Version.TWO:
            two = _parsed(Request(), plain, version)
            return translate_2(two, limits=batch, bytes_max=bytes_max)
        one = _parsed(WriteRequest(), plain, version)
        return translate_1(one, limits=batch, bytes_max=bytes_max)

    async def _plain(self, request: HttpRequest) -> bytes:
        most = self._limits.compressed_bytes_max
        block = await read_body(
            request.stream(),
            coding=None,
            declared_bytes=declared_bytes(request.headers),
            compressed_bytes_max=most,
            plain_bytes_max=most,
            timeout_seconds=self._limits.body_timeout_seconds,
        )
        with as_refusals():
            return inflate(block, self._limits.plain_bytes_max)


def _parsed(message: M, plain: bytes, version: Version) -> M:
    """Fill a message from its bytes.

    Raises:
        RequestRefusedError: bad_request.
    """
    try:
        message.ParseFromString(plain)
    except (DecodeError, ValueError):  # ValueError: text that is no UTF-8
        # From None, so that no trace quotes the body.
        raise RequestRefusedError(
            Code.BAD_REQUEST, f"body is no readable {version.value}: check its encoding"
        ) from None
    if plain and not message.ListFields():
        # Either message, read as the other, is empty: none of its fields has a number of the other.
        raise RequestRefusedError(
            Code.BAD_REQUEST,
            f"body has nothing of {version.value}: name its message in the content type's proto",
        )
    return message


def _not_read(what: str, found: str | None, expected: str) -> RequestRefusedError:
    shown = "none" if found is None else repr(found[:_HEADER_CHARS_SHOWN])
    return RequestRefusedError(
        Code.UNSUPPORTED_ENCODING, f"{what} {shown} is not read here: send {expected}"
    )


def _refused_text(taken: Taken) -> str:
    sent = taken.accepted_points + taken.refused_points
    reasons = "; ".join([*told(taken.refused), *taken.warnings])
    return _one_line(f"{taken.refused_points} of {sent} points refused, others stored: {reasons}")


def _one_line(text: str) -> str:
    return shortened(" ".join(text.split()), _TEXT_CHARS_MAX)


def _written(request: HttpRequest, samples: int) -> dict[str, str]:
    """Return the headers that say to a sender of 2.0 what was written."""
    if version_named(request.headers.get("content-type")) is not Version.TWO:
        return {}
    prefix = "X-Prometheus-Remote-Write"
    return {
        f"{prefix}-Samples-Written": str(samples),
        f"{prefix}-Histograms-Written": "0",
        f"{prefix}-Exemplars-Written": "0",
    }
