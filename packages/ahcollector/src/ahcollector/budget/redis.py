"""The known series of agents in Redis, shared by the processes of an ingest door.

``series:{agent_id}``, behind the client's prefix, is a hash: a field for each fingerprint (16
bytes) with the Unix hour in which the series was last sent, and ``start``, ``first`` and ``begun``
of the newest window. It is gone 25 hours after it was last changed; fields that are older than a
day go when the agent is loaded. A change is one Lua script for each thousand of its series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from ahcollector.budget.base import (
    HOUR_SECONDS,
    TTL_HOURS,
    AgentSeries,
    SeriesChange,
    Window,
    hour_of,
)
from ahcollector.errors import BudgetStoreError, RedisError
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisBudgetStore"]

_PACKAGE = "ahcollector.budget"
_LOAD = Script.load(_PACKAGE, "load")
_TAKE = Script.load(_PACKAGE, "take")
_FINGERPRINT_BYTES = 16
_WINDOW_FIELDS = 3
_KEEP_SECONDS = round((TTL_HOURS + 1) * HOUR_SECONDS)
_STEP_SERIES = 1_000
"""Redis does nothing else meanwhile: a thousand take it about a millisecond."""


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise BudgetStoreError(f"known series: cannot {doing}: {error}") from error


class RedisBudgetStore:
    """`BudgetStore` over one Redis; see the module for keys.

    Args:
        client: The way to Redis; it stays the caller's to close.
    """

    shared = True

    def __init__(self, *, client: RedisClient) -> None:
        self._client = client

    async def load(self, agent_id: str, *, now: float) -> AgentSeries | None:
        """Return what is known of an agent; fields that cannot be read are left out."""
        with _translated("load an agent"):
            window, fields = await self._client.run(
                _LOAD, keys=[self._key(agent_id)], args=[hour_of(now) - TTL_HOURS]
            )
        if not fields and window[0] is None:
            return None
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return AgentSeries(
            window=_window(window, now),
            hours={
                bytes(series): int(hour)
                for series, hour in pairs
                if len(series) == _FINGERPRINT_BYTES and hour.isdigit()
            },
        )

    async def take(self, changes: Sequence[SeriesChange], *, now: float) -> Sequence[Window]:
        """Take changes, an agent after the other."""
        with _translated("take changes"):
            return [await self._take(change, now) for change in changes]

    async def _take(self, change: SeriesChange, now: float) -> Window:
        left = iter(change.hours.items())
        window = change.window
        while True:
            step = [part for pair in islice(left, _STEP_SERIES) for part in pair]
            if not step:
                return window
            reply = await self._client.run(
                _TAKE,
                keys=[self._key(change.agent_id)],
                args=[
                    hour_of(now) - TTL_HOURS,
                    _KEEP_SECONDS,
                    repr(change.window.start),
                    int(change.window.first),
                    *step,
                ],
            )
            window = _window(reply, now)

    async def forget(self, agent_ids: Collection[str]) -> None:
        """Remove agents."""
        with _translated("forget agents"):
            for agent_id in agent_ids:
                await self._client.call("DEL", self._key(agent_id))

    def _key(self, agent_id: str) -> str:
        return self._client.key("series", agent_id)


def _window(reply: Sequence[bytes | None], now: float) -> Window:
    """Read a window; one that cannot be read begins anew."""
    try:
        start, first, begun = reply[:_WINDOW_FIELDS]
        if start is None or first is None or begun is None:
            raise ValueError("a field is missing")
        return Window(start=float(start), first=first == b"1", begun=int(begun))
    except ValueError:
        return Window(start=now, first=True, begun=0)
