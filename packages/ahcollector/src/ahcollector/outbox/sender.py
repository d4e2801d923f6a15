"""Carries events from the outbox to the hub."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector._fences import may_follow
from ahcollector.clock import AsyncClock
from ahcollector.errors import (
    FencedHubError,
    FencedOutboxError,
    HubError,
    OutboxError,
    PermanentHubError,
    TemporaryHubError,
)
from ahcollector.hub.base import EventsHub
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox._failing import (
    INCOMPLETE,
    SENSELESS,
    FailedTurns,
    TryLater,
    incomplete,
    lease_lost,
)
from ahcollector.outbox._odd import is_odd
from ahcollector.outbox._retention import Retention
from ahcollector.outbox.base import (
    REASON_EXPIRED,
    REASON_REFUSED,
    REASON_REJECTED,
    Outbox,
    SenderLease,
)
from ahwire import Event
from ahwire.clock import Rng
from ahwire.hub import EventsReply
from ahwire.limits import MAX_EVENTS_PER_REQUEST

__all__ = ["OutboxSender", "SendRound"]

_REASON_CHARS_MAX: Final = 200
_ODD_MAX: Final = 8
_log = logging.getLogger("ahcollector.outbox")


@attrs.frozen(kw_only=True)
class SendRound:
    """What one turn of the sender came to.

    Attributes:
        sent: Events that the hub took.
        dead: Events that became dead letters.
        wait_seconds: How long to wait before the next turn; 0.0 when more is waiting.
    """

    sent: int = 0
    dead: int = 0
    wait_seconds: float


class OutboxSender:
    """Sends the outbox's events in batches, oldest first.

    * Taken events are acknowledged; events that the hub names as rejected become dead letters.
    * A temporary failure keeps everything and backs off; so does an answer that tells nothing of
      some events.
    * A batch refused for good is sent one event at a time, and those refused alone become dead
      letters: one bad event never stands in the way of the others.
    * Events older than the retention become dead letters (``expired``), after a send that failed:
      each is tried first, for the clock may be wrong. What that jumps by while this process lives
      is no age, and in its first `backoff_max_seconds` none is too old.
    * Without the lease, nothing is sent; it is renewed before each request. A fence refused by hub
      or outbox drops the lease and keeps every event; a `newest` of the hub that no fence can be
      above is told as an error of the hub and not followed. The lease is given up at the end, and
      before a wait of more than `lease_idle_seconds`, so that another process can try meanwhile.
    * After an outage the backlog is not poured out: batches are spread at random over about
      `backoff_max_seconds`, but at most `poll_seconds` apart, so that a hub that comes back to many
      senders is not pushed over again.

    An event leaves the outbox only after the hub's answer, so it may be sent twice and never not.

    Args:
        outbox: Where events wait.
        hub: Who takes them.
        clock: Paces and dates.
        rng: Gives the jitter of the backoff.
        lease: Who may send; None: this sender is alone.
        metrics: Where to count.
        batch_max: Events a request, 1 to 200.
        poll_seconds: How often an empty outbox is looked at.
        backoff_min_seconds: First step of the backoff.
        backoff_max_seconds: Largest step, and longest wait, also where the hub asks for more.
        retention_seconds: After this an event is no more worth sending.
        last_send_seconds: How long `run` may go on sending after it was cancelled.
        lease_idle_seconds: Longest wait after a failure for which the lease is kept.

    Raises:
        ValueError: `batch_max` is outside 1 to 200.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        hub: EventsHub,
        clock: AsyncClock,
        rng: Rng,
        lease: SenderLease | None = None,
        metrics: Metrics | None = None,
        batch_max: int = MAX_EVENTS_PER_REQUEST,
        poll_seconds: float = 1.0,
        backoff_min_seconds: float = 1.0,
        backoff_max_seconds: float = 300.0,
        retention_seconds: float = 86_400.0,
        last_send_seconds: float = 3.0,
        lease_idle_seconds: float = 5.0,
    ) -> None:
        if not 1 <= batch_max <= MAX_EVENTS_PER_REQUEST:
            raise ValueError(
                f"batch_max is {batch_max}; the hub takes 1 to {MAX_EVENTS_PER_REQUEST} a request"
            )
        self._outbox = outbox
        self._hub = hub
        self._clock = clock
        self._lease = lease
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._batch_max = batch_max
        self._poll_seconds = poll_seconds
        self._failing = FailedTurns(
            metrics=self._metrics,
            rng=rng,
            backoff_min_seconds=backoff_min_seconds,
            backoff_max_seconds=backoff_max_seconds,
        )
        self._retention = Retention(
            clock=clock,
            retention_seconds=retention_seconds,
            patience_seconds=backoff_max_seconds,
        )
        self._last_send_seconds = last_send_seconds
        self._lease_idle_seconds = lease_idle_seconds
        self._backoff_max_seconds = backoff_max_seconds
        self._rng = rng
        self._pace_seconds = 0.0
        self._dead_dropped: int | None = None

    async def run(self) -> None:
        """Send until cancelled; then once more, for at most `last_send_seconds`."""
        try:
            while True:
                turn = await self.send_once()
                if turn.wait_seconds > max(self._poll_seconds, self._lease_idle_seconds):
                    await self._drop_lease(None)
                await self._clock.sleep(turn.wait_seconds)
        finally:
            with anyio.move_on_after(self._last_send_seconds, shield=True):
                await self.send_once()
                await self._drop_lease(None)

    async def send_once(self) -> SendRound:
        """Take one turn: send one batch, settle it. Failures are told by the result."""
        counts: Counter[str] = Counter()
        self._retention.look()
        try:
            more = await self._turn_or_expire(counts)
        except TryLater as later:
            return self._failed(counts, later.kind, str(later))
        except TemporaryHubError as error:
            return self._failed(counts, "temporary", str(error), error.retry_after_seconds)
        except FencedHubError as error:
            if error.is_senseless or not (error.newest is None or may_follow(error.newest)):
                await self._drop_lease(None)
                return self._failed(counts, SENSELESS, str(error))
            await self._drop_lease(error.newest)
            return self._failed(counts, "fenced", str(error))
        except FencedOutboxError as error:
            await self._drop_lease(error.newest)
            return self._failed(counts, "fenced", str(error))
        except OutboxError as error:
            return self._failed(counts, "outbox", str(error))
        if counts["sent"] or counts["dead"]:
            self._failing.went_on()
        return SendRound(
            sent=counts["sent"], dead=counts["dead"], wait_seconds=self._wait_after_success(more)
        )

    def _wait_after_success(self, more: bool) -> float:
        if not more:
            self._pace_seconds = 0.0
            return self._poll_seconds
        return self._rng.uniform(0.0, 2 * self._pace_seconds)

    async def _turn_or_expire(self, counts: Counter[str]) -> bool:
        """Do the work of a turn; where the hub does not take events, the too old ones go."""
        try:
            return await self._turn(counts)
        except TemporaryHubError:
            await self._expire(counts)
            raise
        except TryLater as later:
            if later.kind == INCOMPLETE:  # a lease that was lost says nothing of the hub
                await self._expire(counts)
            raise

    async def _expire(self, counts: Counter[str]) -> None:
        cutoff = self._retention.cutoff()
        if cutoff is not None:
            expired = await self._outbox.expire(cutoff, now := self._clock.time())
            self._count_dead(counts, REASON_EXPIRED, expired)
            await self._tell_state(now)

    async def _turn(self, counts: Counter[str]) -> bool:
        """Do the work of a turn; return whether more is waiting."""
        fence = None
        if self._lease is not None:
            fence = await self._lease.hold()
            if fence is None:
                # Another sends; how much waits is told by each, so that no figure is left over.
                await self._tell_state(self._clock.time(), counts=False)
                return False
        now = self._clock.time()
        # Nothing is so old: this drops dead letters beyond their bounds.
        await self._outbox.expire(0.0, now)
        await self._tell_state(now)
        entries = await self._outbox.peek(self._batch_max)
        if not entries:
            self._failing.nothing_waits()
            return False
        events = [entry.event for entry in entries]
        try:
            await self._send(events, fence, counts)
        except PermanentHubError as error:
            await self._send_each(events, fence, counts, error)
        except TemporaryHubError as error:
            if not is_odd(error) or len(events) == 1:
                raise
            await self._find_odd(events, fence, counts, error)
        depth = await self._tell_state(self._clock.time())
        if self._failing.are_over(depth):
            spread = self._backoff_max_seconds * self._batch_max / max(depth, 1)
            self._pace_seconds = min(self._poll_seconds, spread)
        return depth > 0

    async def _send(self, events: Sequence[Event], fence: int | None, counts: Counter[str]) -> None:
        if self._lease is not None and await self._lease.hold() != fence:
            raise lease_lost(fence)
        reply = await self._hub.send_events(events, fence)
        await self._settle(events, reply, fence, counts)

    async def _send_each(
        self,
        events: Sequence[Event],
        fence: int | None,
        counts: Counter[str],
        refusal: PermanentHubError,
    ) -> None:
        """Find the events that a refused batch was refused for."""
        self._metrics.inc(names.OUTBOX_SEND_FAILURES, kind="permanent")
        for event in events:
            if len(events) > 1:
                try:
                    await self._send([event], fence, counts)
                    continue
                except PermanentHubError as error:
                    refusal = error
            await self._bury_refused(event, refusal, fence, counts)

    async def _bury_refused(
        self, event: Event, refusal: HubError, fence: int | None, counts: Counter[str]
    ) -> None:
        _log.error(
            "the hub refuses an event; it is kept as a dead letter",
            extra={"event_id": event.event_id, "type": event.type, "error": str(refusal)},
        )
        reason = f"{REASON_REFUSED}: {refusal}"[:_REASON_CHARS_MAX]
        dead = await self._outbox.dead([event.event_id], reason, self._clock.time(), fence)
        self._count_dead(counts, REASON_REFUSED, dead)

    async def _find_odd(
        self,
        events: Sequence[Event],
        fence: int | None,
        counts: Counter[str],
        refusal: HubError,
    ) -> None:
        """Find out whether a 4xx without the hub's code is the fault of an event or of the path.

        Where others pass one by one, the path is good, and those that are refused once more behind
        them are at fault. Where the first few are all refused, the path is, and everything waits.
        """
        self._metrics.inc(names.OUTBOX_SEND_FAILURES, kind="odd")
        odd: list[Event] = []
        passed = False
        for event in events:
            if await self._odd_alone(event, fence, counts) is None:
                passed = True
                continue
            odd.append(event)
            if not passed and len(odd) == _ODD_MAX:
                break
        if not passed:
            raise refusal
        for event in odd:
            again = await self._odd_alone(event, fence, counts)
            if again is not None:
                await self._bury_refused(event, again, fence, counts)

    async def _odd_alone(
        self, event: Event, fence: int | None, counts: Counter[str]
    ) -> TemporaryHubError | None:
        """Send one event; return the error of an odd answer, None when it was judged."""
        try:
            await self._send([event], fence, counts)
        except PermanentHubError as error:
            # With a code: the hub itself judged this one.
            await self._bury_refused(event, error, fence, counts)
        except TemporaryHubError as error:
            if not is_odd(error):
                raise
            return error
        return None

    async def _settle(
        self,
        events: Sequence[Event],
        reply: EventsReply,
        fence: int | None,
        counts: Counter[str],
    ) -> None:
        """Move each event to where the hub's answer puts it."""
        ids = {event.event_id for event in events}
        taken = ids.intersection(reply.accepted)
        if taken:
            acked = await self._outbox.ack(sorted(taken), fence)
            counts["sent"] += acked
            self._metrics.inc(names.OUTBOX_EVENTS_SENT, acked)
        told = set(taken)
        for rejected in reply.rejected:
            if rejected.event_id not in ids or rejected.event_id in told:
                continue
            told.add(rejected.event_id)
            _log.error(
                "the hub rejected an event; it is kept as a dead letter",
                extra={"event_id": rejected.event_id, "reason": rejected.reason},
            )
            reason = f"{REASON_REJECTED}: {rejected.reason}"[:_REASON_CHARS_MAX]
            dead = await self._outbox.dead([rejected.event_id], reason, self._clock.time(), fence)
            self._count_dead(counts, REASON_REJECTED, dead)
        if told != ids:
            raise incomplete(events, told)

    def _count_dead(self, counts: Counter[str], reason: str, number: int) -> None:
        if number:
            counts["dead"] += number
            self._metrics.inc(names.OUTBOX_DEAD_LETTER, number, reason=reason)

    async def _tell_state(self, now: float, *, counts: bool = True) -> int:
        stats = await self._outbox.stats(now)
        dropped = stats.dead_dropped - (self._dead_dropped or 0)
        # What was dropped before the first look was counted by whoever sent then.
        if counts and dropped > 0 and self._dead_dropped is not None:
            self._metrics.inc(names.OUTBOX_DEAD_LETTERS_DROPPED, dropped)
        self._dead_dropped = stats.dead_dropped
        self._metrics.set(names.OUTBOX_DEPTH, stats.depth)
        self._metrics.set(names.OUTBOX_OLDEST_AGE, stats.oldest_age_seconds)
        return stats.depth

    async def _drop_lease(self, newest: int | None) -> None:
        if self._lease is None:
            return
        try:
            await self._lease.drop(newest)
        except OutboxError as error:
            # It is given up here, and ends by itself where it is kept.
            _log.warning("lease not given up", extra={"error": str(error)})

    def _failed(
        self, counts: Counter[str], kind: str, text: str, asked_seconds: float | None = None
    ) -> SendRound:
        wait = self._failing.failed(kind, text, asked_seconds)
        return SendRound(sent=counts["sent"], dead=counts["dead"], wait_seconds=wait)
