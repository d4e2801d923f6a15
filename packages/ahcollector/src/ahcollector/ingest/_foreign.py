"""The doors of other protocols: what every one of them does before and after its translation.

A door of another protocol reads a body and says what it means as one of our batches. All else is
here and the same for all: the token, the sign of life, the rate in points, the judgement, the bus
and the counts. The order is that of the agents' own door but for the rate, since points can be
counted only when the body was understood, and what comes before that is paid for too (`Toll`):

    token → sign of life → toll → body → toll → translation → size → toll → judgement → budget → bus

A sender of another protocol knows neither our codes nor what they mean, and many drop what they
sent at any status under 500. So what can pass at a later try is answered 503 here, always with
``Retry-After``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

import attrs
from starlette.requests import ClientDisconnect, Request

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._batches import BatchIntake
from ahcollector.ingest._gate import Gate, Pass
from ahcollector.ingest._toll import Toll
from ahcollector.ingest.limits import IngestLimits
from ahcollector.metrics import INGEST_DROPPED_POINTS, Metrics
from ahwire.agent_pb2 import MetricsAck, MetricsBatch
from ahwire.batch import count_points
from ahwire.status import HTTP_STATUS, Code

__all__ = [
    "NAME_CHARS_SHOWN",
    "ForeignDoor",
    "Read",
    "Refused",
    "Taken",
    "Translate",
    "Translated",
    "foreign_status",
    "log_refused",
    "refused_series",
    "retry_after_seconds",
    "shortened",
    "told",
]

_log = logging.getLogger("ahcollector.ingest")

NAME_CHARS_SHOWN = 60
"""How much of a metric's name a sender is told."""

_REASONS_MAX = 10
_RETRY_SECONDS = 5.0
_UNAVAILABLE = 503

# What a sender may try again, though the agents' own table has a status under 500 for it.
_LATER = frozenset({Code.TIMEOUT, Code.RATE_LIMITED})

_WHY: Mapping[str, str] = MappingProxyType(
    {
        "bad_name": "it has no name",
        "bad_label": "a label's value has NUL in it",
        "too_long": "its name, or a label's name or value, is too long",
        "too_many_labels": "it has too many labels: drop some before sending",
        "too_old": "the points are older than is taken",
        "in_future": "the points are in the future: set the sender's clock",
        "not_finite": "the values are infinite",
        "series_limit": "the agent began too many new series this hour: drop labels that change",
    }
)


@attrs.frozen(kw_only=True)
class Refused:
    """Something that was sent and is not stored.

    Attributes:
        reason: A sentence for the sender's log: what it was, why not, and the way out.
        code: What it is counted under, a word of few.
        points: How many of what was sent it stands for, above 0.
    """

    reason: str
    code: str
    points: int


@attrs.frozen(kw_only=True)
class Translated:
    """What a foreign body means.

    Attributes:
        batch: Series with names and labels as they were sent; they are judged like any agent's.
        refused: What has no meaning here; the sender is told.
        passed_over: What is left out without a fault of the sender's; counted, and not told.
    """

    batch: MetricsBatch
    refused: tuple[Refused, ...] = ()
    passed_over: tuple[Refused, ...] = ()


@attrs.frozen(kw_only=True)
class Taken:
    """What became of a foreign body: what was accepted is on the bus.

    Attributes:
        accepted_points: Points on the bus.
        refused: All that is not stored through a fault of what was sent: first what could not be
            translated, then what the judgement refused, one entry for each series and code.
        passed_over: What was left out without a fault of the sender's.
        series_refused: Places in the batch of the series of which the judgement refused points,
            for protocols that count something larger than our points.
        warnings: Sentences for the sender's log.
    """

    accepted_points: int
    refused: tuple[Refused, ...]
    passed_over: tuple[Refused, ...]
    series_refused: frozenset[int]
    warnings: tuple[str, ...]

    @property
    def refused_points(self) -> int:
        """How many of what was sent are not stored through a fault of theirs."""
        return sum(one.points for one in self.refused)


Read = Callable[[int], None]
"""To be told how many plain bytes a body has, before it is understood; raises
RequestRefusedError."""

Translate = Callable[[Request, Read], Awaitable[Translated]]
"""Reads a body under its limits and says what it means; raises RequestRefusedError."""


class ForeignDoor:
    """What a door of another protocol goes through.

    Args:
        gate: Who may pass, and how fast.
        intake: Judges batches and puts them on the bus.
        limits: What batches are held to.
        metrics: Where what is not stored is counted.
    """

    def __init__(
        self, *, gate: Gate, intake: BatchIntake, limits: IngestLimits, metrics: Metrics
    ) -> None:
        self._gate = gate
        self._intake = intake
        self._limits = limits
        self._metrics = metrics

    async def take(self, request: Request, translate: Translate) -> Taken:
        """Take a request's body. When this returns, what was accepted is on the bus.

        Args:
            request: Its body is read by `translate`, after the token was found good.
            translate: Called once.

        Raises:
            RequestRefusedError: Nothing was taken; `foreign_status` has the status of the answer
                and `retry_after_seconds` its ``Retry-After``.
        """
        passed = await self._gate.foreign(request.headers)
        request.state.agent_id = passed.agent.agent_id
        async with self._gate.answered(passed.agent):
            toll = self._gate.toll(passed.agent)
            toll.enter()
            try:
                return await self._take(request, passed, translate, toll)
            except RequestRefusedError as refusal:
                toll.refused(refusal.code)
                raise
            except ClientDisconnect:
                toll.refused(Code.BAD_REQUEST)  # Its body was cut off.
                raise

    async def _take(
        self, request: Request, passed: Pass, translate: Translate, toll: Toll
    ) -> Taken:
        translated = await translate(request, toll.read)
        points = _points(translated)
        most = self._limits.batch.points_per_batch
        if points > most:
            raise RequestRefusedError(
                Code.TOO_LARGE, f"the body has {points} points, over {most}: send less at once"
            )
        toll.understood(points)
        outcome = await self._intake.take(
            passed, translated.batch, request_id=request.state.request_id, config_etag=""
        )
        self._count((*translated.refused, *translated.passed_over))
        return Taken(
            accepted_points=outcome.ack.accepted_points,
            refused=(*translated.refused, *_judged(translated.batch, outcome.ack)),
            passed_over=translated.passed_over,
            series_refused=frozenset(one.index for one in outcome.ack.rejected),
            warnings=tuple(outcome.ack.warnings),
        )

    def _count(self, left_out: Iterable[Refused]) -> None:
        """Count what the intake never saw."""
        counts: Counter[str] = Counter()
        for one in left_out:
            counts[one.code] += one.points
        for code, points in counts.items():
            self._metrics.inc(INGEST_DROPPED_POINTS, points, code=code)


def _points(translated: Translated) -> int:
    left_out = (*translated.refused, *translated.passed_over)
    return count_points(translated.batch) + sum(one.points for one in left_out)


def _judged(batch: MetricsBatch, ack: MetricsAck) -> tuple[Refused, ...]:
    """Return what the judgement refused, in words."""
    return tuple(
        refused_series(batch.series[one.index].name, one.code, one.points) for one in ack.rejected
    )


def refused_series(name: str, code: str, points: int) -> Refused:
    """Return that points of a series are refused under a code of the judgement, in words."""
    why = _WHY.get(code, "it is refused")
    reason = f"series {name[:NAME_CHARS_SHOWN]!r}: {why}"
    return Refused(reason=reason, code=code, points=points)


def told(refused: Iterable[Refused], *, reasons_max: int = _REASONS_MAX) -> list[str]:
    """Return lines for a sender's log: equal reasons once with their points, and few of them."""
    points: Counter[tuple[str, str]] = Counter()
    for one in refused:
        points[one.reason, one.code] += one.points
    lines = [
        f"{reason} ({code}, {count} point{'s' if count != 1 else ''})"
        for (reason, code), count in list(points.items())[:reasons_max]
    ]
    left = len(points) - len(lines)
    return [*lines, f"and {left} more reasons"] if left else lines


def shortened(text: str, chars_max: int) -> str:
    """Return a text, cut with a mark where it is longer."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 4]} ..."


def log_refused(request: Request, reason: str) -> None:
    """Write to our log too what a sender is told of what is not stored."""
    _log.info(
        "points refused",
        extra={
            "request_id": request.state.request_id,
            "path": request.url.path,
            "agent_id": request.state.agent_id,
            "reason": reason,
        },
    )


def foreign_status(code: Code) -> int:
    """Return the HTTP status of a refusal at a door of another protocol."""
    return _UNAVAILABLE if code in _LATER else HTTP_STATUS[code]


def retry_after_seconds(refusal: RequestRefusedError) -> float | None:
    """Return how long a sender should wait; None where trying again is of no use."""
    if foreign_status(refusal.code) != _UNAVAILABLE:
        return None
    seconds = refusal.retry_after_seconds
    return _RETRY_SECONDS if seconds is None else seconds
