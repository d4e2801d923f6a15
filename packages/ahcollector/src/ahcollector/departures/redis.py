"""The departures that several processes share, in Redis.

Keys, each behind the client's prefix:

| key | type | holds |
| --- | --- | --- |
| `left:at` | hash | `{co}` or `{co}:{s}` (`%` and `:` in ids are `%25` and `%3A`) to two Unix |
|  |  | milliseconds with a space between: the newest departure, and the newest one with |
|  |  | its series, or nothing |
| `left:order` | zset | the same names by the newest departure |
| `left:version` | string | when something was noted last |

A note is one Lua script, which also takes away what is too old or too much.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ahcollector.departures.base import (
    DEPARTURES_MAX,
    KEEP_SECONDS,
    Departure,
    Left,
    ServerKey,
    check_bounds,
    later,
    tell_over,
)
from ahcollector.errors import DeparturesError, RedisError, RedisRefusedError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisDepartures"]

_log = logging.getLogger("ahcollector.departures")

_NOTE: Final = Script.load("ahcollector.departures", "note")
_VALUE: Final = re.compile(rb"(\d{1,15}) (\d{0,15})")
_PAGE_SERVERS: Final = 500
_UNREADABLE_MAX: Final = 1_000


class RedisDepartures:
    """`Departures` over one Redis; see the module for keys. Durability is that of Redis.

    Args:
        client: The way to Redis; it stays the caller's to close.
        keep_seconds: How long a departure is remembered.
        departures_max: How many are.
        metrics: Where those are counted that make room.

    Raises:
        ValueError: Nothing would be remembered under these bounds.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        keep_seconds: float = KEEP_SECONDS,
        departures_max: int = DEPARTURES_MAX,
        metrics: Metrics | None = None,
    ) -> None:
        check_bounds(keep_seconds=keep_seconds, departures_max=departures_max)
        self._client = client
        self._keep_ms = int(keep_seconds * 1000)
        self._departures_max = departures_max
        self._metrics = metrics if metrics is not None else NullMetrics()
        # Values that were told of: each batch of such a server asks again.
        self._unreadable: dict[str, bytes] = {}

    async def note(self, departure: Departure) -> None:
        """Remember a departure, by one script."""
        left = departure.left
        with self._translated("remember one"):
            over = await self._client.run(
                _NOTE,
                keys=[self._key("at"), self._key("order"), self._key("version")],
                args=[
                    _field(departure.company_id, departure.server_id),
                    left.at_ms,
                    "" if left.series_at_ms is None else left.series_at_ms,
                    left.at_ms - self._keep_ms,
                    self._departures_max,
                ],
            )
        if over:
            tell_over(int(over), self._departures_max, self._metrics)

    async def of(self, servers: Collection[ServerKey]) -> Mapping[ServerKey, Left]:
        """Return when servers left, by one command for each 500 of them."""
        found: dict[ServerKey, Left] = {}
        asked = list(servers)
        for begin in range(0, len(asked), _PAGE_SERVERS):
            page = asked[begin : begin + _PAGE_SERVERS]
            companies = list(dict.fromkeys(company for company, _ in page))
            fields = [_field(company, None) for company in companies]
            fields += [_field(*key) for key in page]
            with self._translated("look for them"):
                reply = await self._client.call("HMGET", self._key("at"), *fields)
            values = [self._left(field, value) for field, value in zip(fields, reply, strict=True)]
            whole = dict(zip(companies, values, strict=False))
            for key, own in zip(page, values[len(companies) :], strict=True):
                left = later(whole[key[0]], own)
                if left is not None:
                    found[key] = left
        return found

    async def version(self) -> str:
        """Return when something was noted last."""
        with self._translated("look for new ones"):
            reply = await self._client.call("GET", self._key("version"))
        return "" if reply is None else bytes(reply).decode("utf-8", "replace")

    def _key(self, name: str) -> str:
        return self._client.key("left", name)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            text = f"departures: cannot {doing}: {error}"
            if isinstance(error, RedisRefusedError) and not error.is_of_server:
                text += (
                    f": a key {self._key('*')} holds what departures never wrote; move it away "
                    "with RENAME, and delete again what was deleted"
                )
            raise DeparturesError(text) from error

    def _left(self, field: str, value: bytes | None) -> Left | None:
        match = None if value is None else _VALUE.fullmatch(value)
        if match is None:
            if value is not None:
                self._tell_unreadable(field, value)
            return None
        at_ms, series_at_ms = match.groups()
        return Left(at_ms=int(at_ms), series_at_ms=int(series_at_ms) if series_at_ms else None)

    def _tell_unreadable(self, field: str, value: bytes) -> None:
        if self._unreadable.get(field) == value:
            return
        if len(self._unreadable) >= _UNREADABLE_MAX:
            self._unreadable.clear()
        self._unreadable[field] = value
        _log.error(
            "what Redis says of somebody who left cannot be read: delete them again",
            extra={"field": field[:200], "found": repr(value[:100])},
        )


def _field(company_id: str, server_id: str | None) -> str:
    parts = [company_id] if server_id is None else [company_id, server_id]
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)
