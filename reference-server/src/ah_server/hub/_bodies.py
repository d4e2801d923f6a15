"""Requests of the hub: bounded, and decoded so that one bad event spoils only itself."""

import hashlib
import json
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from ahwire import Event
from ahwire.errors import DecodeError
from ahwire.hub import RejectedEvent

BODY_BYTES_MAX = 8 << 20
EVENTS_MAX = 200
_LONG_BYTES = 256 * 1024


_DIGITS_MAX = 19
_INT64_MAX = 2**63 - 1


class RefusedBodyError(Exception):
    """The body of a request cannot be used; the text says why."""


def is_number(text: str) -> bool:
    """Whether the text is a whole number, not negative, that a column of the database can hold."""
    is_short = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return is_short and int(text) <= _INT64_MAX


async def read_body(request: Request) -> bytes:
    """The whole body, which is JSON that can be written again.

    Raises:
        RefusedBodyError: it is over the limit (the rest is not read), no JSON, or holds half of a
            character or a number that is none: nothing could keep those or answer with them.
    """
    body, _ = await _read(request)
    return body


async def read_mapping(request: Request) -> dict[str, Any]:
    """The body as a JSON object; see `read_body`.

    Raises:
        RefusedBodyError: it is none.
    """
    _, data = await _read(request)
    if not isinstance(data, dict):
        raise RefusedBodyError("the body must be a JSON object")
    return data


async def _read(request: Request) -> tuple[bytes, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise RefusedBodyError(f"the body is over {BODY_BYTES_MAX} bytes")
    whole = bytes(body)
    if len(whole) > _LONG_BYTES:
        # It takes a second, in which others must have their turns.
        return whole, await anyio.to_thread.run_sync(_parse, whole)
    return whole, _parse(whole)


def _parse(body: bytes) -> Any:
    try:
        data = json.loads(body.decode())
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise RefusedBodyError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise RefusedBodyError(f"the body is not JSON: {error}") from error
    except ValueError as error:
        raise RefusedBodyError(
            "the body is not JSON in UTF-8 with whole characters and finite numbers"
        ) from error
    return data


def decode_events(body: bytes) -> tuple[list[Event], list[RejectedEvent]]:
    """The events that can be read, and those that cannot with the reason.

    Raises:
        RefusedBodyError: the body as a whole is not `{"events": [1..200]}`.
    """
    data = _parse(body)
    items = data.get("events") if isinstance(data, dict) else None
    if not isinstance(items, list) or not 1 <= len(items) <= EVENTS_MAX:
        raise RefusedBodyError(f"events: expected a list of 1 to {EVENTS_MAX}")
    accepted: list[Event] = []
    rejected: list[RejectedEvent] = []
    for place, item in enumerate(items):
        try:
            accepted.append(Event.from_json(json.dumps(item).encode()))
        except DecodeError as error:
            event_id = item.get("event_id") if isinstance(item, dict) else None
            if not isinstance(event_id, str):
                raise RefusedBodyError(f"events[{place}]: {error}") from error
            rejected.append(RejectedEvent(event_id=event_id, reason=str(error)))
    return accepted, rejected


def etag_response(request: Request, body: bytes) -> Response:
    """The body with its ETag, or 304 when the asker has it already."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"ETag": etag})
    return Response(body, media_type="application/json", headers={"ETag": etag})
