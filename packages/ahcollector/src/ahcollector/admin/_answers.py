"""Answers of the admin door: JSON as a line, and errors in the shape of ErrorBody."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response

from ahcollector._refusal_headers import refusal_headers
from ahcollector.errors import CollectorError, RequestRefusedError
from ahwire.limits import MAX_ERROR_MESSAGE_CHARS
from ahwire.status import HTTP_STATUS, Code

__all__ = [
    "CONFLICT",
    "CONFLICT_STATUS",
    "JsonLine",
    "conflict_answer",
    "error_answer",
    "refusal_of",
]

CONFLICT: Final = "conflict"
"""The code of a 409: agents never see it, so it is none of the protocol's."""

CONFLICT_STATUS: Final = 409
_RETRY_SECONDS = 5.0


class JsonLine(JSONResponse):
    """JSON that ends its line, so that in a terminal the prompt does not follow on it."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return super().render(content) + b"\n"


def error_answer(refusal: RequestRefusedError, status: int | None = None) -> Response:
    """Return the answer of a refusal; `status` replaces the one that its code has."""
    wait = refusal.retry_after_seconds
    if wait is None and refusal.code is Code.UNAVAILABLE:
        wait = _RETRY_SECONDS
    headers = refusal_headers(refusal.code, wait)
    return _answer(str(refusal), status or HTTP_STATUS[refusal.code], headers)


def conflict_answer(message: str) -> Response:
    """Return the answer to a request that what is known stands against."""
    return _answer(message, CONFLICT_STATUS, {"X-AH-Code": CONFLICT})


def refusal_of(error: CollectorError) -> RequestRefusedError:
    """Return how an error is answered: what is no fault of the caller is unavailable."""
    if isinstance(error, RequestRefusedError):
        return error
    return RequestRefusedError(Code.UNAVAILABLE, f"try again later: {error}")


def _answer(message: str, status: int, headers: dict[str, str]) -> Response:
    # What was sent can be quoted in a message, and can hold half of a surrogate pair.
    text = message[:MAX_ERROR_MESSAGE_CHARS].encode("utf-8", "replace").decode()
    return JsonLine(
        {"code": headers["X-AH-Code"], "message": text},
        status_code=status,
        headers={"Cache-Control": "no-store", **headers},
    )
