"""The application of every door while the server is not ready.

`/healthz` is answered with 200, `/readyz` with 503 and what is waited for, and all else with 503
and `Retry-After`, in the shape that agents and the callers of hub and admin door read. No body is
read.
"""

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_RETRY_AFTER = "5"
_UNAVAILABLE = 503


def waiting_app(checks: Callable[[], Mapping[str, str]]) -> ASGIApp:
    """The application.

    Args:
        checks: what is waited for, by name, each ``ok`` or what is wrong with it; `start` says that
            the server is not ready, and is told to those who are refused.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = Request(scope).url.path
        if path == "/healthz":
            response = JSONResponse({"status": "ok"})
        elif path == "/readyz":
            response = JSONResponse(
                {"status": "not ready", "checks": dict(checks())}, status_code=_UNAVAILABLE
            )
        else:
            response = JSONResponse(
                {"code": "unavailable", "message": f"{checks()['start']}: try again later"},
                status_code=_UNAVAILABLE,
                headers={"X-AH-Code": "unavailable", "Retry-After": _RETRY_AFTER},
            )
        response.headers["Cache-Control"] = "no-store"
        await response(scope, receive, send)

    return app
