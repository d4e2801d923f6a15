"""The routes of the ingest door that speak other protocols, as the document shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ahcollector._openapi import JSON, Answer, Body, Route, Schema, error_answers, header
from ahcollector.ingest._foreign import foreign_status
from ahcollector.ingest._headers import Format
from ahcollector.ingest._pieces import (
    CODING,
    FOREIGN,
    OF_BODIES,
    OF_TOKENS,
    WHEN,
    header_parameter,
)
from ahwire.status import HTTP_STATUS, Code

__all__ = ["foreign_routes"]

_TEXT: Final[Mapping[str, Schema]] = {"text/plain": {"type": "string"}}


def foreign_routes() -> Iterable[Route]:
    """Return them."""
    written = {
        f"X-Prometheus-Remote-Write-{what}-Written": header(
            f"{what} written, on answers to 2.0.", {"type": "integer", "minimum": 0}
        )
        for what in ("Samples", "Histograms", "Exemplars")
    }
    kinds = ("prometheus.WriteRequest", "io.prometheus.write.v2.Request")
    some_refused = (400, Code.INVALID_SERIES.value, "some samples were refused, the rest is stored")
    errors = [
        (foreign_status(code), code.value, WHEN[code])
        for code in (*OF_TOKENS, *OF_BODIES, Code.RATE_LIMITED, Code.UNAVAILABLE)
    ]
    defect = (HTTP_STATUS[Code.SERVER_ERROR], Code.SERVER_ERROR.value, WHEN[Code.SERVER_ERROR])
    yield Route(
        method="POST",
        path="/api/v1/write",
        name="remoteWrite",
        summary="Prometheus remote write, 1.0 and 2.0",
        doc="The token is an agent's; limits and tenancy are the same as of the agents' own door."
        " No `X-AH-*` header is asked for. By default 100,000 points a minute.",
        tag=FOREIGN,
        parameters=(
            header_parameter(
                "Content-Encoding",
                "Snappy's block format.",
                {"type": "string", "enum": ["snappy"]},
                example="snappy",
            ),
        ),
        body=Body(
            doc="The type names the message by its parameter `proto`; without it: 1.0.",
            media={
                f"application/x-protobuf;proto={kind}": {"description": f"The message `{kind}`."}
                for kind in kinds
            },
        ),
        answers=(
            Answer(status=204, doc="Every sample was taken.", headers=written),
            *error_answers([*errors, some_refused, defect], media=_TEXT),
        ),
    )
    otlp: dict[str, Schema] = {
        name: {"description": "`ExportMetricsServiceRequest`."}
        for name in (Format.PROTOBUF.value, JSON)
    }
    reply: dict[str, Schema] = {
        name: {"description": "`ExportMetricsServiceResponse`."} for name in otlp
    }
    status: dict[str, Schema] = {name: {"description": "`google.rpc.Status`."} for name in otlp}
    yield Route(
        method="POST",
        path="/v1/metrics",
        name="exportMetrics",
        summary="OpenTelemetry metrics, OTLP/HTTP",
        doc="The token is an agent's; limits and tenancy are the same as of the agents' own door."
        " No `X-AH-*` header is asked for. By default 100,000 points a minute.",
        tag=FOREIGN,
        parameters=(CODING,),
        body=Body(doc="Protobuf or JSON.", media=otlp),
        answers=(
            Answer(
                status=200,
                doc="Read; what is not stored is told in `partial_success`.",
                media=reply,
            ),
            *error_answers(
                [*errors, (503, Code.SERVER_ERROR.value, WHEN[Code.SERVER_ERROR])], media=status
            ),
        ),
    )
