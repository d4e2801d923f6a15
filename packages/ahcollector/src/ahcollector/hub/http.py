"""The hub over HTTP, and how its answers are read.

Requests go to ``<base_url>/api/v1/monitoring/collector`` with the hub token as bearer. An answer is
JSON, plain or wrapped in ``{"data": …}``, uncompressed, and at most 8 MiB of it are read. Redirects
are never followed: the token must not reach another host. A 4xx is the hub's refusal only with a
code (in ``X-AH-Code`` or the JSON error body); without one something in between may have said it,
so it is temporary. What an answer means in full is in `ahcollector.hub._answers`.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import anyio
import attrs
import httpx
from google.protobuf.json_format import MessageToDict

from ahcollector._beside import run_beside
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import PermanentHubError, TemporaryHubError
from ahcollector.hub._answers import failure, read_page, read_record, read_silences
from ahcollector.hub.base import RulesReply, SettingsReply, SilencesReply
from ahrules import read_threshold_rules
from ahwire import DecodeError
from ahwire.agent_pb2 import EnrollRequest, Inventory
from ahwire.hub import (
    AgentPage,
    AgentRecord,
    CompanySettings,
    EnrollGrant,
    Event,
    EventsReply,
    EventsRequest,
    Heartbeat,
    InventoryReport,
    RenewGrant,
    RenewRequest,
    SeenReport,
)

__all__ = ["RESPONSE_BYTES_MAX", "HttpHub"]

RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
"""How much of an answer `HttpHub` reads where nothing else is said: a hub gives no longer list."""

_LONG_BYTES = 64 * 1024
_PREFIX = "/api/v1/monitoring/collector"
_QUERY = "ahcollector.query"
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class _Answer:
    status: int
    headers: httpx.Headers
    body: bytes


class _QueryTransport(httpx.AsyncBaseTransport):
    """Puts the query on the URL below the client.

    The client logs each URL it asks for, and a token hash in a query would be in that line.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        query = request.extensions.get(_QUERY)
        if query:
            # A request of its own: the client's log line comes later and reads the client's.
            request = httpx.Request(
                request.method,
                request.url.copy_with(query=query),
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class HttpHub:
    """`Hub` over HTTP. Use as an async context manager, or `aclose` it.

    Args:
        base_url: Where the hub is, for example ``https://hub.example.org``; a path is kept.
        token: The collector's bearer token at the hub. Kept out of every text.
        clock: Reads ``Retry-After`` dates.
        timeout_seconds: Bound on a whole call.
        enroll_timeout_seconds: Bound on an enrolment, which may wait for a person's directory.
        response_bytes_max: How much of an answer is read.
        connections_max: Connections to the hub at one time.
        verify: Certificates to trust; True for the system's.
        transport: What carries requests, for tests and for special networks.
        trust_env: Use the proxies named in the environment. Off, so that a proxy meant for people
            never sees the token by accident.

    Raises:
        ValueError: `base_url` is not http(s), or `token` cannot be a header value.
    """

    def __init__(
        self,
        *,
        base_url: str,
        token: str,
        clock: AsyncClock | None = None,
        timeout_seconds: float = 10.0,
        enroll_timeout_seconds: float = 20.0,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        connections_max: int = 20,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
        trust_env: bool = False,
    ) -> None:
        if not re.fullmatch(r"https?://[^\s?#]+", base_url):
            raise ValueError(f"hub base_url {base_url!r} is not an http(s) URL without a query")
        if not re.fullmatch(r"[!-~]+", token):
            raise ValueError("hub token has characters that no header can carry: check its file")
        self._clock = clock if clock is not None else SystemClock()
        self._timeout_seconds = timeout_seconds
        self._enroll_timeout_seconds = enroll_timeout_seconds
        self._response_bytes_max = response_bytes_max
        if transport is None:
            transport = httpx.AsyncHTTPTransport(
                verify=verify,
                limits=httpx.Limits(max_connections=connections_max),
                trust_env=trust_env,
            )
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + _PREFIX,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "ahcollector",
            },
            timeout=httpx.Timeout(timeout_seconds),
            follow_redirects=False,
            trust_env=trust_env,
            transport=_QueryTransport(transport),
        )

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; no call may be made afterwards."""
        await self._client.aclose()

    async def enroll(
        self, request: EnrollRequest, *, client_ip: str, request_id: str
    ) -> EnrollGrant:
        """Exchange a license; see `Hub.enroll`."""
        answer = await self._ask(
            "POST",
            "/enroll",
            content=_json(MessageToDict(request, preserving_proto_field_name=True)),
            headers={"X-Forwarded-For": client_ip, "X-Request-Id": request_id},
            timeout_seconds=self._enroll_timeout_seconds,
        )
        return _decode("POST /enroll", answer, EnrollGrant.from_json)

    async def renew(self, agent_id: str, *, request_id: str) -> RenewGrant:
        """Get a new token; see `Hub.renew`."""
        answer = await self._ask(
            "POST",
            "/credentials/renew",
            content=RenewRequest(agent_id=agent_id).to_json(),
            headers={"X-Request-Id": request_id},
        )
        return _decode("POST /credentials/renew", answer, RenewGrant.from_json)

    async def agent_by_token_hash(self, token_hash: str) -> AgentRecord | None:
        """Look up one token; see `Hub.agent_by_token_hash`."""
        try:
            answer = await self._ask("GET", "/agents", query={"token_hash": token_hash})
        except PermanentHubError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise
        return _decode("GET /agents", answer, read_record)

    async def agents_since(self, cursor: str, limit: int) -> AgentPage:
        """Read a page of changes; see `Hub.agents_since`."""
        answer = await self._ask("GET", "/agents", query={"since": cursor, "limit": str(limit)})
        return _decode("GET /agents", answer, read_page)

    async def send_events(self, events: Sequence[Event], fence: int | None = None) -> EventsReply:
        """Hand over events; see `Hub.send_events`."""
        answer = await self._ask(
            "POST",
            "/events",
            content=EventsRequest(events=tuple(events)).to_json(),
            headers={} if fence is None else {"X-AH-Fence": str(fence)},
        )
        return _decode("POST /events", answer, EventsReply.from_json)

    async def send_seen(self, report: SeenReport) -> None:
        """Report who was heard; see `Hub.send_seen`."""
        await self._ask("POST", "/agents/seen", content=report.to_json())

    async def send_inventory(self, agent_id: str, inventory: Inventory, *, request_id: str) -> None:
        """Pass on an inventory; see `Hub.send_inventory`."""
        fields = MessageToDict(inventory, preserving_proto_field_name=True)
        await self._ask(
            "POST",
            "/inventory",
            content=InventoryReport(agent_id=agent_id, inventory=fields).to_json(),
            headers={"X-Request-Id": request_id},
        )

    async def heartbeat(self, beat: Heartbeat) -> None:
        """Say that this collector lives; see `Hub.heartbeat`."""
        await self._ask("POST", "/heartbeat", content=beat.to_json())

    async def settings(self, company_id: str, *, etag: str | None) -> SettingsReply:
        """Read a company's settings; see `Hub.settings`."""
        answer = await self._ask_since(f"/settings/{quote(company_id, safe='')}", etag)
        if answer.status == httpx.codes.NOT_MODIFIED:
            return SettingsReply(settings=None, etag=etag)
        settings = _decode("GET /settings", answer, CompanySettings.from_json)
        return SettingsReply(settings=settings, etag=answer.headers.get("etag"))

    async def rules(self, etag: str | None) -> RulesReply:
        """Read the threshold rules; see `Hub.rules`."""
        answer = await self._ask_since("/rules", etag)
        if answer.status == httpx.codes.NOT_MODIFIED:
            return RulesReply(rules=None, etag=etag)
        rules, refused = await _decode_beside("GET /rules", answer, read_threshold_rules)
        return RulesReply(rules=rules, refused=refused, etag=answer.headers.get("etag"))

    async def silences(self, etag: str | None) -> SilencesReply:
        """Read the silences; see `Hub.silences`."""
        answer = await self._ask_since("/silences", etag)
        if answer.status == httpx.codes.NOT_MODIFIED:
            return SilencesReply(silences=None, etag=etag)
        silences, refused = await _decode_beside("GET /silences", answer, read_silences)
        return SilencesReply(silences=silences, refused=refused, etag=answer.headers.get("etag"))

    async def _ask_since(self, path: str, etag: str | None) -> _Answer:
        """Ask for what changed since `etag`; 304 when nothing did."""
        headers = {} if etag is None else {"If-None-Match": etag}
        return await self._ask("GET", path, headers=headers)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> _Answer:
        call = f"{method} {path}"
        bound = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        request = self._client.build_request(
            method,
            path,
            content=content,
            headers={
                **(headers or {}),
                **({} if content is None else {"Content-Type": "application/json"}),
            },
            timeout=httpx.Timeout(bound),
            extensions={_QUERY: urlencode(query).encode()} if query else {},
        )
        try:
            with anyio.fail_after(bound):
                answer = await self._exchange(request, call)
        except TimeoutError as error:
            raise TemporaryHubError(f"hub gave no answer to {call} within {bound:g} s") from error
        except httpx.HTTPError as error:
            raise TemporaryHubError(
                f"hub cannot be reached for {call}: {type(error).__name__}"
            ) from error
        conditional = "if-none-match" in request.headers
        unchanged = conditional and answer.status == httpx.codes.NOT_MODIFIED
        if not unchanged and not httpx.codes.is_success(answer.status):
            raise failure(call, answer.status, answer.body, answer.headers, now=self._clock.time())
        return answer

    async def _exchange(self, request: httpx.Request, call: str) -> _Answer:
        response = await self._client.send(request, stream=True)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding.lower() != "identity":
                raise TemporaryHubError(f"hub answered {call} in coding {coding[:20]!r}, not asked")
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > self._response_bytes_max:
                    raise TemporaryHubError(
                        f"hub's answer to {call} is over {self._response_bytes_max} bytes"
                    )
                pieces.append(piece)
        finally:
            await response.aclose()
        return _Answer(status=response.status_code, headers=response.headers, body=b"".join(pieces))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


async def _decode_beside(call: str, answer: _Answer, read: Callable[[bytes], T]) -> T:
    """Decode a long list, which takes up to a second, beside the loop."""
    is_long = len(answer.body) > _LONG_BYTES
    return await run_beside(partial(_decode, call, answer, read), is_long=is_long)


def _decode(call: str, answer: _Answer, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer.body)
    except DecodeError as error:
        raise TemporaryHubError(
            f"hub's answer to {call} makes no sense ({error}): is that address the hub's?",
            status=answer.status,
        ) from error
