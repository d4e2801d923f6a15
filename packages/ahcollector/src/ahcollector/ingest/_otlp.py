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
import logging
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import anyio.to_thread
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

from ahcollector.clock import AsyncClock
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._answers import answer
from ahcollector.ingest._body import parse, read_body
from ahcollector.ingest._foreign import (
    ForeignDoor,
    Taken,
    Translated,
    foreign_status,
    retry_after_seconds,
    told,
)
from ahcollector.ingest._headers import Format, body_format
from ahcollector.ingest._otlp_translate import NO_DATA_POINT, Exported, translate
from ahcollector.ingest._otlp_wire import may_hold_over, messages_in
from ahcollector.ingest.limits import IngestLimits
from ahwire import now_ms
from ahwire.status import Code

__all__ = ["OtlpDoor"]

_log = logging.getLogger("ahcollector.ingest")

_UNAVAILABLE = 503
_TEXT_CHARS_MAX = 2000
# Values of attributes may be lists of maps of lists; the messages around them take eight levels.
_JSON_DEPTH_MAX = 64
# Messages that a body may have for each point that may come: a point with ten attributes has 21.
_MESSAGES_OVER = 25
# Smaller bodies of JSON take no longer than a batch of ours does.
_JSON_BYTES_AT_ONCE = 64 << 10
# What a body of JSON may have for each point that may come, more than any that fits has.
_JSON_OBJECTS_OVER = 15
_JSON_VALUES_OVER = 25

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
        limits: What bodies are held to.
        clock: Time.
    """

    def __init__(self, *, door: ForeignDoor, limits: IngestLimits, clock: AsyncClock) -> None:
        self._door = door
        self._limits = limits
        self._clock = clock

    async def metrics(self, request: Request) -> Response:
        """Answer a request that was understood."""
        reading = _Reading(limits=self._limits, clock=self._clock)
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
            _log.info(
                "points refused",
                extra={
                    "request_id": request.state.request_id,
                    "path": request.url.path,
                    "agent_id": request.state.agent_id,
                    "reason": text,
                },
            )
        return answer(reply, _format(request))

    def refuse(self, request: Request, refusal: RequestRefusedError) -> Response:
        """Answer a request of which nothing was taken."""
        status = foreign_status(refusal.code)
        seconds = retry_after_seconds(refusal)
        if refusal.code is Code.SERVER_ERROR:
            # At a 500 a sender drops what it has.
            status, seconds = _UNAVAILABLE, self._limits.bus_full_retry_seconds
        headers = {"X-AH-Code": refusal.code.value}
        if seconds is not None:
            headers["Retry-After"] = str(max(1, math.ceil(seconds)))
        if refusal.code is Code.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        body = Status(
            code=_RPC_CODES.get(refusal.code, code_pb2.UNKNOWN),
            message=str(refusal)[:_TEXT_CHARS_MAX],
        )
        if refusal.code is Code.BAD_REQUEST:
            fault = BadRequest.FieldViolation(field="body", description=body.message)
            body.details.add().Pack(BadRequest(field_violations=[fault]))
        return answer(body, _format(request), status=status, headers=headers)


class _Reading:
    """Reads one request, and keeps what the answer needs and the common entry does not."""

    def __init__(self, *, limits: IngestLimits, clock: AsyncClock) -> None:
        self._limits = limits
        self._clock = clock
        self.exported: Exported | None = None

    async def translate(self, request: Request) -> Translated:
        form = body_format(request.headers.get("content-type"))
        declared = request.headers.get("content-length", "")
        body = await read_body(
            request.stream(),
            coding=", ".join(request.headers.getlist("content-encoding")) or None,
            declared_bytes=int(declared) if declared.isascii() and declared.isdigit() else None,
            compressed_bytes_max=self._limits.compressed_bytes_max,
            plain_bytes_max=self._limits.plain_bytes_max,
            timeout_seconds=self._limits.body_timeout_seconds,
        )
        message = await self._message(body, form)
        self.exported = translate(
            message,
            now_ms=now_ms(self._clock),
            limits=self._limits.batch,
            bytes_max=self._limits.plain_bytes_max,
        )
        return self.exported.translated

    async def _message(self, body: bytes, form: Format) -> ExportMetricsServiceRequest:
        read = functools.partial(
            parse, body, ExportMetricsServiceRequest, form, depth_max=_JSON_DEPTH_MAX
        )
        most = self._limits.batch.points_per_batch
        if form is Format.PROTOBUF:
            _refuse_many_messages(body, _MESSAGES_OVER * most)
            return read()
        if len(body) <= _JSON_BYTES_AT_ONCE:
            return read()
        # JSON is read slowly, some microseconds for each thing in it: nothing that is no honest
        # export is read at all, and the others do not wait for it.
        _refuse_wide(body.count(b"{"), _JSON_OBJECTS_OVER * most, "objects")
        _refuse_wide(body.count(b","), _JSON_VALUES_OVER * most, "values")
        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)


def _refuse_many_messages(body: bytes, most: int) -> None:
    if len(body) <= 2 * most or not may_hold_over(body, most):  # a message is two bytes at least
        return
    messages = messages_in(body, most)
    if messages is None:
        # Not left to the parser, which may be able to follow it.
        raise RequestRefusedError(
            Code.BAD_REQUEST, "body is no readable ExportMetricsServiceRequest: check its encoding"
        )
    _refuse_wide(messages, most, "messages")


def _refuse_wide(count: int, most: int, what: str) -> None:
    if count > most:
        raise RequestRefusedError(
            Code.TOO_LARGE, f"the body has over {most} {what}: send less at once"
        )


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
    return text if len(text) <= _TEXT_CHARS_MAX else f"{text[: _TEXT_CHARS_MAX - 4]} ..."
