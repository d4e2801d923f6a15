"""The id by which a request is known in the logs of both sides."""

from __future__ import annotations

import re

from ahwire import Rng

__all__ = ["request_id"]

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def request_id(given: str | None, rng: Rng) -> str:
    """Return the caller's id of the request when it is fit for a log line, else a fresh one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return f"{rng.getrandbits(64):016x}"
