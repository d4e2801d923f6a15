"""Tells the hub when agents were last heard, and that this collector lives."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
import attrs

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.detector._events import moment
from ahcollector.errors import HubError, OutboxError, PresenceError
from ahcollector.hub.base import ReportsHub
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence, SeenLease
from ahwire.hub import Heartbeat, Seen, SeenReport
from ahwire.limits import MAX_SEEN_PER_REPORT

__all__ = ["Reporter", "TrafficTotals"]

_PAGES_MAX: Final = 10_000
_log = logging.getLogger("ahcollector.reporter")


@attrs.frozen(kw_only=True)
class TrafficTotals:
    """How much went through since the process began; rates are made from two of these.

    Attributes:
        batches: Batches that the worker took.
        samples: Samples that the store took.
    """

    batches: int = 0
    samples: int = 0


class Reporter:
    """Reports to the hub each minute; what fails is reported with the next turn.

    Args:
        presence: Whose contacts and counts are told.
        hub: Who is told.
        outbox: Whose depth is told.
        clock: Paces and dates.
        collector_id: This collector's name at the hub.
        version: This program's version.
        traffic: Tells the totals of batches and samples taken in.
        seen_interval_seconds: At most a third of the time after which the hub doubts an agent.
        heartbeat_interval_seconds: Pause between heartbeats.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        hub: ReportsHub,
        outbox: Outbox,
        clock: AsyncClock,
        collector_id: str,
        version: str,
        traffic: Callable[[], TrafficTotals] = TrafficTotals,
        seen_interval_seconds: float = 60.0,
        heartbeat_interval_seconds: float = 60.0,
    ) -> None:
        self._presence = presence
        self._hub = hub
        self._outbox = outbox
        self._clock = clock
        self._collector_id = collector_id
        self._version = version
        self._traffic = traffic
        self._seen_interval_seconds = seen_interval_seconds
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        self._totals = traffic()
        self._totals_at = clock.monotonic()
        self._unreported = Trouble(_log, "contacts not reported", "contacts are reported again")
        self._unheard = Trouble(_log, "heartbeat not taken", "heartbeats are taken again")

    async def run(self) -> None:
        """Report at once, then each interval, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_seen)
            tasks.start_soon(self._run_heartbeat)

    async def _run_seen(self) -> None:
        while True:
            await self.report_seen()
            await self._clock.sleep(self._seen_interval_seconds)

    async def _run_heartbeat(self) -> None:
        while True:
            await self.report_heartbeat()
            await self._clock.sleep(self._heartbeat_interval_seconds)

    async def report_seen(self) -> int:
        """Tell all contacts not yet told, in pages of 500; return how many the hub took."""
        told = 0
        try:
            # Agents go on talking meanwhile; the bound keeps a busy fleet from making this endless.
            for _ in range(_PAGES_MAX):
                lease = await self._presence.drain_seen(MAX_SEEN_PER_REPORT)
                if not lease.seen:
                    break
                await self._send(lease)
                told += len(lease.seen)
                if len(lease.seen) < MAX_SEEN_PER_REPORT:
                    break
        except (HubError, PresenceError) as error:
            self._unreported.goes_on(self._clock.monotonic(), {"error": str(error), "told": told})
        else:
            self._unreported.is_over()
        return told

    async def _send(self, lease: SeenLease) -> None:
        report = SeenReport(
            seen=tuple(
                Seen(agent_id=seen.agent_id, last_seen_at=moment(seen.last_seen))
                for seen in lease.seen
            )
        )
        taken = False
        try:
            await self._hub.send_seen(report)
            taken = True
        finally:
            # Shielded, because a lease left open by a cancellation would hide its contacts.
            with anyio.CancelScope(shield=True):
                if taken:
                    await self._presence.confirm_seen(lease)
                else:
                    await self._presence.release_seen(lease)

    async def report_heartbeat(self) -> bool:
        """Tell that this collector lives; return whether the hub took it."""
        try:
            beat = await self._beat()
            await self._hub.heartbeat(beat)
        except (HubError, PresenceError, OutboxError) as error:
            self._unheard.goes_on(self._clock.monotonic(), {"error": str(error)})
            return False
        self._unheard.is_over()
        return True

    async def _beat(self) -> Heartbeat:
        now, steady, totals = self._clock.time(), self._clock.monotonic(), self._traffic()
        passed = steady - self._totals_at
        batches = totals.batches - self._totals.batches
        samples = totals.samples - self._totals.samples
        self._totals, self._totals_at = totals, steady
        counts = await self._presence.counts()
        companies = await self._presence.company_counts()
        stats = await self._outbox.stats(now)
        return Heartbeat(
            collector_id=self._collector_id,
            version=self._version,
            at=moment(now),
            agents=counts.agents,
            agents_down=counts.down,
            companies={company_id: count.agents for company_id, count in companies.items()},
            batches_per_second=max(0.0, batches / passed) if passed > 0 else 0.0,
            samples_per_second=max(0.0, samples / passed) if passed > 0 else 0.0,
            outbox_depth=stats.depth,
        )
