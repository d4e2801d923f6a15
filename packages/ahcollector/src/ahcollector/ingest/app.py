"""The ASGI application that agents talk to; another service can mount it.

=====================================  =======================================================
route                                  does
=====================================  =======================================================
``POST /agent/v1/metrics``             takes a batch
``GET /agent/v1/config``               tells the configuration
``GET /agent/v1/ping``                 says that the collector is here; no token
``POST /agent/v1/enroll``              exchanges a license; no token
``POST /agent/v1/credentials/renew``   gives a new token
``POST /agent/v1/inventory``           passes an inventory on
``POST /api/v1/write``                 takes Prometheus remote write, 1.0 and 2.0
``POST /v1/metrics``                   takes metrics of OpenTelemetry, OTLP/HTTP
``GET /agent/v1/openapi.json``         describes this door; no token
``GET /healthz``, ``GET /readyz``      the process lives; each dependency can be used
=====================================  =======================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import TypeVar

from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ahcollector.budget.keeper import BudgetKeeper
from ahcollector.budget.series_budget import SeriesBudget
from ahcollector.bus.base import Bus
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.enroll.proxy import EnrollProxy, unavailable
from ahcollector.enroll.renewal import Renewal
from ahcollector.errors import HubError
from ahcollector.hub.base import InventoryHub
from ahcollector.ingest._answers import answer
from ahcollector.ingest._batches import BatchIntake
from ahcollector.ingest._body import BodyReader, interval_named, read_sent
from ahcollector.ingest._document import show_document
from ahcollector.ingest._foreign import ForeignDoor
from ahcollector.ingest._gate import Gate, Pass
from ahcollector.ingest._headers import (
    Format,
    IPNetwork,
    answer_format,
    client_ip,
    etag_matches,
)
from ahcollector.ingest._otlp import OtlpDoor
from ahcollector.ingest._remote_write import RemoteWriteDoor
from ahcollector.ingest._shell import Check, Handler, Probes, Shell, form_of
from ahcollector.ingest.limits import IngestLimits
from ahcollector.metrics import INGEST_BUS_DEPTH, Metrics, NullMetrics
from ahcollector.presence.base import Presence
from ahcollector.registry.resolver import Resolver
from ahcollector.registry.settings import CompanySettingsCache
from ahwire import Rng
from ahwire.agent_pb2 import EnrollRequest, Inventory, MetricsBatch
from ahwire.batch import RawBatch
from ahwire.status import Code

__all__ = ["Check", "ingest_app"]


_ACCEPTED = 202
_NOT_MODIFIED = 304
_UNPROCESSABLE = 422
M = TypeVar("M", bound=Message)


def ingest_app(
    *,
    resolver: Resolver,
    presence: Presence,
    bus: Bus,
    settings: CompanySettingsCache,
    hub: InventoryHub | None = None,
    enroll: EnrollProxy | None = None,
    renewal: Renewal | None = None,
    budget: SeriesBudget | None = None,
    keeper: BudgetKeeper | None = None,
    limits: IngestLimits | None = None,
    clock: AsyncClock | None = None,
    rng: Rng | None = None,
    trusted_proxies: Sequence[IPNetwork] = (),
    checks: Mapping[str, Check] | None = None,
    metrics: Metrics | None = None,
) -> Starlette:
    """Return the application.

    Args:
        resolver: Knows whose token it is.
        presence: Told of every sign of life.
        bus: Takes accepted batches.
        settings: What agents are told, by company.
        hub: Takes inventories; None: they are answered 503.
        enroll: Exchanges licenses; None: answered 503.
        renewal: Renews tokens; None: answered 503.
        budget: New series of each agent; one of its own by default.
        keeper: Keeps `budget` in a store, over restarts; its `run` is for the caller to run.
        limits: What requests are held to.
        clock: Time.
        rng: Makes request ids where an agent sent none.
        trusted_proxies: Networks whose ``X-Forwarded-For`` is believed.
        checks: Dependencies by name, for ``/readyz``.
        metrics: Where requests and points are counted.
    """
    limits = limits if limits is not None else IngestLimits()
    clock = clock if clock is not None else SystemClock()
    metrics = metrics if metrics is not None else NullMetrics()
    if budget is None:
        budget = SeriesBudget(
            per_hour=limits.series_per_hour, first_hour=limits.series_first_hour, metrics=metrics
        )
    gate = Gate(resolver=resolver, presence=presence, settings=settings, clock=clock, limits=limits)
    intake = BatchIntake(
        bus=bus, budget=budget, keeper=keeper, clock=clock, limits=limits, metrics=metrics
    )
    foreign = ForeignDoor(gate=gate, intake=intake, limits=limits, metrics=metrics)
    reader = BodyReader()
    remote_write = RemoteWriteDoor(door=foreign, reader=reader, limits=limits)
    otlp = OtlpDoor(door=foreign, reader=reader, limits=limits, clock=clock)
    doors = _Doors(
        gate=gate,
        intake=intake,
        reader=reader,
        settings=settings,
        hub=hub,
        enroll=enroll,
        renewal=renewal,
        limits=limits,
        trusted_proxies=trusted_proxies,
    )
    metrics.watch(INGEST_BUS_DEPTH, lambda: float(sum(bus.depth().values())))
    shell = Shell(rng=rng if rng is not None else SystemRandom(), metrics=metrics, clock=clock)
    probes = Probes(checks if checks is not None else {})

    def route(path: str, handler: Handler, method: str) -> Route:
        return Route(path, shell.around(handler), methods=[method])

    app = Starlette(
        routes=[
            route("/agent/v1/metrics", doors.metrics, "POST"),
            route("/agent/v1/config", doors.config, "GET"),
            route("/agent/v1/ping", doors.ping, "GET"),
            route("/agent/v1/enroll", doors.enroll, "POST"),
            route("/agent/v1/credentials/renew", doors.renew, "POST"),
            route("/agent/v1/inventory", doors.inventory, "POST"),
            Route(
                "/api/v1/write",
                shell.around(remote_write.write, remote_write.refuse),
                methods=["POST"],
            ),
            Route("/v1/metrics", shell.around(otlp.metrics, otlp.refuse), methods=["POST"]),
            Route("/agent/v1/openapi.json", shell.named(show_document), methods=["GET"]),
            Route("/healthz", shell.named(probes.health), methods=["GET"]),
            Route("/readyz", shell.named(probes.ready), methods=["GET"]),
        ],
        exception_handlers={HTTPException: shell.no_route},
    )
    # A path with one slash too many is not here: no answer leads a token to another address.
    app.router.redirect_slashes = False
    return app


class _Doors:
    """The routes of agents."""

    def __init__(
        self,
        *,
        gate: Gate,
        intake: BatchIntake,
        reader: BodyReader,
        settings: CompanySettingsCache,
        hub: InventoryHub | None,
        enroll: EnrollProxy | None,
        renewal: Renewal | None,
        limits: IngestLimits,
        trusted_proxies: Sequence[IPNetwork],
    ) -> None:
        self._gate = gate
        self._intake = intake
        self._reader = reader
        self._settings = settings
        self._hub = hub
        self._enroll = enroll
        self._renewal = renewal
        self._limits = limits
        self._trusted_proxies = trusted_proxies

    async def metrics(self, request: Request) -> Response:
        passed = await self._gate.metrics(request.headers)
        request.state.agent_id = passed.agent.agent_id
        async with self._gate.answered(passed.agent):
            return await self._metrics(request, passed)

    async def _metrics(self, request: Request, passed: Pass) -> Response:
        batch = await self._batch(request)
        await self._gate.heard_interval(passed.agent, interval_named(batch))
        company = self._settings.current(passed.agent.company_id)
        outcome = await self._intake.take(
            passed, batch, request_id=request.state.request_id, config_etag=company.etag
        )
        form = form_of(request)
        if outcome.nothing_accepted:
            return answer(
                outcome.ack,
                form,
                status=_UNPROCESSABLE,
                headers={"X-AH-Code": Code.INVALID_SERIES.value},
            )
        return answer(outcome.ack, form, status=_ACCEPTED)

    async def _batch(self, request: Request) -> MetricsBatch | RawBatch:
        # Only what it means is kept while it is judged.
        form, body = await self._body(
            request, self._limits.compressed_bytes_max, self._limits.plain_bytes_max
        )
        return await self._reader.batch(body, form, self._limits.batch)

    async def config(self, request: Request) -> Response:
        passed = await self._gate.other(request.headers, "config")
        request.state.agent_id = passed.agent.agent_id
        company = await self._settings.get(passed.agent.company_id)
        headers = {"ETag": f'"{company.etag}"'}
        if etag_matches(request.headers.get("if-none-match"), company.etag):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        form = answer_format(request.headers.get("accept"), None)
        return answer(company.config, form, headers=headers)

    async def ping(self, _request: Request) -> Response:
        return Response(status_code=200)

    async def enroll(self, request: Request) -> Response:
        address = client_ip(
            request.client.host if request.client is not None else None,
            ",".join(request.headers.getlist("x-forwarded-for")),
            self._trusted_proxies,
        )
        self._gate.stranger(request.headers, address)
        if self._enroll is None:
            raise unavailable("this collector has no hub to enrol with")
        message = await self._small(request, EnrollRequest)
        reply = await self._enroll.enroll(
            message, client_ip=address, request_id=request.state.request_id
        )
        return answer(reply, form_of(request))

    async def renew(self, request: Request) -> Response:
        passed = await self._gate.other(request.headers, "renew")
        request.state.agent_id = passed.agent.agent_id
        if self._renewal is None:
            raise unavailable("this collector has no hub to renew tokens with")
        reply = await self._renewal.renew(
            passed.agent, shown_hash=passed.token_hash, request_id=request.state.request_id
        )
        return answer(reply, form_of(request))

    async def inventory(self, request: Request) -> Response:
        passed = await self._gate.other(request.headers, "inventory")
        request.state.agent_id = passed.agent.agent_id
        if self._hub is None:
            raise unavailable("this collector has no hub that takes inventories")
        message = await self._small(request, Inventory)
        try:
            await self._hub.send_inventory(
                passed.agent.agent_id, message, request_id=request.state.request_id
            )
        except HubError as error:
            raise unavailable("the hub takes no inventory now") from error
        return Response(status_code=_ACCEPTED)

    async def _small(self, request: Request, message: type[M]) -> M:
        most = self._limits.small_body_bytes_max
        form, body = await self._body(request, most, most)
        return await self._reader.small(body, message, form)

    async def _body(
        self, request: Request, compressed_bytes_max: int, plain_bytes_max: int
    ) -> tuple[Format, bytes]:
        return await read_sent(
            request,
            compressed_bytes_max=compressed_bytes_max,
            plain_bytes_max=plain_bytes_max,
            timeout_seconds=self._limits.body_timeout_seconds,
        )
