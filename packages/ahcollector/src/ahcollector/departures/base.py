"""Departures: the protocol of what remembers who left, and its values.

A batch that was accepted may wait for hours: on a bus, in the hands of a worker, until it is
durable, among dead letters. When its server or company is deleted meanwhile, nothing on the way
knows. So a *departure* is remembered, and whoever takes a batch up asks for it: what was received
before the departure is of somebody who is not there any more, and what was received after it is of
somebody who came back under the same id.

There are two kinds. A server or company that was *deleted* left with its series: its batches are
neither stored nor judged. A server whose last agent was revoked, or is an orphan that the hub no
longer lists, left *without* them: its history is kept and what was acknowledged is still written,
but nothing of it is judged, because nothing would ever end the alert.

The law that every `Departures` keeps:

* `note` is one step, and durable on return as far as the implementation can make it.
* Instants only rise: an older departure, or the same again, changes nothing. A departure that keeps
  the series takes nothing from one that does not.
* What is remembered of a company counts for each of its servers.
* Bounded in age and number. The oldest go first; those that were not too old are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final, Protocol, TypeAlias

import attrs

from ahcollector import metrics as names
from ahcollector.metrics import Metrics

__all__ = [
    "DEPARTURES_MAX",
    "KEEP_SECONDS",
    "Departure",
    "Departures",
    "Left",
    "ServerKey",
    "check_bounds",
    "later",
    "tell_over",
]

_log = logging.getLogger("ahcollector.departures")

KEEP_SECONDS: Final = 90 * 86_400.0
"""How long a departure is remembered: longer than any bus or dead letter keeps a batch."""

DEPARTURES_MAX: Final = 100_000
"""How many are remembered, some 200 bytes each."""

ServerKey: TypeAlias = tuple[str, str]
"""A company and one of its servers."""


@attrs.frozen(kw_only=True)
class Departure:
    """That a server, or a whole company, left.

    Attributes:
        company_id: The company.
        server_id: The server; None: all of the company.
        at: When, Unix seconds, by the clock that dates the receipt of batches.
        keeps_series: Whether what was received before is still to be stored.
    """

    company_id: str
    server_id: str | None
    at: float
    keeps_series: bool

    @property
    def left(self) -> Left:
        """What is remembered of it."""
        at_ms = int(self.at * 1000)
        return Left(at_ms=at_ms, series_at_ms=None if self.keeps_series else at_ms)


@attrs.frozen(kw_only=True)
class Left:
    """When somebody left last.

    Attributes:
        at_ms: The newest departure, Unix milliseconds.
        series_at_ms: The newest one with its series; None: they were always kept.
    """

    at_ms: int
    series_at_ms: int | None


def later(one: Left | None, other: Left | None) -> Left | None:
    """Return what is known from both: the later instant of each kind."""
    if one is None or other is None:
        return one if other is None else other
    series = [ms for ms in (one.series_at_ms, other.series_at_ms) if ms is not None]
    return Left(at_ms=max(one.at_ms, other.at_ms), series_at_ms=max(series, default=None))


def check_bounds(*, keep_seconds: float, departures_max: int) -> None:
    """Refuse bounds under which nothing would be remembered. Raises ValueError."""
    if departures_max < 1 or not keep_seconds > 0:
        raise ValueError(
            f"departures_max is {departures_max} and keep_seconds {keep_seconds:g}: at least "
            "one departure must be remembered, for some time"
        )


def tell_over(count: int, departures_max: int, metrics: Metrics) -> None:
    """Count, and say in the log, that the bound of their number has pushed the oldest out."""
    metrics.inc(names.DEPARTURES_DROPPED, count)
    _log.warning(
        "the oldest departure is forgotten, because so many are remembered: a batch that waited"
        " since would be stored again",
        extra={"departures_max": departures_max},
    )


class Departures(Protocol):
    """Remembers who left.

    Every method may raise `DeparturesError` when what keeps them gives no answer; a note that
    raised may or may not have been taken, and may be repeated.
    """

    async def note(self, departure: Departure) -> None:
        """Remember a departure; see the law of the module."""
        ...

    async def of(self, servers: Collection[ServerKey]) -> Mapping[ServerKey, Left]:
        """Return when servers left, by themselves or with their company; others are absent.

        What any process noted before the call is in the answer.
        """
        ...

    async def version(self) -> str:
        """Return a text that changes whenever something is noted that was not known."""
        ...
