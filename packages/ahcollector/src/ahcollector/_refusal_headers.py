"""The headers of a refusal, the same at every door."""

from __future__ import annotations

import math

from ahwire.limits import MAX_RETRY_AFTER_SENT_SECONDS
from ahwire.status import Code

__all__ = ["refusal_headers"]


def refusal_headers(code: Code, retry_after_seconds: float | None) -> dict[str, str]:
    """Return the headers that a refusal has at every door; None: nothing to wait for."""
    headers = {"X-AH-Code": code.value}
    if retry_after_seconds is not None:
        seconds = min(max(1, math.ceil(retry_after_seconds)), MAX_RETRY_AFTER_SENT_SECONDS)
        headers["Retry-After"] = str(seconds)
    if code in {Code.UNAUTHORIZED, Code.LICENSE_INVALID}:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
