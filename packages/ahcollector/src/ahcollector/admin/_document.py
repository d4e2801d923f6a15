"""The OpenAPI document of the admin door."""

from __future__ import annotations

from typing import Any, Final

from ahcollector._openapi_document import document
from ahcollector._version import VERSION
from ahcollector.admin._routes import ROUTES
from ahcollector.admin._schemas import SCHEMAS

__all__ = ["openapi_document"]

_TAGS: Final = {
    "agents": "Who may send.",
    "tenants": "What is forgotten whole.",
    "series": "What was stored. Every query is within one company.",
    "state": "What the collector knows now.",
    "dead letters": "What could not be delivered, kept until somebody decides.",
    "process": "The process itself. These need no token.",
}

_ABOUT: Final = """\
For operators and the hub. Bodies are JSON of at most 65,536 bytes, their `Content-Type` is not
looked at; times are RFC 3339 in UTC; an unknown or repeated parameter is refused. Lists come in
pages: `next_after` of one is `after` of the next, until it is null. Every error is
`{"code": …, "message": …}` with the code in `X-AH-Code` too. A path that is not here is answered
404, another method 405 with `Allow`, both with the code `not_found`. `HEAD` is answered wherever
`GET` is."""


def openapi_document(root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the admin door; `root_path`: where it is mounted."""
    return document(
        title="Collector: admin",
        version=VERSION,
        doc=_ABOUT,
        bearer_doc="The admin token (`admin.token`), or the one before it while it is replaced.",
        tags=_TAGS,
        routes=ROUTES,
        schemas=SCHEMAS,
        root_path=root_path,
    )
