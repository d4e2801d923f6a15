"""The presence of several processes, in Redis.

Keys, all behind the client's prefix and ``pres:``:

=================== ====== =================================================================
``a:{agent}``       hash   ``co``, ``srv``, ``interval``, ``told``, ``min`` (down_min, where one
                           is set for its company), ``seen``, ``due`` and ``grace`` (ms),
                           ``down``, ``seq``, ``n`` (the last grace applied); of a removed
                           agent only ``seq``, for 30 days, and ``removed``, when that was
``ids``             zset   known agents, all with score 0, so that they are paged by id
``ids:{co}``        zset   the same of one company
``companies``       set    companies that have agents
``up``, ``up:{co}`` zset   up agents by last seen in ms (0: never)
``due``             zset   up agents by deadline in ms: what the scan reads
``down``,           set    down agents
``down:{co}``
``tx``              hash   agent -> its intents in order, as JSON
``tx:order``        zset   agents with intents, by when they got the oldest
``tx:lease``        hash   agent -> until when its intents are whose
``unrep``           zset   agents with a contact to report, in the order of the contacts
``unrep:lease``     hash   lease -> its agents, its end and its holder, as JSON
``grace``           hash   the newest grace, and how far it has walked over the agents
``ingest``          string the beacons, as JSON (see `_witnesses`)
``n``               hash   counters
``epoch``           string a random id, by which processes notice that all of this was lost
``probe``           string what a ping writes, for a minute
=================== ====== =================================================================

**One step.** Whatever changes several keys is one script. The script that moves an agent writes
the intent too, under an event id that it was handed. Its reply may be lost: the intent is there,
and the next `expire` of any process hands it out.

**Graces.** A grace changes every agent, and Redis must not stand still for it. `grace` notes it
under the next number; then the agents are gone over in pages, and until that is done, every script
applies the newest grace to a record it reads that does not have it yet. This is exact: a record
changes only in scripts, so each gets the grace before anything else that came later, with the same
values as at the instant of the call. A second grace, and every decision of a down, waits for the
walk to end; whoever needs it walks on where the last one stopped. Agents that are down get none, as
everywhere.

**Leases.** What `expire` and `pending` hand out is the holder's for some seconds, so that two
processes that scan at once do not both carry an intent. A process that dies loses them with time,
or at once when it comes back under its name. Leases are measured by the clocks of the processes;
were these an hour apart, intents would be handed out twice, which the outbox makes harmless.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from ahcollector.clock import SystemClock
from ahcollector.errors import PresenceError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.presence._arguments import (
    Contact,
    check,
    check_now,
    interval_text,
    rule_texts,
)
from ahcollector.presence._company_counts import company_counts
from ahcollector.presence._gone import SEQ_KEEP_SECONDS, check_quiet
from ahcollector.presence._redis_link import RedisLink
from ahcollector.presence._replies import seen_agents, shown, transitions
from ahcollector.presence._scripts import load_scripts
from ahcollector.presence._shared_beacons import RedisBeacons
from ahcollector.presence._state import to_ms
from ahcollector.presence._store_epoch import StoreEpoch
from ahcollector.presence._touches import RedisTouches
from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    IngestSight,
    PresenceCounts,
    SeenLease,
    Transition,
    WatchRule,
)
from ahcollector.redis import RedisClient
from ahwire import Clock

__all__ = ["RedisPresence"]

_PROBE_SECONDS: Final = 60
_CONFIRM_MAX: Final = 500


class RedisPresence:
    """`Presence` in Redis, for any number of processes.

    Every method may raise `PresenceError`, and may then be called again: what was done is not done
    twice. Touches of one process that come together are one script call.

    Args:
        client: The Redis.
        event_ids: Makes event ids, each above the last (`UUID7Generator.next`).
        name: What this process is called in all its lives, and no other one is; None: a name that
            nobody had. By it a restarted process takes up its leases at once, and its restart is
            known to be a darkness at its first beacon, unless another process was there.
        clock: Wall time of the leases.
        down_min_seconds: No agent is down after less silence than this.
        default_interval_seconds: The interval of agents that name none.
        beacon_max_age_seconds: A longer pause between two beacons was darkness.
        intent_lease_seconds: For so long intents that were handed out are handed to no other
            process.
        seen_lease_seconds: For so long drained contacts are a process's, until it confirms or
            releases them.
        removed_quiet_seconds: For so long after its removal a contact does not make an agent known.
        touch_items_max: Contacts in one script call at most; 1 to 1,000.
        walk_agents_max: Agents that get a grace in one script call at most.
        metrics: Where to count contacts of removed agents, and losses of all that Redis had.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        event_ids: Callable[[], str],
        name: str | None = None,
        clock: Clock | None = None,
        down_min_seconds: float = 90.0,
        default_interval_seconds: float = 30.0,
        beacon_max_age_seconds: float = 15.0,
        intent_lease_seconds: float = 20.0,
        seen_lease_seconds: float = 60.0,
        removed_quiet_seconds: float = 60.0,
        touch_items_max: int = 200,
        walk_agents_max: int = 200,
        metrics: Metrics | None = None,
    ) -> None:
        metrics = metrics if metrics is not None else NullMetrics()
        self._event_ids = event_ids
        self._life = uuid.uuid4().hex
        self._name = name if name is not None else self._life
        self._clock = clock if clock is not None else SystemClock()
        self._down_min_seconds = down_min_seconds
        self._usual_interval = repr(float(default_interval_seconds))
        self._removed_quiet_seconds = check_quiet(removed_quiet_seconds)
        self._intent_lease_ms = to_ms(intent_lease_seconds)
        self._seen_lease_ms = to_ms(seen_lease_seconds)
        self._walk_agents_max = walk_agents_max
        self._scripts = load_scripts()
        self._link = RedisLink(client=client)
        self._epoch = StoreEpoch(link=self._link, metrics=metrics)
        self._beacons = RedisBeacons(
            client=client,
            key=self._link.key("ingest"),
            swap=self._scripts.swap,
            life=self._life,
            name=self._name,
            max_age_seconds=beacon_max_age_seconds,
        )
        self._touches = RedisTouches(
            link=self._link,
            script=self._scripts.touch,
            event_ids=event_ids,
            settings=(
                down_min_seconds,
                self._usual_interval,
                repr(self._removed_quiet_seconds),
            ),
            items_max=touch_items_max,
            metrics=metrics,
        )

    # --- who is there

    async def touch(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        waits_seconds: float = 0.0,
        rule: WatchRule | None = None,
    ) -> None:
        """Note a contact, together with others of this process."""
        check(agent, now)
        contact = Contact(
            agent=agent,
            now=now,
            interval=interval_text(interval_seconds),
            waits_seconds=waits_seconds,
            rule=rule,
        )
        await self._touches.put(contact)

    async def ensure(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        rule: WatchRule | None = None,
    ) -> None:
        """Make an agent known."""
        check(agent, now)
        await self._link.run(
            self._scripts.ensure,
            agent.agent_id,
            agent.company_id,
            agent.server_id,
            repr(now),
            interval_text(interval_seconds),
            self._down_min_seconds,
            self._usual_interval,
            *rule_texts(rule),
        )

    async def remove(self, agent_id: str, now: float, reason: str) -> None:
        """Forget an agent, after its up transition when it was down."""
        check_now(now)
        event_id = self._event_ids()
        await self._link.run(
            self._scripts.remove,
            agent_id,
            repr(now),
            reason,
            event_id,
            SEQ_KEEP_SECONDS,
            # By Redis' clock, and longer than any clock of ours may ask for it.
            math.ceil(2 * self._removed_quiet_seconds) + 1,
        )

    # --- transitions

    async def expire(self, now: float, limit: int) -> list[Transition]:
        """Decide who fell silent; hand out intents."""
        check_now(now)
        walking, due, found = await self._scan(limit, now=repr(now), event_ids=[])
        while walking:
            await self._walk()
            walking, due, found = await self._scan(limit, now=repr(now), event_ids=[])
        room = min(due, limit - len(found))
        if room <= 0:
            return found
        event_ids = [self._event_ids() for _ in range(room)]
        _, _, found = await self._scan(limit, now=repr(now), event_ids=event_ids)
        return found

    async def pending(self, limit: int) -> list[Transition]:
        """Hand out intents."""
        _, _, found = await self._scan(limit, now="", event_ids=[])
        return found

    async def _scan(
        self, limit: int, *, now: str, event_ids: list[str]
    ) -> tuple[bool, int, list[Transition]]:
        """Return whether a grace is walking, how many are due, and the intents."""
        reply = await self._link.run(
            self._scripts.scan,
            limit,
            self._name,
            to_ms(self._clock.time()),
            self._intent_lease_ms,
            now,
            *event_ids,
        )
        walking, due, *rows = reply
        with self._link.reading(self._link.key("tx")):
            return bool(walking), due, transitions(rows, limit)

    async def pending_count(self) -> int:
        """Count intents, whoever holds them."""
        key = self._link.key("n")
        told = await self._link.call("HGET", key, "tx")
        with self._link.reading(f"{key} tx"):
            count = int(told or 0)
        self._epoch.counted(intents=count)
        return count

    async def confirm(self, transition: Transition) -> None:
        """Drop an intent."""
        await self.confirm_all([transition])

    async def confirm_all(self, transitions: Sequence[Transition]) -> None:
        """Drop intents, so many a step that Redis is not held up."""
        for begin in range(0, len(transitions), _CONFIRM_MAX):
            some = transitions[begin : begin + _CONFIRM_MAX]
            pairs = [part for each in some for part in (each.agent.agent_id, each.event_id)]
            place = await self._link.run(self._scripts.confirm, *pairs)
            if place:
                wrong = some[place - 1]
                raise PresenceError(
                    f"transition {wrong.event_id} of agent {wrong.agent.agent_id} is not its "
                    "oldest: confirm them in the order in which they were handed out"
                )

    # --- deadlines

    async def grace(
        self, *, now: float, ended_at: float, blind_seconds: float, blind_max_seconds: float
    ) -> None:
        """Let deadlines count anew; returns when every agent has its grace."""
        check_now(now)
        arguments = (
            repr(now),
            repr(min(ended_at, now)),
            repr(float(min(blind_seconds, blind_max_seconds))),
            repr(float(blind_max_seconds)),
            repr(float(self._down_min_seconds)),
        )
        while not await self._link.run(self._scripts.grace, *arguments):
            await self._walk()
        await self._walk()

    async def _walk(self) -> None:
        while not await self._link.run(self._scripts.walk, self._walk_agents_max):
            pass

    async def beacon(self, now: float) -> None:
        """Note that this process could hear agents."""
        check_now(now)
        await self._epoch.check()
        with self._link.translated(f" ({self._link.key('ingest')})"):
            await self._beacons.write(now)

    async def ingest_sight(self) -> IngestSight | None:
        """Return what the beacons of all processes tell.

        Raises:
            PresenceError: Also once after Redis lost everything that presence had there.
        """
        await self._epoch.check()
        self._epoch.raise_once()
        with self._link.translated(f" ({self._link.key('ingest')})"):
            return await self._beacons.sight(self._clock.time())

    # --- what the hub and the console are told

    async def drain_seen(self, limit: int) -> SeenLease:
        """Lease contacts, for `seen_lease_seconds`."""
        lease_id, *rows = await self._link.run(
            self._scripts.drain,
            limit,
            self._name,
            self._life,
            to_ms(self._clock.time()),
            self._seen_lease_ms,
        )
        return SeenLease(lease_id=lease_id, seen=seen_agents(rows))

    async def confirm_seen(self, lease: SeenLease) -> None:
        """Forget leased contacts; those of a lease that ended are told again."""
        await self._link.call("HDEL", self._link.key("unrep:lease"), lease.lease_id)

    async def release_seen(self, lease: SeenLease) -> None:
        """Take leased contacts back."""
        await self._link.run(self._scripts.release, lease.lease_id)

    async def counts(self) -> PresenceCounts:
        """Count all agents; the two numbers may be a moment apart."""
        agents, down = await self._link.pipeline(
            [("ZCARD", self._link.key("ids")), ("SCARD", self._link.key("down"))]
        )
        self._epoch.counted(down=down)
        return PresenceCounts(agents=agents, down=down)

    async def company_counts(self) -> dict[str, PresenceCounts]:
        """Count agents by company, in pages; they may be some moments apart."""
        return await company_counts(self._link)

    async def agents(
        self, *, company_id: str | None = None, after: str = "", limit: int = 500
    ) -> list[AgentPresence]:
        """List agents by id."""
        key = self._link.key("ids" if company_id is None else f"ids:{company_id}")
        rows = await self._link.run(self._scripts.list, key, after, limit)
        return [shown(row) for row in rows]

    async def ping(self) -> None:
        """Return when Redis takes a write; one that is full, or a replica, only answers."""
        await self._link.call("SET", self._link.key("probe"), "1", "EX", _PROBE_SECONDS)
