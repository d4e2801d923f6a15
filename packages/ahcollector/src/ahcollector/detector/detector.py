"""Finds agents that fell silent, and puts what happened to agents in the outbox."""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import Final

import attrs

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.detector._events import event_of, instant_text
from ahcollector.detector._sight import (
    Blindness,
    Judgement,
    Sight,
    SightRules,
    observe,
    store_failed,
)
from ahcollector.errors import OutboxError, PresenceError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence, Transition
from ahwire import EventType

__all__ = ["Detector", "ScanReport"]

_PAGE: Final = 500
_NO_BEACON: Final = "no ingest process tells that it hears agents"
_log = logging.getLogger("ahcollector.detector")


@attrs.frozen(kw_only=True)
class ScanReport:
    """What one scan came to.

    Attributes:
        blind: Nothing could be seen; no agent was judged.
        declaring: New downs could be decided in it.
        emitted: Transitions whose event is in the outbox and whose intent is confirmed.
        complete: Nothing was left for the next scan.
    """

    blind: bool
    declaring: bool
    emitted: int
    complete: bool


class Detector:
    """Scans presence each `scan_interval_seconds` and carries its intents to the outbox.

    Deadlines belong to presence; when they may be applied is decided here (see `_sight`). An intent
    becomes an event with the intent's own id, is appended to the outbox, and only then confirmed,
    an agent's intents in order. Cancelled or killed at any point, the next scan of any process goes
    on with the same event ids.

    It needs the beacons of `IngestBeacon`: without them it is blind and declares nothing.

    Args:
        presence: Who was heard when.
        outbox: Where events go.
        clock: Wall and steady time.
        metrics: Where to count.
        agent_interval_seconds: The usual interval: start-up lasts two of them, and a clock step
            over one is blindness.
        scan_interval_seconds: Pause between two scans.
        beacon_max_age_seconds: When the newest ingest beacon is older, the detector is blind.
        blind_grace_max_seconds: The longest backoff of the agents: so long a blindness counts for
            the grace after it, however short it was.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        outbox: Outbox,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        agent_interval_seconds: float = 30.0,
        scan_interval_seconds: float = 10.0,
        beacon_max_age_seconds: float = 15.0,
        blind_grace_max_seconds: float = 300.0,
    ) -> None:
        for name, value in (
            ("agent_interval_seconds", agent_interval_seconds),
            ("scan_interval_seconds", scan_interval_seconds),
            ("beacon_max_age_seconds", beacon_max_age_seconds),
        ):
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        self._presence = presence
        self._outbox = outbox
        self._clock = clock
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._rules = SightRules(
            agent_interval_seconds=agent_interval_seconds,
            scan_interval_seconds=scan_interval_seconds,
            beacon_max_age_seconds=beacon_max_age_seconds,
        )
        self._scan_interval_seconds = scan_interval_seconds
        self._blind_grace_max_seconds = blind_grace_max_seconds
        self._sight: Sight | None = None
        self._blindness = Trouble(
            _log, "the detector is blind; no agent is declared down", "the detector sees again"
        )
        self._waiting = Trouble(_log, "events wait for the outbox", "the outbox takes events again")
        for kind in (EventType.AGENT_DOWN, EventType.AGENT_UP):
            # Nothing here can lose an event; the zero is there for the alert that watches it.
            self._metrics.inc(names.EVENTS_LOST, 0, type=kind.value)

    async def run(self) -> None:
        """Scan at once, then each interval, until cancelled."""
        while True:
            await self.scan()
            await self._clock.sleep(self._scan_interval_seconds)

    async def scan(self) -> ScanReport:
        """Look once; failures of presence and outbox are told by the report and the log."""
        now, steady = self._clock.time(), self._clock.monotonic()
        try:
            judgement = await self._look(now, steady)
            report = await self._carry(now, judgement)
        except PresenceError as error:
            self._sight = store_failed(self._sight, wall=now, steady=steady)
            self._tell_blind(steady, why=str(error))
            return ScanReport(blind=True, declaring=False, emitted=0, complete=False)
        self._tell_blind(steady, why=_NO_BEACON if report.blind else None)
        if report.complete and not report.blind:
            self._metrics.set(names.LAST_SCAN, now)
        return report

    async def _look(self, now: float, steady: float) -> Judgement:
        """Judge whether agents may be judged, and give the grace that is due for it."""
        beacons = await self._presence.ingest_sight()
        sight, judgement = observe(
            self._sight, wall=now, steady=steady, beacons=beacons, rules=self._rules
        )
        if judgement.grace is not None:
            await self._pardon(now, judgement.grace)
        # Only now: had the grace failed, the next observation must ask for it again.
        self._sight = sight
        return judgement

    async def _pardon(self, now: float, blindness: Blindness) -> None:
        # However short it was: an agent that was refused in it draws its wait from [0, step], so a
        # few short waits can have led it to the longest step within seconds, and the answers of a
        # server that has just started may do the rest.
        await self._presence.grace(
            now=now,
            ended_at=blindness.ended_at,
            blind_seconds=math.inf,
            blind_max_seconds=self._blind_grace_max_seconds,
        )
        _log.info(
            "agents have a grace after a time in which nobody could hear them",
            extra={
                # Before the first start nobody could ever be heard.
                "blind_seconds": None if math.isinf(blindness.seconds) else blindness.seconds,
                "ended_at": instant_text(blindness.ended_at),
            },
        )

    async def _carry(self, now: float, judgement: Judgement) -> ScanReport:
        """Carry intents page by page until there are no more."""
        emitted = 0
        complete = False
        while not complete:
            if judgement.may_declare:
                page = await self._presence.expire(now, _PAGE)
            else:
                page = await self._presence.pending(_PAGE)
            if not await self._emit(page, now):
                break
            emitted += len(page)
            complete = len(page) < _PAGE
        self._metrics.set(names.EVENTS_RETRY, await self._presence.pending_count())
        self._metrics.set(names.AGENTS_DOWN, (await self._presence.counts()).down)
        return ScanReport(
            blind=judgement.blind,
            declaring=judgement.may_declare,
            emitted=emitted,
            complete=complete,
        )

    async def _emit(self, page: list[Transition], now: float) -> bool:
        """Append a page's events, then confirm its intents; False when the outbox fails."""
        if not page:
            return True
        events = [event_of(transition) for transition in page]
        try:
            await self._outbox.append(events, now)
        except OutboxError as error:
            self._waiting.goes_on(
                self._clock.monotonic(), {"events": len(events), "error": str(error)}
            )
            return False
        self._waiting.is_over()
        for kind, count in Counter(event.type for event in events).items():
            self._metrics.inc(names.EVENTS_EMITTED, count, type=kind.value)
        for transition in page:
            await self._presence.confirm(transition)
            _log.info(
                "agent is %s",
                transition.kind.value,
                extra={
                    "agent_id": transition.agent.agent_id,
                    "company_id": transition.agent.company_id,
                    "server_id": transition.agent.server_id,
                    "event_id": transition.event_id,
                },
            )
        return True

    def _begins(self, steady: float) -> bool:
        """Return whether the doors that begin together with this may not have a beacon yet."""
        assert self._sight is not None
        return steady - self._sight.started_at < self._rules.beacon_max_age_seconds

    def _tell_blind(self, steady: float, *, why: str | None) -> None:
        """Tell how a scan ended; None: it saw."""
        self._metrics.set(names.DETECTOR_BLIND, float(why is not None))
        if why is None:
            self._blindness.is_over()
        elif why != _NO_BEACON or not self._begins(steady):
            self._blindness.goes_on(steady, {"why": why})
