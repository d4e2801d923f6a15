"""Who was heard when, and which transitions of silence were decided: the protocol.

The law that every implementation keeps:

* `last_seen` is receipt time and never goes back.
* A transition (an agent going down, or coming up again) is decided once, together with an *intent*
  that has a fixed event id and seq. Intents of one agent are handed out and confirmed strictly in
  the order in which they were decided; an intent stays until it is confirmed, across restarts too.
* Nobody is handed an intent that a crash could make unknown: intents are durable (as far as the
  implementation is durable at all) before `expire` or `pending` return them.
* ``seq = max(now in ms, last seq of the agent + 1)``.

All instants are Unix seconds of the wall clock, all durations seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import attrs

__all__ = [
    "AgentPresence",
    "AgentRef",
    "IngestSight",
    "Presence",
    "PresenceCounts",
    "PresenceState",
    "SeenAgent",
    "SeenLease",
    "Transition",
    "TransitionKind",
    "WatchRule",
    "deadline_threshold",
]


@attrs.frozen(kw_only=True)
class AgentRef:
    """An agent and where it belongs; all three come from the registry, never from a payload.

    Attributes:
        agent_id: The agent.
        company_id: Whose it is.
        server_id: The server it watches.
    """

    agent_id: str
    company_id: str
    server_id: str


class TransitionKind(StrEnum):
    """Which way an agent went."""

    DOWN = "down"
    UP = "up"


class PresenceState(StrEnum):
    """What an agent counts as."""

    UP = "up"
    DOWN = "down"


@attrs.frozen(kw_only=True)
class Transition:
    """One decided transition; it stays the same value however often it is handed out.

    Attributes:
        agent: Whose transition it is.
        event_id: UUIDv7 of the event that tells of it; fixed when it was decided.
        seq: Rises strictly from one transition of the agent to its next.
        kind: Down or up.
        occurred_at: When it was decided (down) or when the agent was heard again (up).
        last_seen: When the agent was last heard before it; None when it never was.
        down_since: For up: when the agent had gone down. None for down.
        reason: Why, where there is more to say than silence and sound: ``never_reported`` (down),
            ``removed`` (up).
    """

    agent: AgentRef
    event_id: str
    seq: int
    kind: TransitionKind
    occurred_at: float
    last_seen: float | None
    down_since: float | None
    reason: str | None


@attrs.frozen(kw_only=True)
class WatchRule:
    """What is set for the agents of a company; see `Presence.touch` and `ensure`.

    Presence keeps it with the agent's record, so that all processes judge by the same. A number
    that makes no sense (negative, not finite; an interval of 0) counts as None.

    Attributes:
        interval_seconds: How often an agent sends that named no interval itself; None: the
            presence's default.
        down_min_seconds: No agent is down after less silence than this; None: the presence's own.
        is_firm: Whether it takes the place of what the record has. Else it is only for an agent
            that becomes known by this call: somebody who can change it was not heard yet.
    """

    interval_seconds: float | None = None
    down_min_seconds: float | None = None
    is_firm: bool = True


@attrs.frozen(kw_only=True)
class SeenAgent:
    """A real contact.

    Attributes:
        agent_id: The agent.
        last_seen: When it was heard, Unix seconds.
    """

    agent_id: str
    last_seen: float


@attrs.frozen(kw_only=True)
class SeenLease:
    """Contacts on their way to the hub; to be confirmed or released.

    Attributes:
        lease_id: Names the lease to `confirm_seen` and `release_seen`.
        seen: At most the asked number, none twice.
    """

    lease_id: int
    seen: tuple[SeenAgent, ...]


@attrs.frozen(kw_only=True)
class PresenceCounts:
    """How many agents are known, and how many of them are down.

    Attributes:
        agents: All that are watched, up or down.
        down: Those of them that are down.
    """

    agents: int
    down: int


@attrs.frozen(kw_only=True)
class AgentPresence:
    """What a console shows of one agent.

    Attributes:
        agent: The agent.
        state: Whether it is up or down.
        last_seen: Unix seconds; None when the agent was never heard.
        interval_seconds: How often it sends.
        deadline: When it counts as silent unless it is heard; None while it is down.
        down_since: None while it is up.
    """

    agent: AgentRef
    state: PresenceState
    last_seen: float | None
    interval_seconds: float
    deadline: float | None
    down_since: float | None


@attrs.frozen(kw_only=True)
class IngestSight:
    """What the beacons of the ingest processes tell: whether agents could be heard at all.

    Attributes:
        at: The newest beacon.
        since: When the present unbroken row of beacons began.
        dark_seconds: How long there had been no beacon before `since`; None when nobody knows,
            because no earlier beacon is on record.
    """

    at: float
    since: float
    dark_seconds: float | None


def deadline_threshold(interval_seconds: float, down_min_seconds: float) -> float:
    """Return after how many seconds of silence an agent is down: max(3 x interval, down_min)."""
    return max(3.0 * interval_seconds, down_min_seconds)


class Presence(Protocol):
    """The record of who was heard when.

    Every method may raise `PresenceError` when the store behind it gives no answer; nothing can
    then be concluded about any agent, and what was asked for may or may not have been done. Every
    method may be repeated.
    """

    async def touch(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        waits_seconds: float = 0.0,
        rule: WatchRule | None = None,
    ) -> None:
        """Note that `agent` was heard at `now`; an agent that was down comes up.

        `interval_seconds` None keeps the interval last known (or the default). `rule` is what is
        set for its company now; None keeps what was set last. The deadline becomes
        `now` + `deadline_threshold` + `waits_seconds`, not before the end of a running grace.
        `waits_seconds` is how long the agent may be silent because it was told to come later; the
        next contact sets the deadline anew. A time before the last one moves nothing back.

        An agent that is not known becomes known. Only for the first seconds after its removal it
        does not, and then nothing is noted: a process that had not yet heard of the revocation let
        the contact in. `ensure` ends this quiet.
        """
        ...

    async def ensure(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        rule: WatchRule | None = None,
    ) -> None:
        """Make sure that `agent` is known, so that its silence is noticed although it never spoke.

        A new agent gets a grace of two intervals before its threshold counts, or what is left of a
        running grace when that is longer. Of a known one only the tenancy changes, and the interval
        as long as the agent itself named none in a contact, and the down_min; its deadline follows
        at the next contact. The interval of a `rule` goes before `interval_seconds`, and of a known
        agent one that is not firm changes neither. This is the registry's word: it makes
        an agent known that was removed a moment ago.
        This is no contact: it is not reported to the hub.
        """
        ...

    async def remove(self, agent_id: str, now: float, reason: str) -> None:
        """Forget an agent; one that is down gets an up transition with `reason` first.

        Its seq is kept for 30 days, so that an agent of that id which comes back goes on above it.
        For a while (60 s, more than any process believes an old token) its contacts do not make it
        known again; a removal of an id that is not known begins that time too.
        """
        ...

    async def expire(self, now: float, limit: int) -> list[Transition]:
        """Decide who fell silent, and return at most `limit` intents to act on.

        Intents that were decided earlier and not yet confirmed come first; agents whose deadline is
        before `now` go down as far as `limit` leaves room, the longest overdue first. An agent
        heard exactly at its deadline is not late. A result shorter than `limit` means that there
        is nothing more for the caller: what was handed to another process lately is that one's.
        """
        ...

    async def pending(self, limit: int) -> list[Transition]:
        """Return at most `limit` intents not yet confirmed, oldest first; decide nothing."""
        ...

    async def pending_count(self) -> int:
        """Return how many intents are not yet confirmed."""
        ...

    async def confirm(self, transition: Transition) -> None:
        """Drop an intent whose event is durable elsewhere; unknown ones are no error.

        Raises:
            PresenceError: The agent has an older intent: confirming out of order would lose it.
        """
        ...

    async def confirm_all(self, transitions: Sequence[Transition]) -> None:
        """Drop intents whose events are durable elsewhere, in this order, as many a step as it can.

        Raises:
            PresenceError: As `confirm`; those before the one at fault may or may not be dropped.
        """
        ...

    async def grace(
        self, *, now: float, ended_at: float, blind_seconds: float, blind_max_seconds: float
    ) -> None:
        """Let deadlines count anew after a blindness that ended at `ended_at` (not after `now`).

        Every agent that is up gets a grace of max(2 x its interval, min(`blind_seconds`,
        `blind_max_seconds`) + its interval): it does not go down before `ended_at` + grace, and
        when it was not heard since `ended_at`, not before `ended_at` + grace + its threshold.
        Deadlines further ahead than that (from a clock that stepped back) are brought back. Agents
        that `ensure` adds later, while the grace runs, share it.
        """
        ...

    async def beacon(self, now: float) -> None:
        """Note that an ingest process was able to hear agents at `now` (each 5 s).

        A pause that is longer than a beacon is good for begins a new row. So does the first beacon
        after all ingest processes were gone, however short the pause: agents were refused in it.
        """
        ...

    async def ingest_sight(self) -> IngestSight | None:
        """Return what the beacons tell; None when there never was one."""
        ...

    async def drain_seen(self, limit: int) -> SeenLease:
        """Lease at most `limit` real contacts that the hub was not yet told of.

        A contact is in one lease at a time; a lease ends by `confirm_seen`, by `release_seen`, or
        with the process that held it, after which its contacts are drained again.
        """
        ...

    async def confirm_seen(self, lease: SeenLease) -> None:
        """The hub took the lease's contacts; newer ones of the same agents stay to be told."""
        ...

    async def release_seen(self, lease: SeenLease) -> None:
        """The hub did not take the contacts; they are drained again, with the newest instant.

        Those of agents that were removed meanwhile are dropped.
        """
        ...

    async def counts(self) -> PresenceCounts:
        """Return the counts over all companies."""
        ...

    async def company_counts(self) -> dict[str, PresenceCounts]:
        """Return the counts of each company that has agents."""
        ...

    async def agents(
        self, *, company_id: str | None = None, after: str = "", limit: int = 500
    ) -> list[AgentPresence]:
        """Return agents in order of agent id, those after `after`; one page of at most `limit`."""
        ...

    async def ping(self) -> None:
        """Return when transitions can be decided and kept now; cheap enough for a probe."""
        ...
