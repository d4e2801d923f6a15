"""Connections whose name look-ups nobody has to wait for.

The event loops resolve names in worker threads that the interpreter joins at its end, so one
resolver that does not answer would hold the program after it was told to stop. Here a name is
resolved in a daemon thread, and the addresses are tried in the resolver's order.
"""

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import anyio
import httpcore

from ahwal._threads import DaemonCalls
from ahwal.errors import BusyError

LOOKUPS_MAX = 8
ADDRESSES_MAX = 8

# Name and port to addresses in order of preference; blocking.
Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host as the system's resolver orders them.

    Raises:
        OSError: The name cannot be resolved.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))[:ADDRESSES_MAX]


class ResolvingBackend(httpcore.AsyncNetworkBackend):
    """Opens connections for httpcore under asyncio and trio.

    Args:
        resolve: The look-up; given by tests.
    """

    def __init__(self, *, resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._lookups = DaemonCalls(name="name look-up", calls_max=LOOKUPS_MAX)
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve and connect within `timeout` seconds, each address having a share of it.

        What is left of the time is the limit of the TLS handshake on the stream.
        """
        timeout = 10.0 if timeout is None else timeout
        deadline = anyio.current_time() + timeout
        addresses = await self._addresses(host, port, timeout)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for tried, address in enumerate(addresses):
            share = (deadline - anyio.current_time()) / (len(addresses) - tried)
            try:
                stream = await self._inner.connect_tcp(
                    address,
                    port,
                    timeout=max(0.05, share),
                    local_address=local_address,
                    socket_options=socket_options,
                )
                return _Stream(stream, connected_before=deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    async def _addresses(self, host: str, port: int, timeout: float) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host.strip("[]")))]
        except ValueError:
            pass
        try:
            with anyio.fail_after(timeout):
                return await self._lookups.run(partial(self._resolve, host, port))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"looking up {host} took over {timeout:g} s") from error
        except BusyError as error:
            raise httpcore.ConnectError(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(f"cannot look up {host}: {error}") from error
        except UnicodeError as error:
            raise httpcore.ConnectError(f"{host!r} is not a host name") from error


class _Stream(httpcore.AsyncNetworkStream):
    """A connection whose TLS handshake counts as part of connecting."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, *, connected_before: float) -> None:
        self._inner = inner
        self._connected_before = connected_before

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        left = max(0.0, self._connected_before - anyio.current_time())
        stream = await self._inner.start_tls(
            ssl_context, server_hostname, left if timeout is None else min(left, timeout)
        )
        # A second handshake follows inside the first when the proxy itself speaks TLS.
        return _Stream(stream, connected_before=self._connected_before)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
