"""The agent's first half: from the collectors to the queue, on a fixed schedule."""

import logging
from collections.abc import Callable

import anyio

from ahwal.agent._collect import CollectorSet
from ahwal.agent._own import ProcessFigures, own_samples
from ahwal.agent._remote import Effective
from ahwal.agent._schedule import Schedule
from ahwal.agent._waiting import wait_for
from ahwal.clock import AsyncClock
from ahwal.sender import DeliveryState, Sender
from ahwal.sender._outage import SeldomLog
from ahwire import now_ms, phase_offset

COLLECTOR_TIMEOUT_SECONDS = 10.0
WARNING_EVERY_SECONDS = 3600.0


class CollectLoop:
    """Collects and enqueues each interval, until it is cancelled.

    Args:
        sender: Takes the samples.
        collectors: Give them.
        clock: Wall and monotonic clock, and sleeping.
        agent_id: Fixes the phase of the first cycle.
        effective: The settings in force at the start.
        memory_limit_bytes: Memory of the process above which buffers shrink.
        on_enqueued: Called after each cycle.
        logger: The agent's logger.

    Attributes:
        cycles: Cycles that put a batch into the queue.
        missed: Cycles that were left out, because the one before took longer than the interval.
    """

    def __init__(
        self,
        *,
        sender: Sender,
        collectors: CollectorSet,
        clock: AsyncClock,
        agent_id: str,
        effective: Effective,
        memory_limit_bytes: int,
        on_enqueued: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        self._sender = sender
        self._collectors = collectors
        self._clock = clock
        self._agent_id = agent_id
        self._effective = effective
        self._memory_limit_bytes = memory_limit_bytes
        self._on_enqueued = on_enqueued
        self._log = logger
        self._figures = ProcessFigures()
        self._changed = anyio.Event()
        self._cycle_seconds = 0.0
        self._memory_log = SeldomLog(logger=logger, every_seconds=WARNING_EVERY_SECONDS)
        self._missed_log = SeldomLog(logger=logger, every_seconds=WARNING_EVERY_SECONDS)
        self.cycles = 0
        self.missed = 0

    def apply(self, effective: Effective) -> None:
        """Use other settings from now on; a shorter interval shortens the wait under way."""
        self._effective = effective
        self._changed.set()

    async def run(self) -> None:
        """Wait for the phase, then make a cycle each interval."""
        interval = self._effective.interval_seconds
        schedule = Schedule(
            due=self._clock.monotonic() + phase_offset(self._agent_id, interval),
            interval_seconds=interval,
        )
        await self._collectors.prime()
        while True:
            pause = schedule.due - self._clock.monotonic()
            if pause > 0 and await wait_for(self._clock, self._changed, pause):
                self._changed = anyio.Event()
                schedule = schedule.with_interval(
                    self._effective.interval_seconds, self._clock.monotonic()
                )
                continue
            try:
                await self._cycle()
            except Exception:  # noqa: BLE001 - see below
                # The one supervisor of this loop: one failed cycle must not end collecting for the
                # life of the host program.
                self._log.exception("a collection cycle failed")
            self._on_enqueued()
            following = schedule.following(self._clock.monotonic())
            self._count_missed(following.cycles_after(schedule) - 1)
            schedule = following

    async def _cycle(self) -> None:
        if self._sender.state is DeliveryState.AGENT_REVOKED:
            # What nobody will ever take is not collected either.
            return
        started = self._clock.monotonic()
        collected_at_ms = now_ms(self._clock)
        samples = await self._collectors.collect(
            disabled=self._effective.disabled_collectors,
            timeout_seconds=min(COLLECTOR_TIMEOUT_SECONDS, self._effective.interval_seconds),
        )
        samples += own_samples(self._sender.status(), cycle_seconds=self._cycle_seconds)
        rss_bytes = self._figures.rss_bytes()
        self._watch_memory(rss_bytes)
        await self._sender.enqueue(
            samples,
            collected_at_ms=collected_at_ms,
            cpu_percent=self._figures.cpu_percent(),
            rss_bytes=rss_bytes,
        )
        self.cycles += 1
        self._cycle_seconds = self._clock.monotonic() - started

    def _count_missed(self, missed: int) -> None:
        if not missed:
            return
        self.missed += missed
        if self._missed_log.due(self._clock.monotonic()):
            self._log.warning(
                "a collection took longer than the interval of %g s; %d cycles were left out so "
                "far: a collector is slow, or the disk is",
                self._effective.interval_seconds,
                self.missed,
            )

    def _watch_memory(self, rss_bytes: int) -> None:
        over = rss_bytes > self._memory_limit_bytes
        self._sender.save_memory(over)
        if over and self._memory_log.due(self._clock.monotonic()):
            self._log.warning(
                "the process takes %d MiB, over limits.memory_limit; buffers are made smaller",
                rss_bytes >> 20,
            )
