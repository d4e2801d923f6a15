"""Every route of the ingest door, as the OpenAPI document and the reference page show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ahcollector._openapi import (
    JSON,
    Answer,
    Body,
    Route,
    Schema,
    error_answers,
    header,
    process_routes,
    reference,
)
from ahcollector.ingest._foreign_routes import foreign_routes
from ahcollector.ingest._headers import Format
from ahcollector.ingest._pieces import (
    AGENTS,
    CODING,
    OF_BODIES,
    OF_TOKENS,
    WHEN,
    header_parameter,
)
from ahwire.limits import PROTOCOL_VERSION
from ahwire.status import HTTP_STATUS, Code

__all__ = ["ROUTES"]

_ETAG: Final = "4f1d0c2a9b7e6835"


def _either(name: str) -> dict[str, Schema]:
    """Return both forms of a message: protobuf, and its JSON mapping."""
    return {
        Format.PROTOBUF.value: {"description": f"The message `{name}` of `agent.proto`."},
        JSON: reference(name),
    }


_PROTO: Final = header_parameter(
    "X-AH-Proto",
    "The version of the protocol; another, or none, is answered 426.",
    # One value, and no constant: generators of clients take none in a header.
    {"type": "string", "enum": [PROTOCOL_VERSION]},
    required=True,
    example=PROTOCOL_VERSION,
)
_COMMON: Final = (
    _PROTO,
    header_parameter("X-AH-Agent-Version", "The version of the agent.", {"type": "string"}),
    header_parameter(
        "X-Request-Id",
        "16 hexadecimal digits, fresh for each request. One of 1 to 64 letters, digits and"
        " `_ . : -` is in the answer and in both sides' logs; for another the collector makes one.",
        {"type": "string"},
        example="5f2b7c0d9e1a4b38",
    ),
)

_OF_ALL: Final = (
    Code.UPGRADE_REQUIRED,
    Code.RATE_LIMITED,
    Code.SERVER_ERROR,
    Code.UNAVAILABLE,
)


def _errors(*codes: Code) -> tuple[Answer, ...]:
    kinds = ((HTTP_STATUS[code], code.value, WHEN[code]) for code in (*codes, *_OF_ALL))
    return error_answers(kinds, media=_either("ErrorBody"), examples=True)


def _good(status: int, doc: str, message: str, example: Any) -> Answer:
    return Answer(status=status, doc=doc, media=_either(message), example=example)


def _samples() -> Iterable[Route]:
    ack = {
        "serverTimeMs": "1790000000123",
        "ackSeq": "42",
        "configEtag": _ETAG,
        "acceptedPoints": 1,
        "droppedPoints": 0,
        "warnings": [],
        "rejected": [],
        "renewToken": False,
    }
    refused = {
        **ack,
        "acceptedPoints": 0,
        "droppedPoints": 1,
        "rejected": [{"index": 0, "code": "too_old", "points": 1}],
    }
    yield Route(
        method="POST",
        path="/agent/v1/metrics",
        name="sendMetrics",
        summary="Send a batch",
        doc="A sign of life whatever the answer is. By default at most 1 MiB compressed and 8 MiB"
        " plain, 20,000 points, 27 labels a series, and max(4, 2 x 60 / cycle) batches a minute"
        " with a burst of 10. A batch with some bad series is accepted in part.",
        tag=AGENTS,
        parameters=(*_COMMON, CODING),
        body=Body(
            doc="The batch.",
            media=_either("MetricsBatch"),
            example={
                "seq": "42",
                "sentAtMs": "1790000000100",
                "collectedAtMs": "1790000000000",
                "series": [
                    {
                        "name": "queue_depth",
                        "labels": [{"name": "queue", "value": "mail"}],
                        "points": [{"tsMs": "1790000000000", "value": 7}],
                    }
                ],
            },
        ),
        answers=(
            _good(
                202, "Accepted, at least in part; the samples are on the bus.", "MetricsAck", ack
            ),
            Answer(
                status=422,
                doc="`invalid_series`: nothing could be accepted; nothing is to be sent again",
                media=_either("MetricsAck"),
                headers={"X-AH-Code": header("The code.", {"const": Code.INVALID_SERIES.value})},
                codes=(Code.INVALID_SERIES.value,),
                example=refused,
            ),
            *_errors(*OF_TOKENS, *OF_BODIES),
        ),
    )


def _config() -> Iterable[Route]:
    etag = {"ETag": header("Names the configuration.", {"type": "string"})}
    yield Route(
        method="GET",
        path="/agent/v1/config",
        name="getConfig",
        summary="Ask for the configuration",
        doc="By default 2 a minute.",
        tag=AGENTS,
        parameters=(
            *_COMMON,
            header_parameter(
                "If-None-Match", "The etag that is known.", {"type": "string"}, example=f'"{_ETAG}"'
            ),
        ),
        answers=(
            Answer(
                status=200,
                doc="The configuration.",
                media=_either("AgentConfig"),
                headers=etag,
                example={
                    "etag": _ETAG,
                    "intervalSeconds": 30,
                    "catchUpBatches": 0,
                    "disabledCollectors": [],
                    "labels": {"site": "eu-1"},
                    "maxPointAgeSeconds": 86400,
                },
            ),
            Answer(status=304, doc="It is the one that is known.", headers=etag),
            *_errors(*OF_TOKENS),
        ),
    )
    yield Route(
        method="GET",
        path="/agent/v1/ping",
        name="ping",
        summary="Ask whether a collector is here",
        tag=AGENTS,
        bearer=False,
        answers=(Answer(status=200, doc="It is; without a body."),),
    )


def _identity() -> Iterable[Route]:
    yield Route(
        method="POST",
        path="/agent/v1/enroll",
        name="enroll",
        summary="Exchange a license for an identity",
        doc="By default 10 a minute from one address (IPv6: one /64).",
        tag=AGENTS,
        bearer=False,
        parameters=(*_COMMON, CODING),
        body=Body(
            doc="The license, and who shows it.",
            media=_either("EnrollRequest"),
            example={"license": "AH-…", "machineId": "b1946ac9", "hostname": "web-1"},
        ),
        answers=(
            _good(
                200,
                "The identity; its token is told once.",
                "EnrollResponse",
                {
                    "agentId": "web-1-agent",
                    "companyId": "acme",
                    "serverId": "web-1",
                    "agentToken": "…",
                    "collectorUrl": "https://collector.example.com",
                    "tokenExpiresAtMs": "0",
                },
            ),
            *_errors(
                *OF_BODIES,
                Code.LICENSE_INVALID,
                Code.ALREADY_ENROLLED,
                Code.TOKEN_USED,
                Code.BINDING_FAILED,
            ),
        ),
    )
    yield Route(
        method="POST",
        path="/agent/v1/credentials/renew",
        name="renewToken",
        summary="Get a new token",
        doc="The token shown stays good for an overlap, so that a lost answer locks nobody out. No"
        " body is read.",
        tag=AGENTS,
        parameters=_COMMON,
        answers=(
            _good(
                200,
                "The new token; told once.",
                "RenewResponse",
                {
                    "agentToken": "…",
                    "previousValidUntilMs": "1790086400000",
                    "tokenExpiresAtMs": "0",
                },
            ),
            *_errors(*OF_TOKENS, Code.NOT_FOUND),
        ),
    )


def _inventory() -> Iterable[Route]:
    yield Route(
        method="POST",
        path="/agent/v1/inventory",
        name="sendInventory",
        summary="Say what the machine is",
        doc="The newest replaces the last; passed on to the hub. At most 256 KiB.",
        tag=AGENTS,
        parameters=(*_COMMON, CODING),
        body=Body(
            doc="The inventory.",
            media=_either("Inventory"),
            example={"collectedAtMs": "1790000000000", "hostname": "web-1", "cpus": 4},
        ),
        answers=(
            Answer(status=202, doc="The hub has it; without a body."),
            *_errors(*OF_TOKENS, *OF_BODIES),
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (
    *_samples(),
    *_config(),
    *_identity(),
    *_inventory(),
    *foreign_routes(),
    *process_routes("/agent/v1/openapi.json"),
)
