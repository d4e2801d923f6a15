"""VictoriaMetrics over HTTP: how it is asked, and how its answers are judged.

Redirects are never followed: the password must not reach another host. Answers are read
uncompressed and up to a bound. What a retry can help:

=========================================  =========
answer                                     error
=========================================  =========
none, cut, late                            temporary
1xx, 3xx, 401, 403, 404, 408, 429, 5xx     temporary
413                                        temporary
any other 4xx that is VictoriaMetrics'     permanent
... of a path that it does not have        temporary
any other 4xx                              temporary
2xx that VictoriaMetrics does not answer   temporary
a query's, over the bound                  permanent
=========================================  =========

A wrong password, a wrong path and a redirect are faults of a setting or of something in between.
They say nothing about the samples, which wait until an operator has put it right. Neither does an
answer of something that stands in between: a proxy, or a page that asks to log in. That a write or
a deletion was done is said by 204 with nothing behind it, as VictoriaMetrics answers, and by no
other success. A refusal is VictoriaMetrics' where it has the header that all of its answers have,
or one of the two forms of its errors.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import attrs
import httpx

from ahcollector.errors import PermanentStoreError, StoreError, TemporaryStoreError

__all__ = ["BodyTooLargeError", "Transport", "VictoriaHttp", "authorization", "understood"]

P = ParamSpec("P")
T = TypeVar("T")

Transport = httpx.AsyncBaseTransport
"""What carries requests."""

_NOTHING_TO_SAY = 204
_TOO_LARGE = 413
_TEMPORARY = frozenset({401, 403, 404, 408, 429})
_CLIENT_FAULTS = range(400, 500)
_TEXT_CHARS_SHOWN = 200
# Of an answer that is only judged, or shown.
_TEXT_BYTES_READ = 4_096
# Every answer of its web server has it; and its errors, where something takes headers away, begin
# so, or are JSON that says so.
_MARK = "X-Server-Hostname"
_ERROR_BEGINS = b"remoteAddr: "
# Its own, and those of vmauth in front of it: the path is at fault.
_NO_SUCH_PATH = (b"unsupported path requested", b"missing route for")
_HINTS: Mapping[int, str] = {
    401: ": check the store's username and password, or bearer",
    403: ": check the store's username and password, or bearer",
    404: ": check its url and what stands in between",
    413: ": let what stands in between take larger bodies, or lower what one carries",
    422: ": one of its limits (-search.max…) was hit; ask for less, or raise it",
}


class BodyTooLargeError(TemporaryStoreError):
    """A body is longer than something on the way takes (413): parts of it may get through."""


@attrs.frozen(kw_only=True)
class _Answer:
    """An answer: of a query whole, of others the beginning."""

    status: int
    body: bytes
    is_marked: bool


def authorization(*, username: str, password: str, bearer: str) -> str | None:
    """Return the header that shows who asks, or None.

    Raises:
        ValueError: Both ways were given, half of one, or what no header can carry.
    """
    if bearer and (username or password):
        raise ValueError("bearer and username are both set: keep one of them")
    if bearer:
        if not re.fullmatch(r"[!-~]+", bearer):
            raise ValueError("bearer has characters that no header can carry: check its file")
        return f"Bearer {bearer}"
    if not username:
        if password:
            raise ValueError("password is set without username: set both")
        return None
    if ":" in username:
        raise ValueError(f"username {username!r} has a colon, which basic auth cannot carry")
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
                f"url {shown!r} is not an http(s) URL without a user and a query: give the "
                "user in username"
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
        return (await self._ask(self._client.build_request("GET", path))).body

    async def get_word(self, path: str, word: bytes) -> None:
        """Ask for a page that has one word, or nothing: it answers nothing else.

        Raises:
            TemporaryStoreError: Something else was answered.
        """
        request = self._client.build_request("GET", path)
        answer = await self._ask(request, is_read=False)
        if answer.status != httpx.codes.OK or answer.body.strip() != word:
            raise _strange(request, answer, f"200 and {word.decode()!r}")

    async def post_form(self, path: str, form: Mapping[str, str]) -> bytes:
        """Ask a query. It is in the body, so that no log of URLs has it, and it may be long."""
        return (await self._ask(self._client.build_request("POST", path, data=dict(form)))).body

    async def order(self, path: str, form: Mapping[str, str]) -> None:
        """Have something done.

        Raises:
            TemporaryStoreError: Nothing says that it was done.
        """
        await self._done(self._client.build_request("POST", path, data=dict(form)))

    async def post_body(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Hand over samples.

        Raises:
            BodyTooLargeError: Something on the way takes no body of this length.
            TemporaryStoreError: Nothing says that they were taken.
        """
        await self._done(
            self._client.build_request("POST", path, content=body, headers=dict(headers))
        )

    async def _done(self, request: httpx.Request) -> None:
        answer = await self._ask(request, is_read=False)
        if answer.status != _NOTHING_TO_SAY or answer.body:
            raise _strange(request, answer, "204 and nothing")

    async def _ask(self, request: httpx.Request, *, is_read: bool = True) -> _Answer:
        call = _named(request)
        try:
            with anyio.fail_after(self._timeout_seconds):
                answer = await self._exchange(request, call, is_read=is_read)
        except TimeoutError as error:
            raise TemporaryStoreError(
                f"VictoriaMetrics gave no answer to {call} within {self._timeout_seconds:g} s"
            ) from error
        except httpx.RemoteProtocolError as error:
            raise TemporaryStoreError(
                f"VictoriaMetrics cannot be reached for {call}: what listens there hung up, or "
                f"speaks no HTTP ({type(error).__name__}): see that it is VictoriaMetrics and "
                "runs, and check its url"
            ) from error
        except httpx.HTTPError as error:
            raise TemporaryStoreError(
                f"VictoriaMetrics cannot be reached for {call}: {type(error).__name__}: "
                "see that it runs, and check its url"
            ) from error
        if not httpx.codes.is_success(answer.status):
            raise _failure(call, answer)
        return answer

    async def _exchange(self, request: httpx.Request, call: str, *, is_read: bool) -> _Answer:
        response = await self._client.send(request, stream=True)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding.lower() != "identity":
                raise TemporaryStoreError(
                    f"VictoriaMetrics answered {call} in coding {coding[:20]!r}, which nobody "
                    "asked for: check what stands in between"
                )
            is_whole = is_read and response.is_success
            most = self._response_bytes_max if is_whole else _TEXT_BYTES_READ
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    break
        finally:
            await response.aclose()
        if is_whole and size > most:
            raise PermanentStoreError(
                f"VictoriaMetrics' answer to {call} is over {most} bytes: ask for a shorter "
                "range, a longer step or fewer series"
            )
        return _Answer(
            status=response.status_code,
            body=b"".join(pieces),
            is_marked=_MARK in response.headers,
        )


def _named(request: httpx.Request) -> str:
    return f"{request.method} {request.url.path}"


def _said(answer: _Answer) -> str:
    text = " ".join(answer.body[: 4 * _TEXT_CHARS_SHOWN].decode(errors="replace").split())
    return f"; it says: {text[:_TEXT_CHARS_SHOWN]}" if text else ""


def _strange(request: httpx.Request, answer: _Answer, expected: str) -> TemporaryStoreError:
    return TemporaryStoreError(
        f"{_named(request)} was answered {answer.status}, where VictoriaMetrics answers "
        f"{expected}, so nothing says that it was done: see what answers in its place (a proxy, a "
        f"page that asks to log in), and check its url{_said(answer)}"
    )


def _failure(call: str, answer: _Answer) -> StoreError:
    status = answer.status
    hint = _HINTS.get(status, "")
    if status == _TOO_LARGE:
        return BodyTooLargeError(f"{call} was answered 413{hint}{_said(answer)}")
    text = f"VictoriaMetrics answered {status} to {call}{hint}{_said(answer)}"
    if status not in _CLIENT_FAULTS or status in _TEMPORARY:
        return TemporaryStoreError(text)
    if not _is_its_own(answer):
        return TemporaryStoreError(
            f"{call} was answered {status}, not by VictoriaMetrics: check its url and what "
            f"stands in between{_said(answer)}"
        )
    if any(one in answer.body for one in _NO_SUCH_PATH):
        return TemporaryStoreError(f"{text}: check its url and what stands in between")
    return PermanentStoreError(text)


def _is_its_own(answer: _Answer) -> bool:
    """Return whether a refusal is VictoriaMetrics' and not that of something in between."""
    if answer.is_marked or answer.body.startswith(_ERROR_BEGINS):
        return True
    try:
        error = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(error, dict) and error.get("status") == "error"


def understood(
    body: bytes, read: Callable[Concatenate[bytes, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what `read` reads in an answer.

    Raises:
        TemporaryStoreError: It makes no sense; `read` raised ValueError, or it is nested too deep.
    """
    try:
        return read(body, *args, **kwargs)
    except (ValueError, RecursionError) as error:
        raise TemporaryStoreError(
            f"VictoriaMetrics' answer makes no sense ({error}): is that address VictoriaMetrics'?"
        ) from error
