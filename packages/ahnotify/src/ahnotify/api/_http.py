"""The small parts of the API: keys, bodies, errors, cursors, versions."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ahnotify._identity import instant_text
from ahnotify.directory import ApiKeys, Principal, Role
from ahnotify.errors import (
    BrokerError,
    ConfigurationError,
    ConflictError,
    DatabaseUnavailableError,
    ExistsError,
    InvalidError,
    NotFoundError,
)

Handler: TypeAlias = Callable[[Request, Principal], Awaitable[Response]]

_BODY_BYTES_MAX: Final = 65_536
_PAGE_MAX: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def reply(value: Any, status: int = 200, *, version: int | None = None) -> Response:
    """JSON, never cached, with the version as ETag."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if version is not None:
        headers["ETag"] = f'"{version}"'
    body = json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))
    return Response(body, status, headers, media_type="application/json")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant_text(value)
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]  # has() said so
    raise TypeError(f"{type(value).__name__} has no JSON form")


def problem(status: int, code: str, message: str, **more: Any) -> Response:
    """An error for the caller."""
    response = reply({"error": {"code": code, "message": message, **more}}, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response


def guarded(keys: ApiKeys, handler: Handler, *, role: str) -> Callable[[Request], Any]:
    """`handler` for callers whose key has at least `role`; our errors as answers."""
    least = Role.ORDER.index(role)

    async def endpoint(request: Request) -> Response:
        try:
            principal = await _principal(keys, request)
            if principal is None:
                return problem(401, "unauthorized", "send a valid key as Authorization: Bearer")
            if Role.ORDER.index(principal.role) < least:
                return problem(403, "forbidden", f"this needs the role {role}")
            return await handler(request, principal)
        except InvalidError as error:
            problems = [{"field": field, "reason": reason} for field, reason in error.problems]
            return problem(422, "invalid", str(error), problems=problems)
        except NotFoundError as error:
            return problem(404, "not_found", str(error))
        except ExistsError as error:
            # A PUT said so itself, by If-None-Match: its precondition failed (RFC 9110 13.1.2).
            return problem(409 if request.method == "POST" else 412, "exists", str(error))
        except ConflictError as error:
            return problem(412, "changed", str(error))
        except (DatabaseUnavailableError, BrokerError) as error:
            return problem(503, "unavailable", str(error))
        except ConfigurationError as error:
            return problem(500, "configuration", str(error))

    return endpoint


async def _principal(keys: ApiKeys, request: Request) -> Principal | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return await keys.authenticate(key.strip()) if scheme.lower() == "bearer" else None


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object, bounded.

    Raises:
        InvalidError: It is too large, no JSON, or no object.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise HTTPException(413, f"the body has more than {_BODY_BYTES_MAX} bytes")
    if not body.strip():
        raise InvalidError([("body", "is empty; send a JSON object")])
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise InvalidError([("body", "is not JSON; send a JSON object")]) from error
    if not isinstance(value, dict):
        raise InvalidError([("body", "is JSON, but not an object; send a JSON object")])
    return value


def read_limit(request: Request) -> int:
    """`limit` of the query, 1 to 200.

    Raises:
        InvalidError: It is not a number in that range.
    """
    text = request.query_params.get("limit", "100")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= _PAGE_MAX):
        raise InvalidError([("limit", f"is not a whole number from 1 to {_PAGE_MAX}")])
    return int(text)


def read_version(request: Request) -> int | None:
    """The version that `If-Match` names, 0 for `If-None-Match: *`, None without either.

    Raises:
        InvalidError: `If-Match` is not an ETag of ours.
    """
    if request.headers.get("if-none-match") == "*":
        return 0
    text = request.headers.get("if-match")
    if text is None:
        return None
    inner = text.strip().strip('"')
    if not (inner.isascii() and inner.isdigit() and len(inner) < 10):
        raise InvalidError([("If-Match", "is not an ETag of this API")])
    return int(inner)


def write_cursor(*parts: str | datetime) -> str:
    """An opaque cursor."""
    plain = [_micros(part) if isinstance(part, datetime) else part for part in parts]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def read_cursor(request: Request, length: int) -> list[Any] | None:
    """The parts of `cursor`, None without one.

    Raises:
        InvalidError: It is not a cursor that this API gave.
    """
    text = request.query_params.get("cursor")
    if not text:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidError([("cursor", "is not a cursor of this API")]) from error
    if not isinstance(parts, list) or len(parts) != length:
        raise InvalidError([("cursor", "is not a cursor of this API")])
    return parts


def cursor_time(value: object) -> datetime:
    """A time out of a cursor.

    Raises:
        InvalidError: It is none.
    """
    try:
        if type(value) is int:
            return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        pass
    raise InvalidError([("cursor", "is not a cursor of this API")])


def _micros(value: datetime) -> Any:
    return (value - _EPOCH) // timedelta(microseconds=1)
