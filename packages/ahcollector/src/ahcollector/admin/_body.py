"""The body of an admin request, within its bound."""

from __future__ import annotations

from starlette.requests import Request

from ahcollector.errors import RequestRefusedError
from ahwire.status import Code

__all__ = ["json_body"]

_BODY_BYTES_MAX = 64 * 1024


async def json_body(request: Request) -> bytes:
    """Return the body. Raises RequestRefusedError when it is over 64 KiB."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise RequestRefusedError(
                Code.BAD_REQUEST, f"a body is not over {_BODY_BYTES_MAX} bytes"
            )
    return bytes(body)
