"""The client of the agent API. The only module of this package that knows the HTTP library.

One request, one answer: nothing is retried, no redirect is followed (the token must not reach
another host), no cookie is kept, and no answer over 1 MiB is read.
"""

import http.cookiejar
import random
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import anyio
import httpcore
import httpx
from attrs import evolve

from ahwal._version import package_version
from ahwal.errors import TransportError
from ahwal.transport._answer import Answer, config_reply, metrics_reply
from ahwal.transport._network import Resolve, ResolvingBackend, resolve
from ahwal.transport._tls import tls_context
from ahwal.transport._token import MASK, check_token
from ahwal.transport._url import check_collector_url, check_proxy_url
from ahwal.transport.base import ConfigReply, Reply
from ahwire import Rng, limits, parse_retry_after
from ahwire.agent_pb2 import AgentConfig, EnrollRequest, EnrollResponse, Inventory, RenewResponse
from ahwire.codec import GZIP, compress

CONNECT_TIMEOUT_SECONDS = 10.0
IDLE_SECONDS = 90.0
CONNECTIONS_MAX = 2
_PROTOBUF = "application/x-protobuf"
_FAILURES = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    httpcore.ProxyError,
    ssl.SSLError,
    OSError,
)


class Client:
    """Speaks `/agent/v1` to one collector, over one small pool of kept connections.

    Use it as an async context manager, in one event loop, from any number of tasks.

    Args:
        collector_url: Address of the collector, with or without `/agent/v1`.
        token: The agent's token; None before enrolment.
        send_timeout_seconds: Limit for one whole request, answer included.
        ca_file: PEM file of the only authorities to trust.
        proxy_url: Proxy to use; None for the one of the environment, if any.
        insecure_skip_verify: Accept every certificate. For tests only.
        client_cert: PEM file with a certificate to present.
        client_key: PEM file with its key, when it is not in `client_cert`.
        allow_plain_http: Allow http:// to another machine, token in clear.
        user_agent: Name of the embedding program; default `ahwal/<version>`.
        rng: Source of request ids.
        wall_clock: Unix seconds, to read a Retry-After that is a date.
        resolve: Name look-up.

    Raises:
        ConfigError: An address or a file is wrong.
        TokenError: The token cannot be sent.
    """

    def __init__(
        self,
        *,
        collector_url: str,
        token: str | None = None,
        send_timeout_seconds: float = 15.0,
        ca_file: str | None = None,
        proxy_url: str | None = None,
        insecure_skip_verify: bool = False,
        client_cert: str | None = None,
        client_key: str | None = None,
        allow_plain_http: bool = False,
        user_agent: str | None = None,
        rng: Rng | None = None,
        wall_clock: Callable[[], float] = time.time,
        resolve: Resolve = resolve,
    ) -> None:
        self._base_url = check_collector_url(collector_url, allow_plain_http=allow_plain_http)
        self._token = None if token is None else check_token(token)
        self._send_timeout_seconds = send_timeout_seconds
        self._version = package_version()
        self._user_agent = user_agent or f"ahwal/{self._version}"
        self._rng = rng if rng is not None else random.SystemRandom()
        self._wall_clock = wall_clock
        context = None
        if self._base_url.startswith("https://"):
            context = tls_context(
                ca_file=ca_file,
                insecure_skip_verify=insecure_skip_verify,
                client_cert=client_cert,
                client_key=client_key,
            )
        proxy = _proxy(self._base_url, proxy_url)
        self._http = httpx.AsyncClient(
            transport=_PoolTransport(_pool(proxy, context, ResolvingBackend(resolve=resolve))),
            timeout=httpx.Timeout(
                send_timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, send_timeout_seconds)
            ),
            follow_redirects=False,
            trust_env=False,
            # A portal on the way may set cookies; none is kept.
            cookies=http.cookiejar.CookieJar(
                http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
            ),
        )

    def __repr__(self) -> str:
        token = "no token" if self._token is None else f"token {MASK}"
        return f"<Client of {self._base_url}, {token}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @property
    def collector_url(self) -> str:
        """Address of the API, without credentials."""
        return self._base_url

    @property
    def has_token(self) -> bool:
        """Whether requests carry a token."""
        return self._token is not None

    def set_token(self, token: str) -> None:
        """Use another token from the next request on.

        Raises:
            TokenError: It cannot be sent.
        """
        self._token = check_token(token)

    def clear_token(self) -> None:
        """Forget the token."""
        self._token = None

    async def post_metrics(self, body: bytes, *, coding: str = GZIP) -> Reply:
        """Post one compressed `MetricsBatch`; see `MetricsTransport.post_metrics`."""
        headers = {"Content-Type": _PROTOBUF, "Content-Encoding": coding}
        return metrics_reply(await self._request("POST", "/metrics", headers=headers, body=body))

    async def get_config(self, etag: str = "") -> ConfigReply:
        """Ask for the configuration; see `MetricsTransport.get_config`."""
        headers = {}
        if etag and etag.isascii() and etag.isprintable():
            headers["If-None-Match"] = etag if etag.startswith(('"', "W/")) else f'"{etag}"'
        answer = await self._request("GET", "/config", headers=headers)
        return config_reply(answer, AgentConfig)

    async def ping(self) -> bool:
        """Return whether the collector says that it lives.

        Raises:
            TransportError: No whole answer came.
        """
        return (await self._request("GET", "/ping", protocol=False, token=False)).status == 200

    async def enroll(self, request: EnrollRequest) -> tuple[Answer, EnrollResponse | None]:
        """Exchange a license for an identity.

        Returns:
            The answer, and its body when it is a 200 that can be read.

        Raises:
            TransportError: No whole answer came. The license may have been used: enrolling again
            with
                it from this machine within 10 minutes is safe.
        """
        answer = await self._post("/enroll", request.SerializeToString(), token=False)
        answer = evolve(answer, secret=request.license)
        return answer, answer.message(EnrollResponse) if answer.status == 200 else None

    async def renew(self) -> tuple[Answer, RenewResponse | None]:
        """Ask for a new token; the old one stays valid for a while.

        Raises:
            TransportError: No whole answer came.
        """
        answer = await self._post("/credentials/renew", b"")
        return answer, answer.message(RenewResponse) if answer.status == 200 else None

    async def post_inventory(self, inventory: Inventory) -> Answer:
        """Post the machine's inventory, which replaces the last one.

        Raises:
            TransportError: No whole answer came.
        """
        return await self._post("/inventory", inventory.SerializeToString())

    async def _post(self, path: str, body: bytes, *, token: bool = True) -> Answer:
        headers = {"Content-Type": _PROTOBUF, "Content-Encoding": GZIP}
        return await self._request("POST", path, headers=headers, body=compress(body), token=token)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        protocol: bool = True,
        token: bool = True,
    ) -> Answer:
        request_id = f"{self._rng.getrandbits(64):016x}"
        sent = {
            **(headers or {}),
            "Accept": _PROTOBUF,
            # Answers are small; an unasked-for coding is not inflated and so cannot be a bomb.
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
            "X-AH-Agent-Version": self._version,
            "X-Request-Id": request_id,
        }
        if protocol:
            sent["X-AH-Proto"] = limits.PROTOCOL_VERSION
        if token and self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        failure: str
        try:
            with anyio.fail_after(self._send_timeout_seconds):
                return await self._exchange(method, path, sent, body, request_id)
        except TimeoutError:
            failure = f"no whole answer within {self._send_timeout_seconds:g} s"
        except _FAILURES as error:
            failure = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        # Raised outside the handler: a vendor's traceback may hold the request with its headers.
        raise TransportError(f"{method} {self._base_url}{path}: {failure}", request_id=request_id)

    async def _exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, request_id: str
    ) -> Answer:
        url = self._base_url + path
        content = body if method == "POST" else None
        async with self._http.stream(method, url, headers=headers, content=content) as response:
            chunks: list[bytes] = []
            size = 0
            # Leaving the loop would abandon the library's generators half-way, which trio complains
            # about; a cancellation from inside ends them in order.
            with anyio.CancelScope() as reading:
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > limits.MAX_RESPONSE_BYTES:
                        reading.cancel()
                    else:
                        chunks.append(chunk)
            if reading.cancel_called:
                raise TransportError(
                    f"{method} {url}: the answer is over {limits.MAX_RESPONSE_BYTES} bytes",
                    request_id=request_id,
                )
            retry_after = ", ".join(response.headers.get_list("Retry-After"))
            return Answer(
                status=response.status_code,
                headers=dict(response.headers),
                body=b"".join(chunks),
                retry_after_seconds=parse_retry_after(retry_after or None, now=self._wall_clock()),
                request_id=request_id,
                secret=self._token or "",
            )


class _PoolTransport(httpx.AsyncBaseTransport):
    """Puts httpx on a pool with our own connections; httpx has no argument for that."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


def _proxy(base_url: str, proxy_url: str | None) -> httpcore.Proxy | None:
    if proxy_url is None:
        parts = urlsplit(base_url)
        if urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        found = urllib.request.getproxies()
        proxy_url = found.get(parts.scheme) or found.get("all")
        if not proxy_url:
            return None
    url = httpx.URL(check_proxy_url(proxy_url))
    auth = (url.username.encode(), url.password.encode()) if url.username else None
    return httpcore.Proxy(url=str(url.copy_with(username=None, password=None)), auth=auth)


def _pool(
    proxy: httpcore.Proxy | None, context: ssl.SSLContext | None, backend: ResolvingBackend
) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        ssl_context=context,
        proxy=proxy,
        max_connections=CONNECTIONS_MAX,
        max_keepalive_connections=CONNECTIONS_MAX,
        keepalive_expiry=IDLE_SECONDS,
        http1=True,
        network_backend=backend,
    )
