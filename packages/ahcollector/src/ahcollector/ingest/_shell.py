"""What surrounds every door: an id, a count, a log line on failure, always an answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ahcollector._readiness import Check, readiness
from ahcollector._request_ids import request_id
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._answers import refusal_answer
from ahcollector.ingest._headers import Format, ambiguity, answer_format
from ahcollector.metrics import INGEST_REQUESTS, Metrics
from ahwire import Rng
from ahwire.status import Code

__all__ = ["Check", "Handler", "Probes", "Refuse", "Shell", "form_of"]

_log = logging.getLogger("ahcollector.ingest")

Handler = Callable[[Request], Awaitable[Response]]

Refuse = Callable[[Request, RequestRefusedError], Response]
"""Writes a refusal as the callers of a door read it."""


def form_of(request: Request) -> Format:
    """Return the format that the caller of a request reads best."""
    return answer_format(request.headers.get("accept"), request.headers.get("content-type"))


def _as_agents_read(request: Request, refusal: RequestRefusedError) -> Response:
    return refusal_answer(refusal, form_of(request))


class Shell:
    """What every request has: an id, a count, a log line on failure, and an answer always.

    A refusal with 503 is no matter of one request: while it lasts it is every agent's. Each door
    warns of it once a minute, with the number meanwhile, and tells when it is over.
    """

    def __init__(self, *, rng: Rng, metrics: Metrics, clock: AsyncClock) -> None:
        self._clock = clock
        self._rng = rng
        self._metrics = metrics

    def around(self, handler: Handler, refuse: Refuse = _as_agents_read) -> Handler:
        """Return the endpoint of a door.

        Args:
            handler: Answers requests; RequestRefusedError is an answer too.
            refuse: Writes that answer; a door of another protocol has its own.
        """
        trouble = Trouble(_log, "request refused", "requests are taken again")

        async def endpoint(request: Request) -> Response:
            own_id = self._name(request)
            doubt = ambiguity(request.headers)
            try:
                if doubt:
                    raise RequestRefusedError(Code.BAD_REQUEST, doubt)
                response = await handler(request)
                trouble.is_over()
            except RequestRefusedError as refusal:
                self._log(request, refusal, trouble)
                response = refuse(request, refusal)
            except ClientDisconnect:
                # Nobody is there to read it; the answer only ends the request.
                response = refuse(
                    request, RequestRefusedError(Code.BAD_REQUEST, "the body was cut off")
                )
            except Exception:  # noqa: BLE001 - the supervisor of a request
                # Whatever a defect raises, the agent gets an answer that makes it keep its batch,
                # and the trace is in our log.
                _log.exception(
                    "request failed", extra={"request_id": own_id, "path": request.url.path}
                )
                response = refuse(
                    request,
                    RequestRefusedError(Code.SERVER_ERROR, "the collector failed: send it again"),
                )
            self._metrics.inc(INGEST_REQUESTS, code=response.headers.get("x-ah-code", "ok"))
            response.headers["X-Request-Id"] = own_id
            if doubt:
                # Where its body ends is not known for certain, nor what the next bytes belong to.
                response.headers["Connection"] = "close"
            return response

        return endpoint

    def named(self, handler: Handler) -> Handler:
        """Return a handler whose answers have the request's id; nothing else surrounds it."""

        async def endpoint(request: Request) -> Response:
            response = await handler(request)
            response.headers["X-Request-Id"] = self._name(request)
            return response

        return endpoint

    async def no_route(self, request: Request, error: Exception) -> Response:
        """Answer a path or a method that is not here."""
        assert isinstance(error, HTTPException)
        form = form_of(request)
        refusal = RequestRefusedError(Code.NOT_FOUND, f"{error.detail}: see the path and method")
        response = refusal_answer(refusal, form, status=error.status_code)
        response.headers["X-Request-Id"] = self._name(request)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    def _name(self, request: Request) -> str:
        known = getattr(request.state, "request_id", None)
        if known is None:
            known = request_id(request.headers.get("x-request-id"), self._rng)
            request.state.request_id = known
        return str(known)

    def _log(self, request: Request, refusal: RequestRefusedError, trouble: Trouble) -> None:
        agent = getattr(request.state, "agent_id", None)
        extra = {
            "request_id": request.state.request_id,
            "path": request.url.path,
            "code": refusal.code.value,
            "reason": str(refusal),
            **({} if agent is None else {"agent_id": agent}),
        }
        if refusal.code is not Code.UNAVAILABLE:
            _log.info("request refused", extra=extra)
        elif not trouble.goes_on(self._clock.monotonic(), extra):
            _log.debug("request refused", extra=extra)


class Probes:
    """Whether the process lives, and whether what it needs can be used."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Ask all dependencies at once, each for at most two seconds."""
        body, status = await readiness(self._checks)
        return JSONResponse(body, status_code=status)
