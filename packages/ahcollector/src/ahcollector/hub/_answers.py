"""What the hub's answers mean: pure functions.

Which answers a retry can help:

==========================  ==========================
answer                      error
==========================  ==========================
none, cut, not JSON         temporary
1xx, 3xx, 2xx unreadable    temporary (not the hub's own answer)
401, 403, 408, 429, 5xx     temporary
412                         fenced
any other 4xx, with a code  permanent
any other 4xx, without      temporary
==========================  ==========================

The code is the hub's signature: an ``X-AH-Code`` header, or ``code`` in the JSON error body. A bare
404 or 413 is what a proxy in between says, or the wrong address, and nothing may be dropped for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import attrs

from ahcollector._fences import FOLLOWED_MAX, may_follow
from ahcollector.errors import FencedHubError, HubError, PermanentHubError, TemporaryHubError
from ahrules import FieldError, SilenceError
from ahwire import AgentRecord, DecodeError, parse_retry_after
from ahwire.hub import AgentPage, Silence

__all__ = [
    "CLIENT_FAULTS",
    "FENCED",
    "TEMPORARY_FAULTS",
    "failure",
    "read_page",
    "read_record",
    "read_silences",
]

_log = logging.getLogger("ahcollector.hub")

FENCED = 412
_SHOWN_CHARS = 40
_DIGITS_MAX = 400
CLIENT_FAULTS = range(400, 500)
TEMPORARY_FAULTS = frozenset({401, 403, 408, 429})
_OUR_TOKEN = frozenset({401, 403})
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def failure(
    call: str, status: int, body: bytes, headers: Mapping[str, str], *, now: float
) -> HubError:
    """Return the error that an answer outside 2xx means.

    Args:
        call: Method and path for the text, without a query.
        status: HTTP status.
        body: What was read of the body.
        headers: Headers of the answer.
        now: Unix seconds, to read ``Retry-After`` as a date.
    """
    fields = _fields(body)
    code = _clean_code(headers.get("x-ah-code")) or _clean_code(fields.get("code"))
    if code is None:
        error = fields.get("error")
        code = _clean_code(error.get("code") if isinstance(error, dict) else error)
    text = f"hub answered {status}{f' {code}' if code else ''} to {call}"
    if status == FENCED:
        return _fenced(text, fields.get("newest"))
    refused = status in CLIENT_FAULTS and status not in TEMPORARY_FAULTS
    if refused and code is not None:
        return PermanentHubError(f"{text}: a retry cannot help", status=status, code=code)
    hint = ": check the hub's token" if status in _OUR_TOKEN else ""
    if refused:
        hint = (
            " without an error code, so it may not be the hub: check the hub's base_url and proxies"
        )
    return TemporaryHubError(
        f"{text}{hint}",
        status=status,
        code=code,
        retry_after_seconds=parse_retry_after(headers.get("retry-after"), now=now),
    )


def _fenced(text: str, newest: object) -> FencedHubError:
    if newest is None or may_follow(newest):
        return FencedHubError(f"{text}: another sender holds the lease", newest=newest)
    return FencedHubError(
        f"{text} and names {_shown(newest)} as the newest fence, which none can be above: fences "
        f"are whole numbers from 0 to {FOLLOWED_MAX}; set the hub's counter of fences back",
        newest=None,
        is_senseless=True,
    )


def _shown(value: object) -> str:
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _clean_code(value: object) -> str | None:
    return value if isinstance(value, str) and _CODE.fullmatch(value) else None


def _fields(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body, parse_int=_integer)
    except (ValueError, RecursionError):
        return {}
    if isinstance(parsed, dict) and isinstance(parsed.get("data"), dict):
        parsed = parsed["data"]
    return parsed if isinstance(parsed, dict) else {}


def _integer(text: str) -> int:
    """Read a whole number; one of more digits than Python reads as one that no field takes."""
    return int(text) if len(text) <= _DIGITS_MAX else 10**_DIGITS_MAX


def read_record(body: bytes) -> AgentRecord:
    """Read one agent.

    A previous token whose expiry cannot be read has expired; the rest of the record holds.

    Raises:
        DecodeError: The record does not keep its contract.
    """
    try:
        return AgentRecord.from_json(body)
    except DecodeError as error:
        fields = _fields(body)
        if error.field != "prev_token_expires_at" or "prev_token_expires_at" not in fields:
            raise
        _log.warning("expiry of a previous token cannot be read: it counts as expired")
        del fields["prev_token_expires_at"]
        return AgentRecord.from_json(json.dumps(fields).encode())


def read_page(body: bytes) -> AgentPage:
    """Read a page of agents.

    A record that does not keep its contract is left out and told: it alone stays unknown, and
    everything behind it is still followed.

    Raises:
        DecodeError: The page itself cannot be read.
    """
    try:
        return AgentPage.from_json(body)
    except DecodeError:
        fields = _fields(body)
        agents = fields.get("agents")
        if not isinstance(agents, list):
            raise
    good: list[AgentRecord] = []
    for position, agent in enumerate(agents):
        try:
            good.append(read_record(json.dumps(agent).encode()))
        except DecodeError as error:
            _log.error(
                "hub listed an agent that cannot be understood; it is left out",
                extra={"position": position, "error": str(error)},
            )
    page = AgentPage.from_json(json.dumps({**fields, "agents": []}).encode())
    return attrs.evolve(page, agents=tuple(good))


def read_silences(body: bytes) -> tuple[tuple[Silence, ...], tuple[SilenceError, ...]]:
    """Read silences one by one, so that one that is not well formed costs no other.

    Returns:
        The silences, and for each that does not keep the contract its fault by field path.

    Raises:
        DecodeError: The document itself cannot be read.
    """
    items = _fields(body).get("silences")
    if not isinstance(items, list):
        raise DecodeError(field="silences", reason="is missing or no array; it holds the silences")
    good: list[Silence] = []
    refused: list[SilenceError] = []
    for position, item in enumerate(items):
        try:
            good.append(Silence.from_json(json.dumps(item).encode()))
        except DecodeError as error:
            path = f"silences[{position}]" + (f".{error.field}" if error.field else "")
            refused.append(
                SilenceError(
                    company_id=_text_of(item, "company_id"),
                    silence_id=_text_of(item, "silence_id"),
                    errors=(FieldError(path, error.reason),),
                )
            )
    return tuple(good), tuple(refused)


def _text_of(item: object, name: str) -> str:
    found = item.get(name) if isinstance(item, dict) else None
    return found if isinstance(found, str) else ""
