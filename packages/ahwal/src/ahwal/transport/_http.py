"""The client of the agent API. The only module of this package that knows httpx.

One request, one answer: nothing is retried, no redirect is followed (the token must not reach
another host), no cookie is kept, and no answer over 1 MiB is read. Whatever goes wrong on the way
is a `TransportError`, raised where no frame of its traceback holds the token.
"""

import http.cookiejar
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Self

import anyio
import httpcore
import httpx
from attrs import evolve

from ahwal._version import package_version
from ahwal.errors import TransportError
from ahwal.transport._answer import Answer, config_reply, metrics_reply, printable
from ahwal.transport._network import Resolve, ResolvingBackend, resolve
from ahwal.transport._pool import Pool, find_proxy, http2_installed
from ahwal.transport._quiet import masked_logs
from ahwal.transport._tls import tls_context
from ahwal.transport._token import MASK, Secret, check_token
from ahwal.transport._url import check_arguments, check_collector_url, without_credentials
from ahwal.transport.base import ConfigReply, Reply
from ahwire import Rng, limits, parse_retry_after
from ahwire.agent_pb2 import AgentConfig, EnrollRequest, EnrollResponse, Inventory, RenewResponse
from ahwire.codec import GZIP, compress

CONNECT_TIMEOUT_SECONDS = 10.0
_PROTOBUF = "application/x-protobuf"
_FAILURE_CHARS_MAX = 300

_log = logging.getLogger("ahwal.transport")


class Client:
    """Speaks `/agent/v1` to one collector, over one small pool of kept connections.

    Use it as an async context manager, in one event loop, from any number of tasks.

    Args:
        collector_url: Address of the collector, with or without `/agent/v1`.
        token: The agent's token; None before enrolment.
        send_timeout_seconds: Limit for one whole request, answer included.
        ca_file: PEM file of the only authorities to trust.
        proxy_url: Proxy to use; None for the one of the environment, if any, which is not asked
            for addresses of this machine.
        insecure_skip_verify: Accept every certificate, and warn. For tests only.
        client_cert: PEM file with a certificate to present.
        client_key: PEM file with its key, when it is not in `client_cert`.
        allow_plain_http: Allow http:// to another machine, token in clear.
        http2: Speak HTTP/2 over TLS where the server offers it, if `ahwal[http2]` is installed.
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
        token: str | Secret | None = None,
        send_timeout_seconds: float = 15.0,
        ca_file: str | None = None,
        proxy_url: str | None = None,
        insecure_skip_verify: bool = False,
        client_cert: str | None = None,
        client_key: str | None = None,
        allow_plain_http: bool = False,
        http2: bool = True,
        user_agent: str | None = None,
        rng: Rng | None = None,
        wall_clock: Callable[[], float] = time.time,
        resolve: Resolve = resolve,
    ) -> None:
        # A traceback that shows variables must not show these two.
        secret = Secret(token) if isinstance(token, str) else token
        proxy = None if proxy_url is None else Secret(proxy_url)
        del token, proxy_url
        check_arguments(collector_url, secret, send_timeout_seconds, http2, user_agent)
        # Its repr works from here on, should the rest be refused.
        self._base_url = without_credentials(collector_url)
        self._token: Secret | None = None
        self._base_url = check_collector_url(collector_url, allow_plain_http=allow_plain_http)
        if secret is not None:
            self._token = check_token(secret)
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
            if insecure_skip_verify:
                _log.warning(
                    "insecure_skip_verify is on: the certificate of %s is not checked, and anyone "
                    "on the way can read the token",
                    self._base_url,
                )
        pool = Pool(
            proxy=find_proxy(self._base_url, proxy),
            context=context,
            backend=ResolvingBackend(resolve=resolve),
            http2=http2 and context is not None and http2_installed(),
        )
        self._http = httpx.AsyncClient(
            transport=_PoolTransport(pool),
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
        secret = Secret(token)
        del token
        self._token = check_token(secret)

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
                with it from this machine within 10 minutes is safe.
        """
        secret = Secret(request.license)
        body = memoryview(compress(request.SerializeToString()))
        del request
        answer = await self._post("/enroll", body, token=False, secret=secret)
        answer = evolve(answer, secret=secret)
        return answer, answer.message(EnrollResponse) if answer.status == 200 else None

    async def renew(self) -> tuple[Answer, RenewResponse | None]:
        """Ask for a new token; the old one stays valid for a while.

        Raises:
            TransportError: No whole answer came.
        """
        answer = await self._post("/credentials/renew", compress(b""))
        return answer, answer.message(RenewResponse) if answer.status == 200 else None

    async def post_inventory(self, inventory: Inventory) -> Answer:
        """Post the machine's inventory, which replaces the last one.

        Raises:
            TransportError: No whole answer came.
        """
        return await self._post("/inventory", compress(inventory.SerializeToString()))

    async def _post(
        self,
        path: str,
        body: bytes | memoryview,
        *,
        token: bool = True,
        secret: Secret | None = None,
    ) -> Answer:
        headers = {"Content-Type": _PROTOBUF, "Content-Encoding": GZIP}
        return await self._request(
            "POST", path, headers=headers, body=body, token=token, secret=secret
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        protocol: bool = True,
        token: bool = True,
        secret: Secret | None = None,
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
        bearer = self._token if token else None
        failure: str
        try:
            with (
                masked_logs(self._token, secret),
                anyio.fail_after(self._send_timeout_seconds),
            ):
                return await self._exchange(method, path, sent, bearer, body)
        except TimeoutError:
            failure = f"no whole answer within {self._send_timeout_seconds:g} s"
        except _TooLargeError:
            failure = f"the answer is over {limits.MAX_RESPONSE_BYTES} bytes"
        except Exception as error:  # noqa: BLE001 - a broken peer makes the libraries raise anything
            failure = self._failure(error, secret)
        except BaseException as error:  # noqa: BLE001 - raised again
            # The cancellation goes on, without the frames of the libraries, which hold the token.
            raise error.with_traceback(None) from None
        # Raised outside the handler: a vendor's traceback may hold the request with its headers.
        raise TransportError(f"{method} {self._base_url}{path}: {failure}", request_id=request_id)

    def _failure(self, error: Exception, secret: Secret | None) -> str:
        # The libraries quote what they could not read, which may be anything that was sent.
        text = str(error)
        for known in (self._token, secret):
            text = text if known is None else known.masked_in(text)
        name = type(error).__name__
        return f"{name}: {printable(text)[:_FAILURE_CHARS_MAX]}" if text else name

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        bearer: Secret | None,
        body: bytes | memoryview,
    ) -> Answer:
        url = self._base_url + path
        content = bytes(body) if method == "POST" else None
        sent = dict(headers)
        if bearer is not None:
            sent["Authorization"] = f"Bearer {bearer.reveal()}"
        async with self._http.stream(method, url, headers=sent, content=content) as response:
            answer = bytearray()
            # Leaving the loop would abandon the library's generators half-way, which trio complains
            # about; a cancellation from inside ends them in order.
            with anyio.CancelScope() as reading:
                async for chunk in response.aiter_raw():
                    if len(answer) + len(chunk) > limits.MAX_RESPONSE_BYTES:
                        reading.cancel()
                    else:
                        answer += chunk
            if reading.cancel_called:
                raise _TooLargeError
            retry_after = ", ".join(response.headers.get_list("Retry-After"))
            return Answer(
                status=response.status_code,
                headers=dict(response.headers),
                body=bytes(answer),
                retry_after_seconds=parse_retry_after(retry_after or None, now=self._wall_clock()),
                request_id=headers["X-Request-Id"],
                secret=self._token,
            )


class _TooLargeError(Exception):
    pass


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
                content=_Content(request.content),
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


class _Content:
    """The body of a request.

    The library's own is an async generator, which is left half-way when the connection breaks while
    it is sent; trio complains about that.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> Self:
        return type(self)(self._body)

    async def __anext__(self) -> bytes:
        if not self._body:
            raise StopAsyncIteration
        body, self._body = self._body, b""
        return body


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()
