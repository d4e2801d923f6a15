"""The development hub's HTTP side: the collector's calls, and an admin page and API.

The collector's calls follow the contract in `ahwire.hub`. Everything asks for the hub token: as a
bearer token from programs, as the password of HTTP Basic from a browser on the admin page.
"""

import base64
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from sqlalchemy.exc import OperationalError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ah_server.hub._bodies import (
    RefusedBodyError,
    decode_events,
    etag_response,
    is_number,
    read_body,
    read_mapping,
)
from ah_server.hub.alerting_lists import AlertingLists, ListName, RefusedListError
from ah_server.hub.company_settings import CompanySettingsTable
from ah_server.hub.event_log import EventLog, FencedError
from ah_server.hub.faults import FAULTS_PATH, FaultPlan, Faults
from ah_server.hub.identities import EnrollRefusedError, Identities
from ah_server.settings import Secret
from ahwire.errors import DecodeError
from ahwire.hub import CompanySettings, Heartbeat, InventoryReport, RenewRequest, SeenReport
from ahwire.limits import MAX_FENCE
from ahwire.names import is_id

PREFIX = "/api/v1/monitoring/collector"
_RETRY_AFTER_SECONDS = 5

_log = logging.getLogger("ah_server.hub")

Handler = Callable[[Request], Awaitable[Response]]


def hub_app(
    *,
    token: Secret,
    identities: Identities,
    event_log: EventLog,
    settings: CompanySettingsTable,
    lists: AlertingLists,
) -> Faults:
    """Builds the hub's ASGI application; its failures are set on the returned `Faults`."""
    collector = _CollectorCalls(identities=identities, event_log=event_log, settings=settings)
    listed = _ListCalls(lists=lists)
    admin = _AdminCalls(identities=identities, event_log=event_log, settings=settings)
    bearer = _guard(token)
    routes = [
        Route(PREFIX + "/enroll", bearer(collector.enroll), methods=["POST"]),
        Route(PREFIX + "/credentials/renew", bearer(collector.renew), methods=["POST"]),
        Route(PREFIX + "/agents", bearer(collector.agents), methods=["GET"]),
        Route(PREFIX + "/events", bearer(collector.events), methods=["POST"]),
        Route(PREFIX + "/agents/seen", bearer(collector.seen), methods=["POST"]),
        Route(PREFIX + "/inventory", bearer(collector.inventory), methods=["POST"]),
        Route(PREFIX + "/heartbeat", bearer(collector.heartbeat), methods=["POST"]),
        Route(PREFIX + "/rules", bearer(listed.rules), methods=["GET"]),
        Route(PREFIX + "/silences", bearer(listed.silences), methods=["GET"]),
        Route(PREFIX + "/settings/{company_id}", bearer(collector.settings), methods=["GET"]),
        Route("/admin", bearer(admin.page), methods=["GET"]),
        Route("/admin/api/licenses", bearer(admin.new_license), methods=["POST"]),
        Route("/admin/api/agents", bearer(admin.agents), methods=["GET"]),
        Route("/admin/api/agents/{agent_id}/revoke", bearer(admin.revoke), methods=["POST"]),
        Route("/admin/api/events", bearer(admin.events), methods=["GET"]),
        Route("/admin/api/settings/{company_id}", bearer(admin.put_settings), methods=["PUT"]),
        Route("/admin/api/rules", bearer(listed.rules), methods=["GET", "PUT"]),
        Route("/admin/api/silences", bearer(listed.silences), methods=["GET", "PUT"]),
        Route(FAULTS_PATH, bearer(admin.faults), methods=["POST", "DELETE"]),
        Route("/healthz", _healthz, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            RefusedBodyError: _refused,
            RefusedListError: _refused,
            DecodeError: _refused,
            EnrollRefusedError: _enroll_refused,
            FencedError: _fenced,
            OperationalError: _unavailable,
            ClientDisconnect: _gone,
        },
    )
    faults = Faults(app)
    admin.plans = faults
    return faults


def _guard(token: Secret) -> Callable[[Handler], Handler]:
    expected = token.reveal().encode()

    def guard(handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if not hmac.compare_digest(_presented(request), expected):
                answer = _error(401, "unauthorized", "the hub token is missing or wrong")
                answer.headers["WWW-Authenticate"] = 'Basic realm="hub", charset="UTF-8"'
                return answer
            return await handler(request)

        return guarded

    return guard


def _presented(request: Request) -> bytes:
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.encode()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return b""


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


class _CollectorCalls:
    def __init__(
        self, *, identities: Identities, event_log: EventLog, settings: CompanySettingsTable
    ) -> None:
        self._identities = identities
        self._event_log = event_log
        self._settings = settings

    async def enroll(self, request: Request) -> Response:
        grant = await self._identities.enroll(await read_mapping(request))
        return Response(grant.to_json(), media_type="application/json")

    async def renew(self, request: Request) -> Response:
        asked = RenewRequest.from_json(await read_body(request))
        grant = await self._identities.renew(asked.agent_id)
        return Response(grant.to_json(), media_type="application/json")

    async def agents(self, request: Request) -> Response:
        token_hash = request.query_params.get("token_hash")
        if token_hash is not None:
            record = await self._identities.lookup(token_hash)
            if record is None:
                return _error(404, "not_found", "no agent has this token")
            return Response(record.to_json(), media_type="application/json")
        limit = request.query_params.get("limit", "500")
        if not (is_number(limit) and int(limit) > 0):
            return _error(400, "bad_request", f"limit: {limit[:40]!r} is not a number over 0")
        try:
            page = await self._identities.page(request.query_params.get("since", ""), int(limit))
        except ValueError as error:
            return _error(400, "bad_request", str(error))
        return Response(page.to_json(), media_type="application/json")

    async def events(self, request: Request) -> Response:
        fence = request.headers.get("x-ah-fence")
        if fence is not None and not (is_number(fence) and int(fence) <= MAX_FENCE):
            # Remembered, it would leave no fence for the next sender.
            reason = f"{fence[:40]!r} is not a number from 0 to {MAX_FENCE}"
            return _error(400, "bad_request", f"X-AH-Fence: {reason}")
        accepted, rejected = decode_events(await read_body(request))
        reply = await self._event_log.record(
            accepted, rejected=rejected, fence=None if fence is None else int(fence)
        )
        return Response(reply.to_json(), media_type="application/json")

    async def seen(self, request: Request) -> Response:
        report = SeenReport.from_json(await read_body(request))
        stamps = {one.agent_id: round(one.last_seen_at.timestamp() * 1000) for one in report.seen}
        await self._identities.record_seen(stamps)
        return JSONResponse({})

    async def inventory(self, request: Request) -> Response:
        report = InventoryReport.from_json(await read_body(request))
        await self._identities.record_inventory(report.agent_id, json.dumps(report.inventory))
        return JSONResponse({})

    async def heartbeat(self, request: Request) -> Response:
        await self._event_log.record_heartbeat(Heartbeat.from_json(await read_body(request)))
        return JSONResponse({})

    async def settings(self, request: Request) -> Response:
        found = await self._settings.get(_company(request))
        return etag_response(request, found.to_json())


class _ListCalls:
    def __init__(self, *, lists: AlertingLists) -> None:
        self._lists = lists

    async def rules(self, request: Request) -> Response:
        return await self._answer(request, "rules")

    async def silences(self, request: Request) -> Response:
        return await self._answer(request, "silences")

    async def _answer(self, request: Request, name: ListName) -> Response:
        if request.method == "PUT":
            count = await self._lists.put(name, await read_mapping(request))
            return JSONResponse({name: count})
        return etag_response(request, await self._lists.get(name))


class _AdminCalls:
    def __init__(
        self, *, identities: Identities, event_log: EventLog, settings: CompanySettingsTable
    ) -> None:
        self._identities = identities
        self._event_log = event_log
        self._settings = settings
        self.plans: Faults | None = None
        self._pages = Environment(
            loader=PackageLoader("ah_server", "hub/templates"), autoescape=select_autoescape()
        )
        self._pages.filters["utc"] = _utc

    async def page(self, _request: Request) -> Response:
        html = self._pages.get_template("admin.html").render(
            licenses=await self._identities.list_licenses(),
            agents=await self._identities.list_agents(),
            events=await self._event_log.newest(100),
        )
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    async def new_license(self, request: Request) -> Response:
        data = await read_mapping(request)
        ttl = data.get("ttl_seconds", 86_400)
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= 31_536_000:
            return _error(400, "bad_request", "ttl_seconds: expected a number, 31536000 at most")
        try:
            made = await self._identities.new_license(
                str(data.get("company_id", "")), str(data.get("server_id", "")), ttl
            )
        except ValueError as error:
            return _error(400, "bad_request", str(error))
        return JSONResponse({"license": made}, status_code=201)

    async def agents(self, _request: Request) -> Response:
        lines = await self._identities.list_agents()
        names = ("agent_id", "company_id", "server_id", "state", "version", "last_seen_ms")
        return JSONResponse(
            {"agents": [{name: getattr(line, name) for name in names} for line in lines]}
        )

    async def revoke(self, request: Request) -> Response:
        if await self._identities.revoke(request.path_params["agent_id"]):
            return JSONResponse({"state": "revoked"})
        return _error(404, "not_found", "there is no such agent")

    async def events(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        if not is_number(after):
            return _error(400, "bad_request", f"after: {after[:40]!r} is not a position")
        found = await self._event_log.after(int(after), 1000)
        lines = [
            {"position": one.position, "event": json.loads(one.event.to_json())} for one in found
        ]
        return JSONResponse({"events": lines})

    async def put_settings(self, request: Request) -> Response:
        company_id = _company(request)
        value = CompanySettings.from_json(await read_body(request))
        await self._settings.put(company_id, value)
        return JSONResponse({})

    async def faults(self, request: Request) -> Response:
        assert self.plans is not None
        if request.method == "DELETE":
            self.plans.clear()
            return JSONResponse({})
        try:
            self.plans.add(FaultPlan.from_mapping(await read_mapping(request)))
        except ValueError as error:
            return _error(400, "bad_request", str(error))
        return JSONResponse({}, status_code=201)


def _company(request: Request) -> str:
    company_id: str = request.path_params["company_id"]
    if not is_id(company_id):
        raise RefusedBodyError(f"company {company_id[:40]!r} is not an id")
    return company_id


def _utc(at_ms: int | None) -> str:
    return "never" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%F %T} UTC"


def _error(status: int, code: str, message: str, **more: Any) -> Response:
    return JSONResponse({"code": code, "message": message, **more}, status_code=status)


async def _refused(_request: Request, error: Exception) -> Response:
    return _error(400, "bad_request", str(error))


async def _enroll_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EnrollRefusedError)
    return _error(error.status, error.code, str(error))


async def _fenced(_request: Request, error: Exception) -> Response:
    assert isinstance(error, FencedError)
    return _error(412, "fenced", str(error), newest=error.newest)


async def _unavailable(request: Request, error: Exception) -> Response:
    # A full disk and a locked file pass; what the database says of it holds no values.
    assert isinstance(error, OperationalError)
    _log.warning("hub database away: %s %s: %s", request.method, request.url.path, error.orig)
    answer = _error(503, "unavailable", "the hub's database cannot be used now; try again later")
    answer.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return answer


async def _gone(_request: Request, _error: Exception) -> Response:
    # The sender hung up within its body: no fault of the hub, and nobody reads the answer.
    return Response(status_code=400)
