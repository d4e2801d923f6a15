"""The door of OTLP/HTTP, ``POST /v1/metrics``: metrics of OpenTelemetry's SDKs and Collector.

What is refused in part is told in ``partial_success``, with 200, and a refusal of the whole is a
``google.rpc.Status``, both in the format of the request. The specification lets a sender try again
at 429, 502, 503 and 504 only, and drop what it sent at any other error:

======  ===========================================================================================
status  when
======  ===========================================================================================
200     the request was read; what is not stored is in ``partial_success``
400     the body cannot be read
401     the token is unknown, pending or expired
403     the agent was revoked
413     over a limit of size
415     another type or coding: protobuf and JSON are read, plain or as gzip or zstd
503     over the rate, the bus is full, the hub cannot be asked, the body came too slowly, or there
        is a defect here; ``Retry-After`` says when to try again
======  ===========================================================================================

``X-AH-Code`` has our own code of each.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from starlette.requests import Request
from starlette.responses import Response

from ahcollector._refusal_headers import refusal_headers
from ahcollector.clock import AsyncClock
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._answers import answer
from ahcollector.ingest._body import (
    JSON_BYTES_AT_ONCE,
    PROTOBUF_BYTES_AT_ONCE,
    BodyReader,
    JsonCount,
    as_refusals,
    parse,
    read_sent,
    refuse_wide_json,
)
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
from ahcollector.ingest._headers import Format, body_format
from ahcollector.ingest._otlp_translate import NO_DATA_POINT, Exported, translate
from ahcollector.ingest._wire_count import PieceCounter
from ahcollector.ingest.limits import IngestLimits
from ahwire import now_ms
from ahwire.status import Code

__all__ = ["OtlpDoor"]

_UNAVAILABLE = 503
_TEXT_CHARS_MAX = 2000
# Values of attributes may be lists of maps of lists; the messages around them take eight levels.
_JSON_DEPTH_MAX = 64
# Messages that a body may have for each point that may come, beside two for each label: the point,
# its metric, that one's data, and a scope. So a full batch passes, whatever its points are like.
# The parser takes 40 to 60 bytes for each, for empty metrics 100: at most 110 MiB.
_PIECES_BESIDE = 4
_PIECES_A_LABEL = 2
# A point with few attributes, in JSON: an attribute is two objects, and its metric may have two.
_JSON_OBJECTS_A_POINT = 15

_EXPORTS = PieceCounter(ExportMetricsServiceRequest)

_RPC_CODES: Mapping[Code, code_pb2.Code] = MappingProxyType(
    {
        Code.BAD_REQUEST: code_pb2.INVALID_ARGUMENT,
        Code.UNSUPPORTED_ENCODING: code_pb2.INVALID_ARGUMENT,
        Code.TOO_LARGE: code_pb2.INVALID_ARGUMENT,
        Code.UNAUTHORIZED: code_pb2.UNAUTHENTICATED,
        Code.AGENT_REVOKED: code_pb2.PERMISSION_DENIED,
        Code.RATE_LIMITED: code_pb2.RESOURCE_EXHAUSTED,
        Code.TIMEOUT: code_pb2.UNAVAILABLE,
        Code.UNAVAILABLE: code_pb2.UNAVAILABLE,
        Code.SERVER_ERROR: code_pb2.INTERNAL,
    }
)


class OtlpDoor:
    """Takes exports of OpenTelemetry.

    Args:
        door: What every door of another protocol goes through.
        reader: Has what takes long done beside the event loop.
        limits: What bodies are held to.
        clock: Time.
    """

    def __init__(
        self, *, door: ForeignDoor, reader: BodyReader, limits: IngestLimits, clock: AsyncClock
    ) -> None:
        self._door = door
        self._reader = reader
        self._limits = limits
        self._clock = clock

    async def metrics(self, request: Request) -> Response:
        """Answer a request that was understood."""
        reading = _Reading(reader=self._reader, limits=self._limits, clock=self._clock)
        taken = await self._door.take(request, reading.translate)
        exported = reading.exported
        assert exported is not None, "the entry calls translate once"
        rejected = _rejected_data_points(exported, taken)
        text = _told(taken, exported.warnings)
        reply = ExportMetricsServiceResponse()
        if rejected or text:
            reply.partial_success.CopyFrom(
                ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=text)
            )
            log_refused(request, text)
        return answer(reply, _format(request))

    def refuse(self, request: Request, refusal: RequestRefusedError) -> Response:
        """Answer a request of which nothing was taken."""
        status = foreign_status(refusal.code)
        seconds = retry_after_seconds(refusal)
        if refusal.code is Code.SERVER_ERROR:
            # At a 500 a sender drops what it has.
            status, seconds = _UNAVAILABLE, self._limits.bus_full_retry_seconds
        body = Status(
            code=_RPC_CODES.get(refusal.code, code_pb2.UNKNOWN),
            message=str(refusal)[:_TEXT_CHARS_MAX],
        )
        if refusal.code is Code.BAD_REQUEST:
            fault = BadRequest.FieldViolation(field="body", description=body.message)
            body.details.add().Pack(BadRequest(field_violations=[fault]))
        headers = refusal_headers(refusal.code, seconds)
        return answer(body, _format(request), status=status, headers=headers)


class _Reading:
    """Reads one request, and keeps what the answer needs and the common entry does not."""

    def __init__(self, *, reader: BodyReader, limits: IngestLimits, clock: AsyncClock) -> None:
        self._reader = reader
        self._limits = limits
        self._clock = clock
        self.exported: Exported | None = None

    async def translate(self, request: Request, read: Read) -> Translated:
        form, body = await read_sent(
            request,
            compressed_bytes_max=self._limits.compressed_bytes_max,
            plain_bytes_max=self._limits.plain_bytes_max,
            timeout_seconds=self._limits.body_timeout_seconds,
        )
        read(len(body))
        at_once = JSON_BYTES_AT_ONCE if form is Format.JSON else PROTOBUF_BYTES_AT_ONCE
        self.exported = await self._reader.aside(
            functools.partial(self._understood, body, form, now_ms(self._clock)),
            slow=len(body) > at_once,
        )
        return self.exported.translated

    def _understood(self, body: bytes, form: Format, received_at_ms: int) -> Exported:
        batch = self._limits.batch
        if form is Format.JSON:
            refuse_wide_json(
                body,
                points_max=batch.points_per_batch,
                objects_a_point=_JSON_OBJECTS_A_POINT,
            )
        else:
            each = _PIECES_A_LABEL * batch.labels_per_series + _PIECES_BESIDE
            with as_refusals():
                _EXPORTS.check(body, pieces_max=each * batch.points_per_batch)
        count = JsonCount(of=_points_in, most=batch.points_per_batch, what="points")
        return translate(
            parse(body, ExportMetricsServiceRequest, form, depth_max=_JSON_DEPTH_MAX, count=count),
            now_ms=received_at_ms,
            limits=batch,
            bytes_max=self._limits.plain_bytes_max,
        )


def _points_in(found: Mapping[str, Any]) -> int:
    """Count the points of a metric's data, by either spelling."""
    points = found.get("dataPoints") or found.get("data_points")
    return len(points) if isinstance(points, list) else 0


def _format(request: Request) -> Format:
    """Return the format of the answer, which is that of the request."""
    try:
        return body_format(request.headers.get("content-type"))
    except RequestRefusedError:
        return Format.PROTOBUF


def _rejected_data_points(exported: Exported, taken: Taken) -> int:
    """Return how many data points are not stored, or not whole.

    A histogram's point is many series; it counts once, whichever of them were refused.
    """
    untranslated = sum(one.points for one in exported.translated.refused)
    owners = {exported.owners[index] for index in taken.series_refused}
    return untranslated + len(owners - {NO_DATA_POINT})


def _told(taken: Taken, warnings: Sequence[str]) -> str:
    text = "; ".join([*told(taken.refused), *taken.warnings, *warnings])
    return shortened(text, _TEXT_CHARS_MAX)
