"""What the routes of the ingest door are put together from: headers, and when which error comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ahcollector._openapi import Parameter, Place, Schema
from ahwire.status import Code

__all__ = [
    "AGENTS",
    "CODING",
    "FOREIGN",
    "OF_BODIES",
    "OF_TOKENS",
    "WHEN",
    "header_parameter",
]

AGENTS: Final = "agents"
FOREIGN: Final = "other protocols"


def header_parameter(
    name: str, doc: str, schema: Schema, *, required: bool = False, example: str | None = None
) -> Parameter:
    """Return a header of a request."""
    return Parameter(
        name=name,
        place=Place.HEADER,
        doc=doc,
        schema=schema,
        required=required,
        example=example,
    )


CODING: Final = header_parameter(
    "Content-Encoding",
    "How the body is compressed; one coding only.",
    {"type": "string", "enum": ["gzip", "zstd"]},
)

WHEN: Final[Mapping[Code, str]] = {
    Code.BAD_REQUEST: "the body cannot be read",
    Code.UNAUTHORIZED: "the token is unknown, pending or expired",
    Code.LICENSE_INVALID: "the license is unknown, expired or refused",
    Code.AGENT_REVOKED: "the agent was revoked",
    Code.NOT_FOUND: "the hub does not know the agent any more",
    Code.TIMEOUT: "the body came too slowly",
    Code.ALREADY_ENROLLED: "the machine is enrolled already",
    Code.TOKEN_USED: "the license was used by another machine",
    Code.TOO_LARGE: "over a limit of size, a bomb too",
    Code.UNSUPPORTED_ENCODING: "another content type or coding than is read",
    Code.BINDING_FAILED: "the license is bound to another machine",
    Code.UPGRADE_REQUIRED: "the protocol is not spoken",
    Code.RATE_LIMITED: "over the rate",
    Code.SERVER_ERROR: "a defect of ours; the log has its trace under the request's id",
    Code.UNAVAILABLE: "the bus is full, or the hub cannot be asked",
}
OF_TOKENS: Final = (Code.UNAUTHORIZED, Code.AGENT_REVOKED)
OF_BODIES: Final = (
    Code.BAD_REQUEST,
    Code.TIMEOUT,
    Code.TOO_LARGE,
    Code.UNSUPPORTED_ENCODING,
)
