"""The OpenAPI document of the ingest door."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ahcollector._openapi import HEALTH_SCHEMA, READINESS_SCHEMA
from ahcollector._openapi_document import document
from ahcollector._protojson import message_schemas
from ahcollector._version import VERSION
from ahcollector.ingest._message_docs import MESSAGE_DOCS
from ahcollector.ingest._routes import ROUTES
from ahwire import agent_pb2

__all__ = ["openapi_document", "show_document"]

_TAGS: Final = {
    "agents": "The agents' own protocol.",
    "other protocols": "So that any program that speaks them can be an agent.",
    "process": "The process itself. These need no token.",
}

_ABOUT: Final = """\
For agents. A body is a message of `agent.proto` in protobuf (`application/x-protobuf`), or in
protobuf's JSON mapping (`application/json`) as the schemas here have it; the answer is in the form
that `Accept` asks for, else in the one that was sent. In JSON a 64-bit number is written as text
and read as either, a field is read by both of its names, and unknown fields are passed over.
Bodies are compressed by gzip or zstd, one coding only. Every error is an `ErrorBody`, with its code
in `X-AH-Code` too; what an agent does at each is on the page of the status table. A path that is
not here is answered 404, another method 405 with `Allow`. All limits named are defaults and
settings."""


def openapi_document(root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the ingest door; `root_path`: where it is mounted."""
    messages = agent_pb2.DESCRIPTOR.message_types_by_name.values()
    return document(
        title="Collector: ingest",
        version=VERSION,
        doc=_ABOUT,
        bearer_doc="The agent's token. It names the agent, and with it company and server.",
        tags=_TAGS,
        routes=ROUTES,
        schemas={
            **message_schemas(messages, MESSAGE_DOCS),
            "Health": HEALTH_SCHEMA,
            "Readiness": READINESS_SCHEMA,
        },
        root_path=root_path,
    )


async def show_document(request: Request) -> Response:
    """Show what this door is."""
    return JSONResponse(openapi_document(str(request.scope.get("root_path", ""))))
