"""Errors of the admin door, in the shape of ErrorBody."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from ahcollector.errors import CollectorError, RequestRefusedError
from ahwire.limits import MAX_ERROR_MESSAGE_CHARS
from ahwire.status import HTTP_STATUS, Code

__all__ = ["error_answer", "refusal_of"]


def error_answer(refusal: RequestRefusedError, status: int | None = None) -> Response:
    """Return the answer of a refusal; `status` replaces the one that its code has."""
    headers = {"X-AH-Code": refusal.code.value, "Cache-Control": "no-store"}
    if refusal.code is Code.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        {"code": refusal.code.value, "message": str(refusal)[:MAX_ERROR_MESSAGE_CHARS]},
        status_code=status or HTTP_STATUS[refusal.code],
        headers=headers,
    )


def refusal_of(error: CollectorError) -> RequestRefusedError:
    """Return how an error is answered: what is no fault of the caller is unavailable."""
    if isinstance(error, RequestRefusedError):
        return error
    return RequestRefusedError(Code.UNAVAILABLE, f"try again later: {error}")
