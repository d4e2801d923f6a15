"""A WSGI program whose workers count what they serve, each in a file that all can read."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import Counter

SERVED = Counter("shop_requests", "Requests that were answered.")


def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers everything with the id of the process that served it."""
    SERVED.inc()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()}\n".encode()]
