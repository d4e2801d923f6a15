"""The id by which a request is known in the logs of both sides."""

from __future__ import annotations

import re

__all__ = ["request_id"]

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def request_id(given: str | None, fresh: str) -> str:
    """Return the caller's id of the request when it is fit for a log line, else `fresh`."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else fresh
