"""What surrounds every route of the admin door: an id, the token, a log line, always an answer."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ahcollector._openapi import Route
from ahcollector._request_ids import request_id
from ahcollector._trouble import Trouble
from ahcollector.admin._answers import error_answer, refusal_of
from ahcollector.admin._params import check_names
from ahcollector.clock import AsyncClock
from ahcollector.errors import CollectorError, RequestRefusedError
from ahwire import Rng
from ahwire.status import Code

__all__ = ["Handler", "Shell"]

_log = logging.getLogger("ahcollector.admin")

Handler = Callable[[Request], Awaitable[Response]]
_READING = frozenset({"GET", "HEAD"})
_GOOD = range(200, 300)


class Shell:
    """Lets in who shows a token, and turns errors into answers.

    Args:
        tokens: Every token that is good now.
        rng: Makes request ids where a caller sent none.
        clock: A route that cannot be served is told of once a minute.
    """

    def __init__(self, *, tokens: Sequence[str], rng: Rng, clock: AsyncClock) -> None:
        self._clock = clock
        # Digests, so that all comparisons take the same time whatever a token's length is.
        self._digests = [_digest(token.encode()) for token in tokens]
        self._rng = rng

    def around(self, route: Route, handler: Handler) -> Handler:
        """Return a handler that answers always."""
        known, repeatable = route.query_names(), route.repeatable_names()
        trouble = Trouble(_log, "admin request refused", "admin requests are served again")

        async def endpoint(request: Request) -> Response:
            own_id = self._name(request)
            try:
                if route.bearer:
                    self._check(request.headers.get("authorization"))
                    check_names(request, known, repeatable)
                response = await handler(request)
                trouble.is_over()
            except CollectorError as error:
                refusal = refusal_of(error)
                self._log(request, refusal, trouble)
                response = error_answer(refusal)
            except ClientDisconnect:
                # Nobody is there to read it; the answer only ends the request.
                response = error_answer(
                    RequestRefusedError(Code.BAD_REQUEST, "the body was cut off")
                )
            except Exception:  # noqa: BLE001 - the supervisor of a request
                # A defect of ours: the caller gets an answer, and the log the trace.
                _log.exception(
                    "admin request failed",
                    extra={"request_id": own_id, "path": request.url.path},
                )
                response = error_answer(
                    RequestRefusedError(Code.SERVER_ERROR, f"a defect: see the log for {own_id}")
                )
            if request.method not in _READING and response.status_code in _GOOD:
                # What was changed, and when, is found in the log by whoever looks for it.
                _log.info(
                    "admin request done",
                    extra={
                        "request_id": own_id,
                        "method": request.method,
                        "path": request.url.path,
                    },
                )
            response.headers["X-Request-Id"] = own_id
            return response

        return endpoint

    async def no_route(self, request: Request, error: Exception) -> Response:
        """Answer a path or a method that is not here."""
        assert isinstance(error, HTTPException)
        refusal = RequestRefusedError(
            Code.NOT_FOUND, f"{error.detail}: see the paths and methods in /admin/v1/openapi.json"
        )
        response = error_answer(refusal, error.status_code)
        response.headers["X-Request-Id"] = self._name(request)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    def _name(self, request: Request) -> str:
        named = request_id(request.headers.get("x-request-id"), self._rng)
        request.state.request_id = named
        return named

    def _log(self, request: Request, refusal: RequestRefusedError, trouble: Trouble) -> None:
        extra = {
            "request_id": request.state.request_id,
            "method": request.method,
            "path": request.url.path,
            "code": refusal.code.value,
            "reason": str(refusal),
        }
        if refusal.code is not Code.UNAVAILABLE:
            _log.info("admin request refused", extra=extra)
        elif not trouble.goes_on(self._clock.monotonic(), extra):
            _log.debug("admin request refused", extra=extra)

    def _check(self, authorization: str | None) -> None:
        scheme, _, shown = (authorization or "").partition(" ")
        # Header bytes reach us as latin-1 text, so this gives back the bytes that were sent.
        digest = _digest(shown.strip().encode("latin-1", "replace"))
        right = False
        for known in self._digests:
            right |= hmac.compare_digest(digest, known)
        if scheme.lower() != "bearer" or not right:
            raise RequestRefusedError(
                Code.UNAUTHORIZED,
                "the admin token is missing or wrong: send Authorization: Bearer <admin.token>",
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
