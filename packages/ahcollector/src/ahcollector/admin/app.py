"""The ASGI application that operators and the hub talk to (extra ``[http]``).

All routes but the probe and the metrics need the admin token as bearer.

==================================================  ==========================================
route                                               does
==================================================  ==========================================
``PUT /admin/v1/agents/{id}``                       takes an agent's record (JSON AgentRecord)
``GET``, ``DELETE /admin/v1/agents/{id}``           shows it, revokes it
``GET …/companies/{co}/servers/{s}/agents``         lists a server's agents
``DELETE …/companies/{co}[/servers/{s}]``           forgets agents, presence and series
``GET …/companies/{co}/series/range``, ``/latest``  queries
``GET /admin/v1/presence``, ``/counts``             who is up and down, and how many
``GET /admin/v1/outbox``                            what the hub has not taken yet
``GET``, ``DELETE /admin/v1/outbox/dead``           shows and forgets events it did not take
``POST /admin/v1/outbox/dead/replay``               sends them again
``/admin/v1/worker/dead[/replay]``                  the same for batches the store refused
``GET /healthz``, ``GET /metrics``                  the process lives; its metrics
==================================================  ==========================================
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ahcollector.admin._answers import error_answer, refusal_of
from ahcollector.admin._body import json_body
from ahcollector.admin._dead import DeadBatchDoors, DeadLetterDoors
from ahcollector.admin._params import path_id, range_query, server_id, since_ms
from ahcollector.admin._views import (
    agent_view,
    counts_view,
    outbox_view,
    points_view,
    presence_view,
)
from ahcollector.bus.base import Bus
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import CollectorError, RequestRefusedError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence
from ahcollector.registry.base import Registry
from ahcollector.registry.directory import Directory
from ahcollector.store.base import Store
from ahcollector.worker.deadletter import DeadBatches
from ahwire import AgentRecord, DecodeError
from ahwire.status import Code

__all__ = ["admin_app"]

_log = logging.getLogger("ahcollector.admin")

_PAGE_MAX = 500
_CONFLICT = 409
_Handler = Callable[[Request], Awaitable[Response]]


def admin_app(
    *,
    token: str,
    registry: Registry,
    directory: Directory,
    presence: Presence,
    store: Store,
    outbox: Outbox | None = None,
    dead_batches: DeadBatches | None = None,
    bus: Bus | None = None,
    clock: AsyncClock | None = None,
    metrics: PrometheusMetrics | None = None,
) -> Starlette:
    """Return the application.

    Args:
        token: The admin token, at least 16 characters; compared in constant time, never shown.
        registry: Read.
        directory: Written through, so that presence follows.
        presence: Who is up and down.
        store: Asked for series, and told to forget tenants.
        outbox: Shown, and its dead letters replayed and forgotten; None: 404.
        dead_batches: The worker's refused batches, likewise; None: 404.
        bus: Where refused batches are replayed to; None: their replay is 404.
        clock: Time.
        metrics: Served at ``/metrics``; None: 404.

    Raises:
        ValueError: The token is too short to be one.
    """
    if len(token) < 16:
        raise ValueError("the admin token has under 16 characters: make a longer one")
    clock = clock if clock is not None else SystemClock()
    letters = DeadLetterDoors(outbox=outbox, clock=clock)
    batches = DeadBatchDoors(dead_batches=dead_batches, bus=bus)
    doors = _Doors(
        registry=registry,
        directory=directory,
        presence=presence,
        store=store,
        outbox=outbox,
        clock=clock,
    )
    guard = _Guard(token)

    def route(path: str, handler: _Handler, method: str) -> Route:
        return Route(f"/admin/v1{path}", guard.around(handler), methods=[method])

    async def exposition(_request: Request) -> Response:
        if metrics is None:
            return error_answer(RequestRefusedError(Code.NOT_FOUND, "metrics are switched off"))
        return Response(metrics.exposition(), headers={"Content-Type": metrics.content_type})

    company = "/companies/{company_id}"
    return Starlette(
        routes=[
            route("/agents/{agent_id}", doors.put_agent, "PUT"),
            route("/agents/{agent_id}", doors.get_agent, "GET"),
            route("/agents/{agent_id}", doors.revoke_agent, "DELETE"),
            route(f"{company}/servers/{{server_id}}/agents", doors.server_agents, "GET"),
            route(f"{company}/servers/{{server_id}}", doors.delete_server, "DELETE"),
            route(company, doors.delete_company, "DELETE"),
            route(f"{company}/series/range", doors.series_range, "GET"),
            route(f"{company}/series/latest", doors.series_latest, "GET"),
            route("/presence", doors.presence_page, "GET"),
            route("/counts", doors.counts, "GET"),
            route("/outbox", doors.outbox_state, "GET"),
            route("/outbox/dead", letters.page, "GET"),
            route("/outbox/dead", letters.purge, "DELETE"),
            route("/outbox/dead/replay", letters.replay, "POST"),
            route("/worker/dead", batches.page, "GET"),
            route("/worker/dead", batches.purge, "DELETE"),
            route("/worker/dead/replay", batches.replay, "POST"),
            Route("/healthz", _health, methods=["GET"]),
            Route("/metrics", exposition, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _no_route},
    )


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_answer(RequestRefusedError(Code.NOT_FOUND, error.detail), error.status_code)


class _Guard:
    """Lets in who shows the token, and turns errors into answers."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def around(self, handler: _Handler) -> _Handler:
        async def endpoint(request: Request) -> Response:
            try:
                self._check(request.headers.get("authorization"))
                return await handler(request)
            except CollectorError as error:
                refusal = refusal_of(error)
                if refusal.code is Code.UNAVAILABLE:
                    _log.warning(
                        "admin request failed",
                        extra={"path": request.url.path, "error": str(error)},
                    )
                return error_answer(refusal)

        return endpoint

    def _check(self, authorization: str | None) -> None:
        scheme, _, shown = (authorization or "").partition(" ")
        right = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self._token)
        if scheme.lower() != "bearer" or not right:
            raise RequestRefusedError(Code.UNAUTHORIZED, "the admin token is missing or wrong")


class _Doors:
    """The routes."""

    def __init__(
        self,
        *,
        registry: Registry,
        directory: Directory,
        presence: Presence,
        store: Store,
        outbox: Outbox | None,
        clock: AsyncClock,
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._presence = presence
        self._store = store
        self._outbox = outbox
        self._clock = clock

    async def put_agent(self, request: Request) -> Response:
        agent_id = path_id(request, "agent_id")
        try:
            record = AgentRecord.from_json(await json_body(request))
        except DecodeError as error:
            raise RequestRefusedError(Code.BAD_REQUEST, f"not an AgentRecord: {error}") from error
        if record.agent_id != agent_id:
            raise RequestRefusedError(
                Code.BAD_REQUEST, f"the path names {agent_id}, the body {record.agent_id}"
            )
        put = await self._directory.put(record)
        if not put.applied:
            newest = put.after.newest_version
            raise_stale = RequestRefusedError(
                Code.BAD_REQUEST, f"version {record.version} is not above {newest}, which is known"
            )
            return error_answer(raise_stale, _CONFLICT)
        return JSONResponse(agent_view(put.after))

    async def get_agent(self, request: Request) -> Response:
        entry = await self._registry.get(path_id(request, "agent_id"))
        if entry is None:
            raise RequestRefusedError(Code.NOT_FOUND, "no such agent")
        return JSONResponse(agent_view(entry))

    async def revoke_agent(self, request: Request) -> Response:
        entry = await self._directory.revoke(path_id(request, "agent_id"))
        if entry is None:
            raise RequestRefusedError(Code.NOT_FOUND, "no such agent")
        return JSONResponse(agent_view(entry))

    async def server_agents(self, request: Request) -> Response:
        entries = await self._registry.by_server(
            path_id(request, "company_id"), path_id(request, "server_id")
        )
        return JSONResponse({"agents": [agent_view(entry) for entry in entries]})

    async def delete_server(self, request: Request) -> Response:
        company_id, server = path_id(request, "company_id"), path_id(request, "server_id")
        agents = await self._directory.delete_server(company_id, server)
        series = await self._store.delete_server(company_id, server)
        return JSONResponse({"agents": len(agents), "series": series})

    async def delete_company(self, request: Request) -> Response:
        company_id = path_id(request, "company_id")
        agents = await self._directory.delete_company(company_id)
        series = await self._store.delete_company(company_id)
        return JSONResponse({"agents": len(agents), "series": series})

    async def series_range(self, request: Request) -> Response:
        query = range_query(request)
        try:
            series = await self._store.range(
                path_id(request, "company_id"),
                query.server_id,
                query.metric,
                start_ms=query.start_ms,
                end_ms=query.end_ms,
                step_ms=query.step_ms,
                aggregate=query.aggregate,
            )
        except ValueError as error:
            raise RequestRefusedError(Code.BAD_REQUEST, str(error)) from error
        return JSONResponse({"series": [points_view(one.labels, one.points) for one in series]})

    async def series_latest(self, request: Request) -> Response:
        samples = await self._store.latest(
            path_id(request, "company_id"), server_id(request), since_ms=since_ms(request)
        )
        return JSONResponse(
            {
                "series": [
                    points_view(one.labels, ((one.timestamp_ms, one.value),)) for one in samples
                ]
            }
        )

    async def presence_page(self, request: Request) -> Response:
        company = request.query_params.get("company_id")
        page = await self._presence.agents(
            company_id=company, after=request.query_params.get("after", ""), limit=_PAGE_MAX
        )
        more = len(page) == _PAGE_MAX
        return JSONResponse(
            {
                "agents": [presence_view(one) for one in page],
                "next_after": page[-1].agent.agent_id if more else None,
            }
        )

    async def counts(self, _request: Request) -> Response:
        return JSONResponse(
            counts_view(
                await self._registry.count(),
                await self._presence.counts(),
                await self._presence.company_counts(),
            )
        )

    async def outbox_state(self, _request: Request) -> Response:
        if self._outbox is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no outbox")
        return JSONResponse(outbox_view(await self._outbox.stats(self._clock.time())))
