"""The kept connections to the collector, and the way through a proxy."""

import ssl
import urllib.request
from collections.abc import AsyncIterable, AsyncIterator
from urllib.parse import unquote, urlsplit

import httpcore

from ahwal.transport._network import ResolvingBackend
from ahwal.transport._tls import tls_context
from ahwal.transport._token import Secret
from ahwal.transport._url import check_proxy_url, is_loopback

IDLE_SECONDS = 90.0
CONNECTIONS_MAX = 2


def http2_installed() -> bool:
    """Whether the extra `ahwal[http2]` is there."""
    try:
        import h2.connection  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        return False
    return True


def find_proxy(base_url: str, proxy_url: Secret | None) -> httpcore.Proxy | None:
    """Return the proxy on the way to an address: the given one, else the environment's, if any.

    This machine's own addresses are never asked of a proxy that only the environment names: the
    request, and over plain http the token, would leave the machine.

    Raises:
        ConfigError: The proxy's address cannot be used. No variable of the frames in its traceback
            shows the proxy's password.
    """
    found = proxy_url if proxy_url is not None else _environment_proxy(base_url)
    if found is None:
        return None
    url = urlsplit(check_proxy_url(found))
    auth = None
    if url.username:
        auth = (unquote(url.username).encode(), unquote(url.password or "").encode())
    context = None
    if url.scheme == "https":
        # The pinned authorities and the client's certificate are for the collector alone.
        context = tls_context(
            ca_file=None, insecure_skip_verify=False, client_cert=None, client_key=None
        )
    address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return httpcore.Proxy(url=address, auth=auth, ssl_context=context)


class Pool(httpcore.AsyncConnectionPool):
    """At most two connections, each kept 90 s after its last request.

    Args:
        proxy: The proxy on the way.
        context: TLS settings; None for plain http.
        backend: Opens the connections.
        http2: Offer HTTP/2 to the server, which chooses; needs the extra.
    """

    def __init__(
        self,
        *,
        proxy: httpcore.Proxy | None,
        context: ssl.SSLContext | None,
        backend: ResolvingBackend,
        http2: bool,
    ) -> None:
        super().__init__(
            ssl_context=context,
            proxy=proxy,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
            http1=True,
            http2=http2,
            network_backend=backend,
        )

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        """Return a new connection that is left after a failure."""
        return _Connection(super().create_connection(origin))


class _Connection(httpcore.AsyncConnectionInterface):
    """Adds to httpcore's HTTP/2 what its HTTP/1.1 does: a doubtful connection is not used again.

    - After a request that failed or was given up, such as by its time limit. The connection may be
      dead without anybody having noticed, and all tries would go into the same hole.
    - When there is something to read though no request is under way. Most often that is the end of
      the connection, which a server with a short idle time closes between two cycles.
    """

    def __init__(self, inner: httpcore.AsyncConnectionInterface) -> None:
        self._inner = inner
        self._stream: httpcore.AsyncNetworkStream | None = None
        self.doubtful = False

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpcore.ConnectionNotAvailable:
            raise
        except BaseException:
            self.doubtful = True
            raise
        self._stream = response.extensions.get("network_stream")
        assert isinstance(response.stream, AsyncIterable)
        return httpcore.Response(
            response.status,
            headers=response.headers,
            content=_Body(response.stream, self),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()

    def info(self) -> str:
        return self._inner.info()

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        return self._inner.can_handle_request(origin)

    def is_available(self) -> bool:
        return self._inner.is_available() and not self.doubtful

    def has_expired(self) -> bool:
        if self._inner.has_expired():
            return True
        if not self._inner.is_idle():
            return False
        return self.doubtful or (
            self._stream is not None and bool(self._stream.get_extra_info("is_readable"))
        )

    def is_idle(self) -> bool:
        return self._inner.is_idle()

    def is_closed(self) -> bool:
        return self._inner.is_closed()


class _Body:
    """The body of an answer, which tells its connection when it was not read to the end."""

    def __init__(self, inner: AsyncIterable[bytes], connection: _Connection) -> None:
        self._inner = inner
        self._connection = connection
        self._whole = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part
        self._whole = True

    async def aclose(self) -> None:
        if not self._whole:
            self._connection.doubtful = True
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


def _environment_proxy(base_url: str) -> Secret | None:
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(parts.netloc):
        return None
    found = urllib.request.getproxies()
    url = found.get(parts.scheme) or found.get("all")
    return Secret(url) if url else None
