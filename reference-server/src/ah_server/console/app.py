"""The console's pages. Everything is drawn on the server: no script is sent."""

import base64
import binascii
import hmac
import logging
from datetime import UTC, datetime
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from ah_server.console._order import by_labels
from ah_server.console.charts import (
    CHARTS,
    DEFAULT_SPAN,
    SPANS,
    ChartSpec,
    chart_of,
    draw,
    step_seconds,
)
from ah_server.console.fleet import FleetView, ServerLine
from ah_server.settings import Secret
from ahcollector.errors import CollectorError
from ahcollector.store import LatestSample
from ahwire import Clock, now_ms
from ahwire.names import metric_name

_POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; base-uri 'none'; form-action 'self'"
)
# A chart is a document of its own and brings its own style.
_CHART_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_EVENTS_SHOWN = 20
_log = logging.getLogger("ah_server.console")


def console_app(
    *,
    view: FleetView,
    clock: Clock,
    password: Secret,
    refresh_seconds: int,
    step_seconds_min: int = 1,
) -> ASGIApp:
    """Builds the console.

    Args:
        view: what is shown.
        clock: now, for the right end of the charts.
        password: asked with HTTP Basic (any user name); empty: nobody is asked.
        refresh_seconds: pages load themselves anew after this time.
        step_seconds_min: the least step of a range that the view answers.
    """
    pages = _Pages(
        view=view,
        clock=clock,
        refresh_seconds=refresh_seconds,
        step_seconds_min=step_seconds_min,
    )
    server = "/companies/{company_id}/servers/{server_id}"
    return Starlette(
        routes=[
            Route("/", pages.fleet),
            Route("/companies/{company_id}", pages.company),
            Route(server, pages.server),
            Route(server + "/charts/{slug}.svg", pages.chart),
            Route(server + "/metrics/{metric}.svg", pages.metric_chart),
            Route(server + "/metrics/{metric}", pages.metric),
            Route("/healthz", _healthz),
            Mount("/static", StaticFiles(packages=[("ah_server", "console/static")])),
        ],
        middleware=[Middleware(_Door, password=password)],
        exception_handlers={404: pages.not_found, CollectorError: pages.unavailable},
    )


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


class _Door:
    """Asks for the password, and sets the headers every answer carries."""

    def __init__(self, app: ASGIApp, *, password: Secret) -> None:
        self._app = app
        self._password = password.reveal().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/healthz" or self._may_enter(scope):
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": 'Basic realm="console", charset="UTF-8"'}
        await PlainTextResponse("The console asks for its password.", 401, headers)(
            scope, receive, send
        )

    def _may_enter(self, scope: Scope) -> bool:
        if not self._password:
            return True
        kind, _, value = Request(scope).headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            given = base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
        return hmac.compare_digest(given, self._password)


class _Pages:
    def __init__(
        self, *, view: FleetView, clock: Clock, refresh_seconds: int, step_seconds_min: int
    ) -> None:
        self._view = view
        self._clock = clock
        self._step_seconds_min = step_seconds_min
        self._templates = Environment(
            loader=PackageLoader("ah_server", "console/templates"),
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
        )
        self._templates.globals.update(
            refresh_seconds=refresh_seconds, path_of=_path_of, company_path=_company_path
        )
        self._templates.filters.update(ago=self._ago, number=_number, utc=_utc)

    async def fleet(self, _request: Request) -> Response:
        return self._html("fleet.html", servers=await self._view.servers(), company=None)

    async def company(self, request: Request) -> Response:
        company_id = request.path_params["company_id"]
        servers = await self._view.servers(company_id)
        if not servers:
            return await self.not_found(request, None)
        return self._html("fleet.html", servers=servers, company=company_id)

    async def server(self, request: Request) -> Response:
        line = await self._line(request)
        if line is None:
            return await self.not_found(request, None)
        latest = sorted(
            await self._view.latest(line.company_id, line.server_id),
            key=lambda sample: by_labels(sample.labels),
        )
        sent = {sample.labels[0][1] for sample in latest}
        return self._html(
            "server.html",
            server=line,
            charts=[chart for chart in CHARTS if metric_name(chart.metric) in sent],
            spans=tuple(SPANS),
            span=_span(request),
            latest=[one for one in latest if not _is_agents_own(one)],
            agents_own=[one for one in latest if _is_agents_own(one)],
            events=[
                one
                for one in await self._view.events(line.company_id, 200)
                if one.event.server_id == line.server_id
            ][:_EVENTS_SHOWN],
        )

    async def metric(self, request: Request) -> Response:
        line = await self._line(request)
        if line is None:
            return await self.not_found(request, None)
        return self._html(
            "metric.html",
            server=line,
            metric=request.path_params["metric"],
            spans=tuple(SPANS),
            span=_span(request),
        )

    async def chart(self, request: Request) -> Response:
        specs = {spec.slug: spec for spec in CHARTS}
        spec = specs.get(request.path_params["slug"])
        return await self._chart(request, spec)

    async def metric_chart(self, request: Request) -> Response:
        return await self._chart(request, chart_of(request.path_params["metric"]))

    async def _chart(self, request: Request, spec: ChartSpec | None) -> Response:
        line = await self._line(request)
        seconds = SPANS.get(request.query_params.get("span", DEFAULT_SPAN))
        if spec is None or seconds is None or line is None:
            return PlainTextResponse("There is no such chart.", 404)
        # The end is a whole step, so that points keep their places from one load to the next, and
        # the step that has begun counts, so that a sample is drawn as soon as it has arrived.
        step_ms = step_seconds(seconds, least=self._step_seconds_min) * 1000
        end_ms = -(-now_ms(self._clock) // step_ms) * step_ms
        start_ms = end_ms - seconds * 1000
        series = await self._view.history(
            line.company_id,
            line.server_id,
            spec.metric,
            start_ms=start_ms,
            end_ms=end_ms,
            step_ms=step_ms,
        )
        svg = draw(
            spec,
            series,
            start_ms=start_ms,
            end_ms=end_ms,
            # One sample may be late or lost without the line being cut.
            gap_ms=max(2 * step_ms, round(2.5 * line.interval_seconds * 1000)),
            small="small" in request.query_params,
        )
        headers = {"Content-Security-Policy": _CHART_POLICY, "Cache-Control": "no-store"}
        return Response(svg, media_type="image/svg+xml", headers=headers)

    async def _line(self, request: Request) -> ServerLine | None:
        params = request.path_params
        return await self._view.server(params["company_id"], params["server_id"])

    async def not_found(self, _request: Request, _error: Exception | None) -> Response:
        return self._html("not_found.html", status=404)

    async def unavailable(self, request: Request, error: Exception) -> Response:
        """Says that Redis, or what else keeps the state, is away; nothing here is wrong then."""
        _log.warning(
            "the console has nothing to show", extra={"path": request.url.path, "error": str(error)}
        )
        return self._html("unavailable.html", status=503, why=str(error))

    def _html(self, template: str, status: int = 200, **values: object) -> Response:
        page = self._templates.get_template(template).render(**values)
        headers = {
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(page, status, headers)

    def _ago(self, at: datetime | None) -> str:
        if at is None:
            return "never"
        seconds = max(0, int(self._clock.time() - at.astimezone(UTC).timestamp()))
        for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
            if seconds >= size:
                return f"{seconds // size} {unit} ago"
        return f"{seconds} s ago"


def _company_path(company_id: str) -> str:
    return f"/companies/{quote(company_id, safe='')}"


def _path_of(company_id: str, server_id: str) -> str:
    return f"{_company_path(company_id)}/servers/{quote(server_id, safe='')}"


def _span(request: Request) -> str:
    span = request.query_params.get("span", DEFAULT_SPAN)
    return span if span in SPANS else DEFAULT_SPAN


def _is_agents_own(sample: LatestSample) -> bool:
    return sample.labels[0][1].startswith("ah_agent_")


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _number(value: float) -> str:
    if abs(value) < 0.005:  # what two places would show as -0.00
        return "0" if value == 0 else f"{value:.2g}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:,.2f}".replace(",", "\u202f")
