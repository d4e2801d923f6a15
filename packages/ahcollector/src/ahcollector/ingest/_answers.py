"""Answers to agents: messages and errors, in the format the caller reads."""

from __future__ import annotations

import math

from google.protobuf.message import Message
from starlette.responses import Response

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._body import render
from ahcollector.ingest._headers import Format
from ahwire.agent_pb2 import ErrorBody
from ahwire.limits import MAX_ERROR_MESSAGE_CHARS, MAX_RETRY_AFTER_SENT_SECONDS
from ahwire.status import HTTP_STATUS, Code

__all__ = ["answer", "refusal_answer", "refusal_headers"]


def answer(
    message: Message, form: Format, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a message as the answer; tokens may be in it, so nothing between may keep it."""
    return Response(
        render(message, form),
        status_code=status,
        media_type=form.value,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def refusal_headers(code: Code, retry_after_seconds: float | None) -> dict[str, str]:
    """Return the headers that a refusal has at every door; None: nothing to wait for."""
    headers = {"X-AH-Code": code.value}
    if retry_after_seconds is not None:
        seconds = min(max(1, math.ceil(retry_after_seconds)), MAX_RETRY_AFTER_SENT_SECONDS)
        headers["Retry-After"] = str(seconds)
    if code in {Code.UNAUTHORIZED, Code.LICENSE_INVALID}:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def refusal_answer(refusal: RequestRefusedError, form: Format, *, status: int = 0) -> Response:
    """Return the error answer of a refusal; `status` replaces the one that its code has."""
    headers = refusal_headers(refusal.code, refusal.retry_after_seconds)
    body = ErrorBody(code=refusal.code.value, message=str(refusal)[:MAX_ERROR_MESSAGE_CHARS])
    return answer(body, form, status=status or HTTP_STATUS[refusal.code], headers=headers)
