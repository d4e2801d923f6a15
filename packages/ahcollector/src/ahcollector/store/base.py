"""Time series: the protocol of what stores samples and answers queries over them.

The law that every implementation keeps is said in `ahcollector.store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

import attrs

from ahcollector.bus.base import SampleBatch

__all__ = [
    "RANGE_POINTS_MAX",
    "Aggregate",
    "Deleter",
    "LatestSample",
    "RangeSeries",
    "Reader",
    "Restarts",
    "SeriesInfo",
    "Store",
    "Writer",
]

RANGE_POINTS_MAX: Final = 11_000
"""How many points a range query may have a series."""


class Aggregate(StrEnum):
    """How the samples of one step become one point.

    Attributes:
        AVG: Their mean.
        MIN: The least of them.
        MAX: The greatest.
        SUM: Their sum.
        COUNT: How many there are.
        LAST: The newest of them.
    """

    AVG = "avg"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    COUNT = "count"
    LAST = "last"


@attrs.frozen(kw_only=True)
class RangeSeries:
    """One series of a range answer.

    Attributes:
        labels: All labels, in the stored order.
        points: Pairs of Unix milliseconds and value, rising; steps without a sample are absent.
    """

    labels: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, float], ...]


@attrs.frozen(kw_only=True)
class LatestSample:
    """The newest sample of one series.

    Attributes:
        labels: All labels, in the stored order.
        timestamp_ms: When it was taken, Unix milliseconds.
        value: Its value.
    """

    labels: tuple[tuple[str, str], ...]
    timestamp_ms: int
    value: float


@attrs.frozen(kw_only=True)
class SeriesInfo:
    """That a series exists, and over what time it has samples.

    Attributes:
        labels: All labels, in the stored order.
        first_ms: When its oldest sample was taken, Unix milliseconds.
        last_ms: When its newest one was.
    """

    labels: tuple[tuple[str, str], ...]
    first_ms: int
    last_ms: int


class Writer(Protocol):
    """Takes samples."""

    async def write(self, batches: Sequence[SampleBatch]) -> None:
        """Store all finite samples of all batches; returns when that is done.

        Raises:
            TemporaryStoreError: The store cannot take them now; some may have been stored.
            PermanentStoreError: The store refuses at least one batch for good; none of the refused
                batch was stored. A batch without a tenant, or with a series of another tenant than
                its own, is always refused, before anything is stored.
        """
        ...


@runtime_checkable
class Restarts(Protocol):
    """Tells whether a store may have lost what it took in.

    A store whose writes are durable when they return has no need of it. A worker looks for it: a
    store that has an `epoch` is asked, and written to again, without being told to.
    """

    async def epoch(self) -> str:
        """Return a text that changes whenever the store may have lost what it took in.

        Two equal answers say that the same store lived from the one to the other, so that what it
        took before the first is as old in it as it seems.

        Raises:
            TemporaryStoreError: It cannot be told now. It may have lost something meanwhile.
        """
        ...


class Reader(Protocol):
    """Answers queries."""

    async def range(
        self,
        company_id: str,
        server_id: str,
        metric: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
        aggregate: Aggregate = Aggregate.AVG,
    ) -> list[RangeSeries]:
        """Return every series of a metric at the times start, start + step … up to end.

        The point at t is the aggregate of the samples in (t - step, t]. A metric may be named with
        or without the ``ah_`` that stored names begin with, and is normalised as names of samples
        are. Series come in order of their labels; those without a sample in the range are absent.

        Raises:
            ValueError: `step_ms` is under the store's least step (one second, or what it says), the
                end is before the start, or the range has more than `RANGE_POINTS_MAX` steps.
            TemporaryStoreError: The store cannot be asked now.
            PermanentStoreError: The store does not answer such a question, for example because the
                answer is too large. So may the other queries and the deletions.
        """
        ...

    async def latest(
        self, company_id: str, server_id: str, *, since_ms: int | None = None
    ) -> list[LatestSample]:
        """Return the newest sample of every series of a server, in order of their labels.

        Series whose newest sample is before `since_ms` are absent; the default is 10 minutes ago.
        """
        ...

    async def series(self, company_id: str, server_id: str | None = None) -> list[SeriesInfo]:
        """Return the series of a server, or of a whole company, in order of their labels."""
        ...


class Deleter(Protocol):
    """Forgets tenants."""

    async def delete_server(self, company_id: str, server_id: str) -> int:
        """Delete all series of a server; return how many there were."""
        ...

    async def delete_company(self, company_id: str) -> int:
        """Delete all series of a company; return how many there were."""
        ...


class Store(Writer, Reader, Deleter, Protocol):
    """A whole time-series store."""

    async def ping(self) -> None:
        """Return when the store answers.

        Raises:
            TemporaryStoreError: It does not.
        """
        ...
