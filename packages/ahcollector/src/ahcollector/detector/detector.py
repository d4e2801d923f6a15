"""Finds agents that fell silent, and puts what happened to agents in the outbox."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.detector._events import instant_text
from ahcollector.detector._sight import (
    Blindness,
    Judgement,
    Sight,
    SightRules,
    observe,
    store_failed,
)
from ahcollector.detector.carrier import Carried, IntentCarrier, PlainCarrier
from ahcollector.errors import PresenceError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence
from ahwire import EventType

__all__ = ["Detector", "ScanReport"]

_TURN_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 1.0
_NO_BEACON: Final = (
    "no ingest process tells that it hears agents: see that one runs, with an IngestBeacon beside "
    "its door"
)
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
        stage: Carries intents to the outbox (`AgentEventStage`: through silences and groups). None:
            each goes to the outbox as it is.
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
        stage: IntentCarrier | None = None,
    ) -> None:
        for name, value in (
            ("agent_interval_seconds", agent_interval_seconds),
            ("scan_interval_seconds", scan_interval_seconds),
            ("beacon_max_age_seconds", beacon_max_age_seconds),
        ):
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        self._presence = presence
        self._clock = clock
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._carrier: IntentCarrier = (
            stage
            if stage is not None
            else PlainCarrier(presence=presence, outbox=outbox, clock=clock, metrics=self._metrics)
        )
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
        for kind in (EventType.AGENT_DOWN, EventType.AGENT_UP):
            # Nothing here can lose an event; the zero is there for the alert that watches it.
            self._metrics.inc(names.EVENTS_LOST, 0, type=kind.value)

    async def run(self) -> None:
        """Scan at once, then each interval, until cancelled; also when its turn comes.

        A scan that takes longer than the interval is followed by the next at once.
        """
        try:
            while True:
                began = self._clock.monotonic()
                await self.scan()
                await self._pause(began + self._scan_interval_seconds)
        finally:
            with anyio.move_on_after(_STOP_SECONDS, shield=True):
                await self._carrier.drop()

    async def _pause(self, until: float) -> None:
        """Wait for the next scan; a process whose turn comes meanwhile scans at once."""
        if not self._carrier.takes_turns:
            await self._clock.sleep(max(0.0, until - self._clock.monotonic()))
            return
        await anyio.lowlevel.checkpoint()
        was_mine = await self._carrier.is_mine()
        while (left := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, _TURN_SECONDS))
            is_mine = await self._carrier.is_mine()
            if is_mine and not was_mine:
                return
            was_mine = is_mine

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
        """Carry intents until there are no more."""
        if await self._carrier.is_mine():
            declares = judgement.may_declare
            fetch = partial(self._presence.expire, now) if declares else self._presence.pending
            carried = await self._carrier.carry(fetch, now)
        else:
            carried = Carried(emitted=0, complete=True)
        untold = await self._presence.pending_count()
        self._metrics.set(names.EVENTS_RETRY, untold + carried.waiting)
        self._metrics.set(names.AGENTS_DOWN, (await self._presence.counts()).down)
        return ScanReport(
            blind=judgement.blind,
            declaring=judgement.may_declare,
            emitted=carried.emitted,
            complete=carried.complete,
        )

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
