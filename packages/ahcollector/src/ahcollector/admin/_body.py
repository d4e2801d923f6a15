"""The body of an admin request, within its bounds."""

from __future__ import annotations

import anyio
from starlette.requests import Request

from ahcollector.errors import RequestRefusedError
from ahwire.status import Code

__all__ = ["BODY_BYTES_MAX", "Bodies"]

BODY_BYTES_MAX = 64 * 1024


class Bodies:
    """Reads bodies.

    Args:
        timeout_seconds: How long a whole body may take.
    """

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds

    async def read(self, request: Request) -> bytes:
        """Return a body.

        Raises:
            RequestRefusedError: It is over 64 KiB, or did not arrive in time.
        """
        body = bytearray()
        try:
            with anyio.fail_after(self._timeout_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        raise RequestRefusedError(
                            Code.BAD_REQUEST, f"the body is over {BODY_BYTES_MAX} bytes: send less"
                        )
        except TimeoutError:
            raise RequestRefusedError(
                Code.TIMEOUT,
                f"the body did not arrive within {self._timeout_seconds:g} s: send it again",
            ) from None
        return bytes(body)
