"""Asks the running server from outside, over the doors a person or a program would use."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import attrs
import httpx

from ah_server.demo.ledger import Promised, SeriesKey, join_counts
from ah_server.errors import CheckFailedError
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
    """A client of the server's HTTP doors; `aclose` ends it."""

    def __init__(self, assembly: Assembly) -> None:
        self._addresses = assembly.addresses
        self._admin = {"Authorization": f"Bearer {assembly.admin_token.reveal()}"}
        self._hub = {"Authorization": f"Bearer {assembly.hub_token.reveal()}"}
        self._http = httpx.AsyncClient(timeout=10.0, trust_env=False)

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    def url(self, door: str, path: str = "") -> str:
        """The address of a door."""
        return f"http://{self._addresses[door].netloc}{path}"

    async def events(self) -> list[Event]:
        """All events at the hub, in its order."""
        answer = await self._http.get(self.url("hub", "/admin/api/events"), headers=self._hub)
        answer.raise_for_status()
        return [
            Event.from_json(json.dumps(line["event"]).encode()) for line in answer.json()["events"]
        ]

    async def series(self, company_id: str, metric: str, **query: Any) -> list[Series]:
        """A range query at the admin API."""
        answer = await self._http.get(
            self.url("admin", f"/admin/v1/companies/{company_id}/series/range"),
            params={"metric": metric, **query},
            headers=self._admin,
        )
        answer.raise_for_status()
        return [_series(one) for one in answer.json()["series"]]

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
        answer = await self._http.get(self.url("console", path))
        answer.raise_for_status()
        return answer.text


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
