"""From a plain body to the bus: what the metrics door does once the agent is known."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import anyio
import anyio.lowlevel
import attrs

from ahcollector.budget.keeper import BudgetKeeper
from ahcollector.budget.series_budget import SeriesBudget
from ahcollector.bus.base import Bus, SampleBatch, StoredSeries
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError, RequestRefusedError
from ahcollector.ingest._body import as_refusals
from ahcollector.ingest._gate import Pass
from ahcollector.ingest.limits import IngestLimits
from ahcollector.metrics import INGEST_DROPPED_POINTS, INGEST_POINTS, INGEST_SERIES_REFUSED, Metrics
from ahcollector.presence.base import AgentRef
from ahwire import now_ms
from ahwire.agent_pb2 import MetricsAck, MetricsBatch, RejectedSeries
from ahwire.batch import Judged, RawBatch, SeriesKey, Validator
from ahwire.status import Code

__all__ = ["BatchIntake", "Outcome", "stored_series"]

T = TypeVar("T")
Points = tuple[tuple[int, float], ...]

_SERIES_LIMIT = "series_limit"
# A known series takes at least so much, so the bound in bytes is the one that counts.
_KNOWN_SERIES_BYTES_MIN = 256


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of a batch.

    Attributes:
        ack: What the agent is told.
        nothing_accepted: Whether there was something and all of it was refused (422).
    """

    ack: MetricsAck
    nothing_accepted: bool


def stored_series(
    agent: AgentRef, keys: Iterable[SeriesKey], points: Iterable[Points]
) -> tuple[StoredSeries, ...]:
    """Give series their tenant.

    The tenant's labels come first and from `agent` alone: the keys cannot hold them any more.
    """
    company = ("company_id", agent.company_id)
    server = ("server_id", agent.server_id)
    return tuple(
        [
            StoredSeries(labels=(key.name_label, company, server, *key.labels), points=some)
            for key, some in zip(keys, points, strict=True)
        ]
    )


def acknowledgement(
    seq: int,
    judged: Judged,
    over_budget: Sequence[int],
    *,
    server_time_ms: int,
    config_etag: str,
    renew_token: bool,
) -> MetricsAck:
    """Return what the agent is told of its batch; `over_budget` are places in what was judged."""
    over = [
        RejectedSeries(
            index=judged.indexes[place], code=_SERIES_LIMIT, points=len(judged.points[place])
        )
        for place in over_budget
    ]
    over_points = sum(one.points for one in over)
    return MetricsAck(
        server_time_ms=server_time_ms,
        ack_seq=seq,
        config_etag=config_etag,
        accepted_points=judged.accepted_points - over_points,
        dropped_points=judged.dropped_points + over_points,
        warnings=judged.warnings,
        rejected=[*judged.rejected, *over],
        renew_token=renew_token,
    )


def _without(places: Sequence[int], row: Sequence[T]) -> Sequence[T]:
    if not places:
        return row
    left_out = set(places)
    return [one for place, one in enumerate(row) if place not in left_out]


def _step(steps: Generator[None, None, Judged]) -> Judged | None:
    try:
        next(steps)
    except StopIteration as end:
        judged: Judged = end.value
        return judged
    return None


class RenewalAdvice:
    """When an agent is told to renew its token: near its end, and not with every batch.

    Args:
        before_seconds: How near is near.
        every_seconds: How often one agent is told.
        agents_max: How many agents are remembered.
    """

    def __init__(
        self, *, before_seconds: float, every_seconds: float, agents_max: int = 200_000
    ) -> None:
        self._before_seconds = before_seconds
        self._every_seconds = every_seconds
        self._agents_max = agents_max
        self._told: OrderedDict[str, float] = OrderedDict()

    def give(
        self, agent_id: str, expires_at: datetime | None, *, now: float, steady: float
    ) -> bool:
        """Return whether to tell the agent now, and remember that it was told.

        Args:
            agent_id: Whom.
            expires_at: End of the token it uses.
            now: Unix seconds.
            steady: Monotonic seconds.
        """
        if expires_at is None or expires_at.timestamp() - now > self._before_seconds:
            return False
        told = self._told.get(agent_id)
        if told is not None and steady - told < self._every_seconds:
            return False
        self._told[agent_id] = steady
        self._told.move_to_end(agent_id)
        if len(self._told) > self._agents_max:
            self._told.popitem(last=False)
        return True


class BatchIntake:
    """Judges batches and puts what is good on the bus.

    Args:
        bus: Takes what was accepted.
        budget: New series of each agent.
        keeper: Brings what a store knows of them; None: they are known as long as the process is.
        clock: Time.
        limits: What batches are held to.
        metrics: Where points are counted.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        budget: SeriesBudget,
        keeper: BudgetKeeper | None = None,
        clock: AsyncClock,
        limits: IngestLimits,
        metrics: Metrics,
    ) -> None:
        self._bus = bus
        self._budget = budget
        self._keeper = keeper
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._validator = Validator(
            limits=limits.batch,
            known_series_max=limits.known_series_bytes_max // _KNOWN_SERIES_BYTES_MIN,
            known_bytes_max=limits.known_series_bytes_max,
        )
        self._long_judgement = anyio.Lock()
        self._advice = RenewalAdvice(
            before_seconds=limits.renew_before_seconds, every_seconds=limits.renew_advice_seconds
        )

    async def take(
        self, passed: Pass, batch: MetricsBatch | RawBatch, *, request_id: str, config_etag: str
    ) -> Outcome:
        """Take a batch. When this returns and something was accepted, the bus has it.

        Args:
            passed: Whose it is.
            batch: Whole, or cut where its series end: then known series are never parsed.
            request_id: Goes with the batch.
            config_etag: What the agent is told of its configuration.

        Raises:
            RequestRefusedError: bad_request, too_large, or unavailable when the bus has no room.
        """
        agent = passed.agent
        received_at_ms = now_ms(self._clock)
        with as_refusals():
            judged = await self._judged(batch, received_at_ms, agent.agent_id)
        over = await self._over_budget(agent.agent_id, judged.keys)
        # What is refused comes at another time, or never.
        self._validator.remember(judged, without=over, owner=agent.agent_id)
        if len(over) < len(judged.keys):
            await self._publish(
                SampleBatch(
                    company_id=agent.company_id,
                    server_id=agent.server_id,
                    agent_id=agent.agent_id,
                    request_id=request_id,
                    received_at_ms=received_at_ms,
                    series=stored_series(
                        agent, _without(over, judged.keys), _without(over, judged.points)
                    ),
                )
            )
        ack = acknowledgement(
            batch.head.seq if isinstance(batch, RawBatch) else batch.seq,
            judged,
            over,
            server_time_ms=received_at_ms,
            config_etag=config_etag,
            renew_token=self._advice.give(
                agent.agent_id,
                passed.token.expires_at,
                now=self._clock.time(),
                steady=self._clock.monotonic(),
            ),
        )
        self._count(ack)
        return Outcome(
            ack=ack, nothing_accepted=ack.accepted_points == 0 and ack.dropped_points > 0
        )

    async def _judged(
        self, batch: MetricsBatch | RawBatch, received_at_ms: int, agent_id: str
    ) -> Judged:
        """Judge a batch. Thousands of new series take long: others have their turn in between."""
        steps = self._validator.judging(
            batch, now_ms=received_at_ms, owner=agent_id, remember=False
        )
        judged = _step(steps)
        if judged is None:
            # One at a time, so that the turns of others are as far apart whoever else has many.
            async with self._long_judgement:
                while judged is None:
                    await anyio.lowlevel.checkpoint()
                    judged = _step(steps)
        return judged

    async def _over_budget(self, agent_id: str, keys: Sequence[SeriesKey]) -> Sequence[int]:
        """Return the places of the series that are over the agent's budget."""
        if self._keeper is not None and keys:
            await self._keeper.prepare(agent_id)
        over = self._budget.refused(agent_id, keys, now=self._clock.time())
        if over and self._keeper is not None and await self._keeper.ask_again(agent_id):
            over = self._budget.refused(agent_id, keys, now=self._clock.time())
        if over:
            self._metrics.inc(INGEST_SERIES_REFUSED, len(over))
        return over

    async def _publish(self, batch: SampleBatch) -> None:
        try:
            await self._bus.publish(batch)
        except BusError as error:
            raise RequestRefusedError(
                Code.UNAVAILABLE,
                f"no room for the batch now ({error}): send it again",
                retry_after_seconds=self._limits.bus_full_retry_seconds,
            ) from error

    def _count(self, ack: MetricsAck) -> None:
        if ack.accepted_points:
            self._metrics.inc(INGEST_POINTS, ack.accepted_points)
        dropped: Counter[str] = Counter()
        for rejected in ack.rejected:
            dropped[rejected.code] += rejected.points
        for code, points in dropped.items():
            self._metrics.inc(INGEST_DROPPED_POINTS, points, code=code)
