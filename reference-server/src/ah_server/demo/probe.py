"""Asks the running server from outside, over the doors a person or a program would use."""

import json
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import attrs

from ah_server.demo.ledger import Promised, SeriesKey, join_counts
from ah_server.errors import CheckFailedError
from ah_server.http_client import DoorClient
from ah_server.wiring import Assembly
from ahwire import Event

STEP_MS = 1000
_STEPS_MAX = 10_000
_Found = TypeVar("_Found")


@attrs.frozen(kw_only=True)
class Series:
    """One series of an answer of the admin API."""

    key: SeriesKey
    points: tuple[tuple[int, float], ...]


class Probe:
    """A client of the server's HTTP doors; used with `async with`."""

    def __init__(self, assembly: Assembly) -> None:
        self._urls = {name: f"http://{at.netloc}" for name, at in assembly.addresses.items()}
        tokens = {"admin": assembly.admin_token, "hub": assembly.hub_token}
        self._doors = {
            name: DoorClient(name=name, base_url=url, token=tokens.get(name))
            for name, url in self._urls.items()
        }

    async def __aenter__(self) -> Self:
        for door in self._doors.values():
            await door.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for door in self._doors.values():
            await door.__aexit__(kind, error, trace)

    def url(self, door: str, path: str = "") -> str:
        """The address of a door."""
        return self._urls[door] + path

    async def events(self) -> list[Event]:
        """All events at the hub, in its order."""
        answer = await self._doors["hub"].get_json("/admin/api/events")
        return [Event.from_json(json.dumps(line["event"]).encode()) for line in answer["events"]]

    async def series(self, company_id: str, metric: str, **query: Any) -> list[Series]:
        """A range query at the admin API."""
        answer = await self._doors["admin"].get_json(
            f"/admin/v1/companies/{company_id}/series/range", metric=metric, **query
        )
        return [_series(one) for one in answer["series"]]

    async def stored(
        self, company_id: str, server_id: str, promised: Promised
    ) -> dict[SeriesKey, dict[int, tuple[int, float]]]:
        """Count and sum of what is stored of each promised metric, by second."""
        first, last = promised.span_ms
        start = first // STEP_MS * STEP_MS
        end = -(-last // STEP_MS) * STEP_MS
        if (end - start) // STEP_MS > _STEPS_MAX:
            raise CheckFailedError("the ledger spans too long a time to be checked by the second")
        window = {"server_id": server_id, "start_ms": start, "end_ms": end, "step_ms": STEP_MS}
        counts: list[tuple[SeriesKey, tuple[tuple[int, float], ...]]] = []
        sums: list[tuple[SeriesKey, tuple[tuple[int, float], ...]]] = []
        for metric in sorted({name for name, _ in promised.series}):
            for aggregate, found in (("count", counts), ("sum", sums)):
                answer = await self.series(company_id, metric, aggregate=aggregate, **window)
                found += [(one.key, one.points) for one in answer]
        return join_counts(counts, sums)

    async def page(self, path: str) -> str:
        """A page of the console."""
        return await self._doors["console"].get_text(path)


def _series(answer: Any) -> Series:
    labels = dict(answer["labels"])
    name = labels.pop("__name__")
    for tenant in ("company_id", "server_id"):
        labels.pop(tenant)
    points = tuple((int(at), float(value)) for at, value in answer["points"])
    return Series(key=(name, tuple(sorted(labels.items()))), points=points)


async def wait_for(
    what: str, look: Callable[[], Awaitable[_Found | None]], *, within_seconds: float
) -> _Found:
    """Looks again and again until it finds something.

    Raises:
        CheckFailedError: nothing was found in time; the text says what and how long.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        found = await look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise CheckFailedError(f"{what}: not within {within_seconds:g} s")
        await anyio.sleep(0.1)
