"""VictoriaMetrics over HTTP: how it is asked, and how its answers are judged.

Redirects are never followed: the password must not reach another host. Answers are read
uncompressed and up to a bound. What a retry can help:

===============================  =========
answer                           error
===============================  =========
none, cut, late                  temporary
1xx, 3xx                         temporary
401, 403, 404, 408, 429, 5xx     temporary
any other 4xx                    permanent
over the bound                   permanent
===============================  =========

A wrong password, a wrong path and a redirect are faults of a setting or of something in between.
They say nothing about the samples, which wait until an operator has put it right.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import httpx

from ahcollector.errors import PermanentStoreError, StoreError, TemporaryStoreError

__all__ = ["Transport", "VictoriaHttp", "authorization", "understood"]

P = ParamSpec("P")
T = TypeVar("T")

Transport = httpx.AsyncBaseTransport
"""What carries requests."""

_TEMPORARY = frozenset({401, 403, 404, 408, 429})
_CLIENT_FAULTS = range(400, 500)
_TEXT_CHARS_SHOWN = 200
_HINTS: Mapping[int, str] = {
    401: ": check tsdb.username and tsdb.password, or tsdb.bearer",
    403: ": check tsdb.username and tsdb.password, or tsdb.bearer",
    404: ": check tsdb.url and what stands in between",
    422: ": one of its limits (-search.max…) was hit; ask for less, or raise it",
}


def authorization(*, username: str, password: str, bearer: str) -> str | None:
    """Return the header that shows who asks, or None.

    Raises:
        ValueError: Both ways were given, half of one, or what no header can carry.
    """
    if bearer and (username or password):
        raise ValueError("tsdb.bearer and tsdb.username are both set: keep one of them")
    if bearer:
        if not re.fullmatch(r"[!-~]+", bearer):
            raise ValueError("tsdb.bearer has characters that no header can carry: check its file")
        return f"Bearer {bearer}"
    if not username:
        if password:
            raise ValueError("tsdb.password is set without tsdb.username: set both")
        return None
    if ":" in username:
        raise ValueError(f"tsdb.username {username!r} has a colon, which basic auth cannot carry")
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


class VictoriaHttp:
    """Requests to one VictoriaMetrics.

    Args:
        url: Where it is; a path is kept, as a proxy in front may need one.
        authorization: The value of the header of that name; None: no such header.
        tls_ca_file: PEM bundle to trust instead of the system's.
        timeout_seconds: Bound on a whole call.
        response_bytes_max: How much of an answer is read.
        connections_max: Connections at one time.
        transport: What carries requests, for tests and for special networks.

    Raises:
        ValueError: `url` is not http(s), or has a user or a query in it.
        OSError: `tls_ca_file` cannot be read or holds no certificate.
    """

    def __init__(
        self,
        *,
        url: str,
        authorization: str | None,
        tls_ca_file: Path | None,
        timeout_seconds: float,
        response_bytes_max: int,
        connections_max: int,
        transport: Transport | None = None,
    ) -> None:
        if not re.fullmatch(r"https?://[^\s?#@]+", url):
            shown = re.sub(r"//[^/@]*@", "//…@", url)
            raise ValueError(
                f"tsdb url {shown!r} is not an http(s) URL without a user and a query: give the "
                "user as tsdb.username"
            )
        self._timeout_seconds = timeout_seconds
        self._response_bytes_max = response_bytes_max
        if transport is None:
            verify = ssl.create_default_context(cafile=tls_ca_file) if tls_ca_file else True
            transport = httpx.AsyncHTTPTransport(
                verify=verify,
                limits=httpx.Limits(max_connections=connections_max),
                trust_env=False,
            )
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={
                "Accept-Encoding": "identity",
                "User-Agent": "ahcollector",
                **({} if authorization is None else {"Authorization": authorization}),
            },
            timeout=httpx.Timeout(timeout_seconds),
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    async def aclose(self) -> None:
        """Close the connections; no call may be made afterwards."""
        await self._client.aclose()

    async def get(self, path: str) -> bytes:
        """Ask for a page."""
        return await self._ask(self._client.build_request("GET", path))

    async def post_form(self, path: str, form: Mapping[str, str]) -> bytes:
        """Ask a query. It is in the body, so that no log of URLs has it, and it may be long."""
        return await self._ask(self._client.build_request("POST", path, data=dict(form)))

    async def post_body(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Hand over samples."""
        return await self._ask(
            self._client.build_request("POST", path, content=body, headers=dict(headers))
        )

    async def _ask(self, request: httpx.Request) -> bytes:
        call = f"{request.method} {request.url.path}"
        try:
            with anyio.fail_after(self._timeout_seconds):
                status, body = await self._exchange(request, call)
        except TimeoutError as error:
            raise TemporaryStoreError(
                f"VictoriaMetrics gave no answer to {call} within {self._timeout_seconds:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise TemporaryStoreError(
                f"VictoriaMetrics cannot be reached for {call}: {type(error).__name__}: "
                "see that it runs, and check tsdb.url"
            ) from error
        if not httpx.codes.is_success(status):
            raise _failure(call, status, body)
        return body

    async def _exchange(self, request: httpx.Request, call: str) -> tuple[int, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding.lower() != "identity":
                raise TemporaryStoreError(
                    f"VictoriaMetrics answered {call} in coding {coding[:20]!r}, which nobody "
                    "asked for: check what stands in between"
                )
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > self._response_bytes_max:
                    raise PermanentStoreError(
                        f"VictoriaMetrics' answer to {call} is over {self._response_bytes_max} "
                        "bytes: ask for a shorter range, a longer step or fewer series"
                    )
                pieces.append(piece)
        finally:
            await response.aclose()
        return response.status_code, b"".join(pieces)


def _failure(call: str, status: int, body: bytes) -> StoreError:
    said = " ".join(body[: 4 * _TEXT_CHARS_SHOWN].decode(errors="replace").split())
    text = f"VictoriaMetrics answered {status} to {call}{_HINTS.get(status, '')}"
    if said:
        text = f"{text}; it says: {said[:_TEXT_CHARS_SHOWN]}"
    if status in _CLIENT_FAULTS and status not in _TEMPORARY:
        return PermanentStoreError(text)
    return TemporaryStoreError(text)


def understood(
    body: bytes, read: Callable[Concatenate[bytes, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what `read` reads in an answer.

    Raises:
        TemporaryStoreError: It makes no sense; `read` raised ValueError.
    """
    try:
        return read(body, *args, **kwargs)
    except ValueError as error:
        raise TemporaryStoreError(
            f"VictoriaMetrics' answer makes no sense ({error}): is that address VictoriaMetrics'?"
        ) from error
