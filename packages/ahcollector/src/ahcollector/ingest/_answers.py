"""Answers to agents: messages and errors, in the format the caller reads."""

from __future__ import annotations

from google.protobuf.message import Message
from starlette.responses import Response

from ahcollector._refusal_headers import refusal_headers
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._body import render
from ahcollector.ingest._headers import Format
from ahwire.agent_pb2 import ErrorBody
from ahwire.limits import MAX_ERROR_MESSAGE_CHARS
from ahwire.status import HTTP_STATUS

__all__ = ["answer", "refusal_answer"]


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


def refusal_answer(refusal: RequestRefusedError, form: Format, *, status: int = 0) -> Response:
    """Return the error answer of a refusal; `status` replaces the one that its code has."""
    headers = refusal_headers(refusal.code, refusal.retry_after_seconds)
    body = ErrorBody(code=refusal.code.value, message=str(refusal)[:MAX_ERROR_MESSAGE_CHARS])
    return answer(body, form, status=status or HTTP_STATUS[refusal.code], headers=headers)
