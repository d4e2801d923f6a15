"""The ASGI application that operators and the hub talk to (extra ``[http]``).

What it does is in the table of `ahcollector.admin._routes`, which the routing, the OpenAPI document
at ``/admin/v1/openapi.json`` and the reference page are made from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from random import SystemRandom
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from ahcollector._readiness import Check
from ahcollector.admin._answers import JsonLine, conflict_answer
from ahcollector.admin._body import Bodies
from ahcollector.admin._dead import DeadBatchDoors, DeadEntryDoors, DeadLetterDoors
from ahcollector.admin._params import (
    PAGE_MAX,
    company_asked,
    page_asked,
    path_id,
    range_query,
    server_id,
    since_ms,
)
from ahcollector.admin._probes import ProcessDoors
from ahcollector.admin._routes import ROUTES
from ahcollector.admin._shell import Handler, Shell
from ahcollector.admin._views import (
    agent_view,
    counts_view,
    outbox_view,
    points_view,
    presence_view,
)
from ahcollector.bus.base import Bus, BusDeadLetters
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import RequestRefusedError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence
from ahcollector.registry.base import Registry
from ahcollector.registry.directory import Directory
from ahcollector.store.base import Deleter, Store
from ahcollector.worker.deadletter import DeadBatches
from ahwire import AgentRecord, DecodeError, Rng
from ahwire.status import Code

__all__ = ["TOKEN_CHARS_MIN", "Reload", "TenantAlerts", "admin_app"]

TOKEN_CHARS_MIN = 16
"""How long an admin token is at least."""

Reload = Callable[[], Awaitable[int]]
"""Pulls from the hub and returns how many are in force then; raises CollectorError."""


class TenantAlerts(Protocol):
    """Ends the alerts of tenants that are taken away; `ahcollector.alerts.AlertEngine` is one.

    Both may be repeated, and raise `CollectorError` where that could not be done.
    """

    async def forget_server(self, company_id: str, server_id: str) -> None:
        """Resolve the alerts of a server."""
        ...

    async def forget_company(self, company_id: str) -> None:
        """Resolve the alerts of a company."""
        ...


def admin_app(
    *,
    token: str,
    previous_token: str | None = None,
    registry: Registry,
    directory: Directory,
    presence: Presence,
    store: Store,
    deleter: Deleter | None = None,
    outbox: Outbox | None = None,
    dead_batches: DeadBatches | None = None,
    bus: Bus | None = None,
    bus_dead: BusDeadLetters | None = None,
    alerts: TenantAlerts | None = None,
    reload_rules: Reload | None = None,
    reload_silences: Reload | None = None,
    checks: Mapping[str, Check] | None = None,
    body_timeout_seconds: float = 15.0,
    clock: AsyncClock | None = None,
    rng: Rng | None = None,
    metrics: PrometheusMetrics | None = None,
) -> Starlette:
    """Return the application.

    Args:
        token: The admin token, at least 16 characters; compared in constant time, never shown.
        previous_token: Taken too, while callers are given the new one; None: no other.
        registry: Read.
        directory: Written through, so that presence follows.
        presence: Who is up and down.
        store: Asked for series.
        deleter: Told to forget tenants; None: the store itself.
        outbox: Shown, and its dead letters replayed and forgotten; None: 404.
        dead_batches: The worker's refused batches, likewise; None: 404.
        bus: Where refused batches are replayed to; None: their replay is 404.
        bus_dead: The dead letters of the bus; None: 404.
        alerts: Told of tenants that are deleted; None: nobody judges them.
        reload_rules: Pulls the threshold rules; None: 404.
        reload_silences: Pulls the silences; None: 404.
        checks: Dependencies by name, for ``/readyz``.
        body_timeout_seconds: How long a whole body may take.
        clock: Time.
        rng: Makes request ids where a caller sent none.
        metrics: Served at ``/metrics``; None: 404.

    Raises:
        ValueError: A token is too short to be one.
    """
    tokens = [token] if previous_token is None else [token, previous_token]
    if any(len(one) < TOKEN_CHARS_MIN for one in tokens):
        raise ValueError(
            f"an admin token has under {TOKEN_CHARS_MIN} characters: make a longer one"
        )
    clock = clock if clock is not None else SystemClock()
    bodies = Bodies(timeout_seconds=body_timeout_seconds)
    doors = _Doors(
        registry=registry,
        directory=directory,
        presence=presence,
        store=store,
        deleter=deleter if deleter is not None else store,
        outbox=outbox,
        alerts=alerts,
        bodies=bodies,
        clock=clock,
    )
    process = ProcessDoors(
        clock=clock, registry=registry, checks=checks if checks is not None else {}, metrics=metrics
    )
    handlers = {
        **_handlers(doors, process),
        **_dead_handlers("Outbox", DeadLetterDoors(outbox=outbox, bodies=bodies, clock=clock)),
        **_dead_handlers("Bus", DeadEntryDoors(dead=bus_dead, bodies=bodies)),
        **_dead_handlers(
            "Worker", DeadBatchDoors(dead_batches=dead_batches, bus=bus, bodies=bodies)
        ),
        "reloadRules": _reloading(reload_rules, "rules"),
        "reloadSilences": _reloading(reload_silences, "silences"),
    }
    shell = Shell(tokens=tokens, rng=rng if rng is not None else SystemRandom(), clock=clock)
    app = Starlette(
        routes=_routes(handlers, shell), exception_handlers={HTTPException: shell.no_route}
    )
    # What is not in the table is answered 404, and not by leading a token to another address.
    app.router.redirect_slashes = False
    return app


def _routes(handlers: Mapping[str, Handler], shell: Shell) -> Sequence[StarletteRoute]:
    """Return a route for each path: a 405 then names all methods of the path."""
    found = []
    by_path = sorted(ROUTES, key=lambda route: route.path)
    for path, routes in groupby(by_path, key=lambda route: route.path):
        methods = {one.method: shell.around(one, handlers[one.name]) for one in routes}
        found.append(StarletteRoute(path, _by_method(methods), methods=list(methods)))
    return found


def _by_method(methods: Mapping[str, Handler]) -> Handler:
    async def endpoint(request: Request) -> Response:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _handlers(doors: _Doors, process: ProcessDoors) -> dict[str, Handler]:
    return {
        "putAgent": doors.put_agent,
        "getAgent": doors.get_agent,
        "revokeAgent": doors.revoke_agent,
        "listServerAgents": doors.server_agents,
        "deleteCompany": doors.delete_company,
        "deleteServer": doors.delete_server,
        "querySeriesRange": doors.series_range,
        "querySeriesLatest": doors.series_latest,
        "listPresence": doors.presence_page,
        "getCounts": doors.counts,
        "getOutbox": doors.outbox_state,
        "getOpenapi": process.openapi,
        "getHealth": process.health,
        "getReadiness": process.ready,
        "getMetrics": process.exposition,
    }


def _dead_handlers(
    part: str, doors: DeadLetterDoors | DeadEntryDoors | DeadBatchDoors
) -> dict[str, Handler]:
    return {
        f"list{part}Dead": doors.page,
        f"delete{part}Dead": doors.purge,
        f"replay{part}Dead": doors.replay,
    }


def _reloading(reload: Reload | None, what: str) -> Handler:
    async def endpoint(_request: Request) -> Response:
        if reload is None:
            raise RequestRefusedError(
                Code.NOT_FOUND, f"this process evaluates no {what}: ask the one that does"
            )
        return JsonLine({"in_force": await reload()})

    return endpoint


class _Doors:
    """The routes."""

    def __init__(
        self,
        *,
        registry: Registry,
        directory: Directory,
        presence: Presence,
        store: Store,
        deleter: Deleter,
        outbox: Outbox | None,
        alerts: TenantAlerts | None,
        bodies: Bodies,
        clock: AsyncClock,
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._presence = presence
        self._store = store
        self._deleter = deleter
        self._outbox = outbox
        self._alerts = alerts
        self._bodies = bodies
        self._clock = clock

    async def put_agent(self, request: Request) -> Response:
        agent_id = path_id(request, "agent_id")
        try:
            record = AgentRecord.from_json(await self._bodies.read(request))
        except DecodeError as error:
            raise RequestRefusedError(Code.BAD_REQUEST, f"not an AgentRecord: {error}") from error
        if record.agent_id != agent_id:
            raise RequestRefusedError(
                Code.BAD_REQUEST, f"the path names {agent_id}, the body {record.agent_id}"
            )
        put = await self._directory.put(record)
        if not put.applied:
            newest = put.after.newest_version
            return conflict_answer(
                f"version {record.version} is not above {newest}, which is known: send the hub's"
                " newest record"
            )
        return JsonLine(agent_view(put.after))

    async def get_agent(self, request: Request) -> Response:
        entry = await self._registry.get(path_id(request, "agent_id"))
        if entry is None:
            raise RequestRefusedError(Code.NOT_FOUND, "no such agent")
        return JsonLine(agent_view(entry))

    async def revoke_agent(self, request: Request) -> Response:
        entry = await self._directory.revoke(path_id(request, "agent_id"))
        if entry is None:
            raise RequestRefusedError(Code.NOT_FOUND, "no such agent")
        return JsonLine(agent_view(entry))

    async def server_agents(self, request: Request) -> Response:
        page = page_asked(request, default=PAGE_MAX)
        entries = await self._registry.by_server(
            path_id(request, "company_id"), path_id(request, "server_id")
        )
        behind = [one for one in entries if one.record.agent_id > page.after][: page.limit + 1]
        shown, more = behind[: page.limit], len(behind) > page.limit
        return JsonLine(
            {
                "agents": [agent_view(entry) for entry in shown],
                "next_after": shown[-1].record.agent_id if more else None,
            }
        )

    async def delete_server(self, request: Request) -> Response:
        company_id, server = path_id(request, "company_id"), path_id(request, "server_id")
        agents = await self._directory.delete_server(company_id, server)
        series = await self._deleter.delete_server(company_id, server)
        if self._alerts is not None:
            await self._alerts.forget_server(company_id, server)
        return JsonLine({"agents": len(agents), "series": series})

    async def delete_company(self, request: Request) -> Response:
        company_id = path_id(request, "company_id")
        agents = await self._directory.delete_company(company_id)
        series = await self._deleter.delete_company(company_id)
        if self._alerts is not None:
            await self._alerts.forget_company(company_id)
        return JsonLine({"agents": len(agents), "series": series})

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
        return JsonLine({"series": [points_view(one.labels, one.points) for one in series]})

    async def series_latest(self, request: Request) -> Response:
        samples = await self._store.latest(
            path_id(request, "company_id"), server_id(request), since_ms=since_ms(request)
        )
        return JsonLine(
            {
                "series": [
                    points_view(one.labels, ((one.timestamp_ms, one.value),)) for one in samples
                ]
            }
        )

    async def presence_page(self, request: Request) -> Response:
        company, page = company_asked(request), page_asked(request, default=PAGE_MAX)
        agents = await self._presence.agents(company_id=company, after=page.after, limit=page.limit)
        more = len(agents) == page.limit
        return JsonLine(
            {
                "agents": [presence_view(one) for one in agents],
                "next_after": agents[-1].agent.agent_id if more else None,
            }
        )

    async def counts(self, _request: Request) -> Response:
        return JsonLine(
            counts_view(
                await self._registry.count(),
                await self._presence.counts(),
                await self._presence.company_counts(),
            )
        )

    async def outbox_state(self, _request: Request) -> Response:
        if self._outbox is None:
            raise RequestRefusedError(Code.NOT_FOUND, "this process has no outbox")
        return JsonLine(outbox_view(await self._outbox.stats(self._clock.time())))
