"""What is known of one agent, and the arithmetic of its deadline.

Milliseconds are integers here, so that "exactly at the deadline" means something.
"""

from __future__ import annotations

import attrs

from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    PresenceState,
    deadline_threshold,
)

__all__ = ["AgentState", "GraceEpoch", "to_ms"]


def to_ms(seconds: float) -> int:
    """Return Unix milliseconds, rounded to the nearest."""
    return round(seconds * 1000)


@attrs.frozen(kw_only=True)
class GraceEpoch:
    """The newest blindness: when it ended, and for how long its length counts (already bounded)."""

    ended_at: float
    blind_seconds: float

    def grace_until(self, interval_seconds: float) -> float:
        """Return until when an agent with this interval cannot go down."""
        return self.ended_at + max(2 * interval_seconds, self.blind_seconds + interval_seconds)


@attrs.define(kw_only=True)
class AgentState:
    """The mutable record of one agent, owned by one presence.

    Attributes:
        interval_told: Whether a contact named the interval; then no setting replaces it.
        down_min_seconds: What is set for its company; None: the presence's own.
        last_seen: None: never heard.
        due_ms: When it counts as silent; means nothing while it is down.
        queued_second: Where it lies in the queue of deadlines; None when it does not.
        grace_until_ms: It does not go down before; 0 without a grace.
        down_since: None while it is up.
        seq: The last one given out.
    """

    agent: AgentRef
    interval_seconds: float
    interval_told: bool = False
    down_min_seconds: float | None = None
    last_seen: float | None = None
    due_ms: int = 0
    queued_second: int | None = None
    grace_until_ms: int = 0
    down_since: float | None = None
    seq: int = 0

    def copy(self) -> AgentState:
        """Return a record that no longer changes; `copy.copy` would take several times as long."""
        return AgentState(
            agent=self.agent,
            interval_seconds=self.interval_seconds,
            interval_told=self.interval_told,
            down_min_seconds=self.down_min_seconds,
            last_seen=self.last_seen,
            due_ms=self.due_ms,
            queued_second=self.queued_second,
            grace_until_ms=self.grace_until_ms,
            down_since=self.down_since,
            seq=self.seq,
        )

    def shown(self) -> AgentPresence:
        """Return what a console shows."""
        down = self.down_since is not None
        return AgentPresence(
            agent=self.agent,
            state=PresenceState.DOWN if down else PresenceState.UP,
            last_seen=self.last_seen,
            interval_seconds=self.interval_seconds,
            deadline=None if down else self.due_ms / 1000,
            down_since=self.down_since,
        )

    def next_seq(self, now: float) -> int:
        """Take the next sequence number."""
        self.seq = max(to_ms(now), self.seq + 1)
        return self.seq

    def threshold(self, down_min_seconds: float) -> float:
        """Return after how much silence it is down; `down_min_seconds` where none is its own."""
        own = self.down_min_seconds
        return deadline_threshold(self.interval_seconds, down_min_seconds if own is None else own)

    def heard(self, now: float, down_min_seconds: float, waits_seconds: float) -> None:
        """Move last_seen and the deadline.

        The deadline counts from this contact even when an earlier one carried a later time: after
        the wall clock stepped back only the new time means anything.
        """
        self.last_seen = now if self.last_seen is None else max(self.last_seen, now)
        threshold = self.threshold(down_min_seconds)
        self.due_ms = max(to_ms(now + (threshold + waits_seconds)), self.grace_until_ms)

    def wait_for(self, now: float, down_min_seconds: float, epoch: GraceEpoch | None) -> None:
        """Set the deadline of an agent that was not heard yet."""
        until = now + 2 * self.interval_seconds
        if epoch is not None and epoch.ended_at <= now:
            until = max(until, epoch.grace_until(self.interval_seconds))
        self.due_ms = to_ms(until + self.threshold(down_min_seconds))

    def pardon(
        self, now: float, epoch: GraceEpoch, blind_max_seconds: float, down_min_seconds: float
    ) -> None:
        """Apply the grace of a blindness that ended."""
        threshold = self.threshold(down_min_seconds)
        # No honest grace or deadline lies further ahead; one that does came from another clock.
        grace_max = max(2 * self.interval_seconds, blind_max_seconds + self.interval_seconds)
        running_ms = min(self.grace_until_ms, to_ms(now + grace_max))
        self.grace_until_ms = max(running_ms, to_ms(epoch.grace_until(self.interval_seconds)))
        heard = self.last_seen is not None and epoch.ended_at < self.last_seen <= now
        counted_ms = min(self.due_ms, to_ms(now + threshold))
        self.due_ms = max(counted_ms, self.grace_until_ms + (0 if heard else to_ms(threshold)))
