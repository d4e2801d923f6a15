"""The presence of several processes, in Redis.

Keys, all behind the client's prefix and ``pres:``:

=================== ====== =================================================================
``a:{agent}``       hash   ``co``, ``srv``, ``interval``, ``told``, ``seen``, ``due`` and ``grace``
                           (ms), ``down``, ``seq``, ``n`` (the last grace applied); of a removed
                           agent only ``seq``, for 30 days
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

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ahcollector.clock import SystemClock
from ahcollector.errors import PresenceError, RedisError
from ahcollector.presence._arguments import Contact, check, check_now, interval_text
from ahcollector.presence._gather import Gather
from ahcollector.presence._replies import seen_agents, shown, transitions
from ahcollector.presence._scripts import load_scripts
from ahcollector.presence._shared_beacons import RedisBeacons
from ahcollector.presence._state import to_ms
from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    IngestSight,
    PresenceCounts,
    SeenLease,
    Transition,
)
from ahcollector.redis import RedisClient, Script
from ahwire import Clock

__all__ = ["RedisPresence"]

_SEQ_KEEP_SECONDS: Final = 30 * 86_400
_COMPANY_PAGE: Final = 500
_PROBE_SECONDS: Final = 60
# Lua passes all of them to one command, and has room for some thousands.
_TOUCH_ITEMS_MAX: Final = 1_000


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
        touch_items_max: Contacts in one script call at most; 1 to 1,000.
        walk_agents_max: Agents that get a grace in one script call at most.
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
        touch_items_max: int = 200,
        walk_agents_max: int = 200,
    ) -> None:
        if not 1 <= touch_items_max <= _TOUCH_ITEMS_MAX:
            raise ValueError(
                f"touch_items_max is {touch_items_max}; it must be 1 to {_TOUCH_ITEMS_MAX}"
            )
        self._client = client
        self._event_ids = event_ids
        self._life = uuid.uuid4().hex
        self._name = name if name is not None else self._life
        self._clock = clock if clock is not None else SystemClock()
        self._down_min_seconds = down_min_seconds
        self._default_interval_seconds = default_interval_seconds
        self._intent_lease_ms = to_ms(intent_lease_seconds)
        self._seen_lease_ms = to_ms(seen_lease_seconds)
        self._walk_agents_max = walk_agents_max
        self._scripts = load_scripts()
        self._prefix = client.key("pres", "")
        self._beacons = RedisBeacons(
            client=client,
            key=self._key("ingest"),
            swap=self._scripts.swap,
            life=self._life,
            name=self._name,
            max_age_seconds=beacon_max_age_seconds,
        )
        self._contacts: Gather[Contact] = Gather(
            write=self._write_contacts, items_max=touch_items_max
        )

    # --- who is there

    async def touch(
        self,
        agent: AgentRef,
        now: float,
        interval_seconds: float | None,
        *,
        waits_seconds: float = 0.0,
    ) -> None:
        """Note a contact, together with others of this process."""
        check(agent, now)
        contact = Contact(
            agent=agent,
            now=now,
            interval=interval_text(interval_seconds),
            waits_seconds=waits_seconds,
        )
        await self._contacts.put(contact)

    async def _write_contacts(self, contacts: Sequence[Contact]) -> None:
        event_ids = [""] * len(contacts)
        # Ids are made only for agents that are down: hardly one contact in a thousand.
        while down := await self._touch(contacts, event_ids):
            for place in down:
                event_ids[place] = self._event_ids()

    async def _touch(self, contacts: Sequence[Contact], event_ids: list[str]) -> list[int]:
        """Note all contacts, or none: then return the places that need an event id."""
        fields = [
            contact.fields(event_id) for contact, event_id in zip(contacts, event_ids, strict=True)
        ]
        places: list[int] = await self._run(
            self._scripts.touch,
            json.dumps(fields, separators=(",", ":")),
            self._down_min_seconds,
            repr(float(self._default_interval_seconds)),
        )
        return places

    async def ensure(self, agent: AgentRef, now: float, interval_seconds: float | None) -> None:
        """Make an agent known."""
        check(agent, now)
        await self._run(
            self._scripts.ensure,
            agent.agent_id,
            agent.company_id,
            agent.server_id,
            repr(now),
            interval_text(interval_seconds),
            self._down_min_seconds,
            repr(float(self._default_interval_seconds)),
        )

    async def remove(self, agent_id: str, now: float, reason: str) -> None:
        """Forget an agent, after its up transition when it was down."""
        check_now(now)
        event_id = self._event_ids()
        await self._run(
            self._scripts.remove, agent_id, repr(now), reason, event_id, _SEQ_KEEP_SECONDS
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
        reply = await self._run(
            self._scripts.scan,
            limit,
            self._name,
            to_ms(self._clock.time()),
            self._intent_lease_ms,
            now,
            *event_ids,
        )
        walking, due, *rows = reply
        return bool(walking), due, transitions(rows, limit)

    async def pending_count(self) -> int:
        """Count intents, whoever holds them."""
        return int(await self._call("HGET", self._key("n"), "tx") or 0)

    async def confirm(self, transition: Transition) -> None:
        """Drop an intent."""
        agent_id = transition.agent.agent_id
        if await self._run(self._scripts.confirm, agent_id, transition.event_id) < 0:
            raise PresenceError(
                f"transition {transition.event_id} of agent {agent_id} is not its oldest: "
                "confirm them in the order in which they were handed out"
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
        while not await self._run(self._scripts.grace, *arguments):
            await self._walk()
        await self._walk()

    async def _walk(self) -> None:
        while not await self._run(self._scripts.walk, self._walk_agents_max):
            pass

    async def beacon(self, now: float) -> None:
        """Note that this process could hear agents."""
        check_now(now)
        with _translated():
            await self._beacons.write(now)

    async def ingest_sight(self) -> IngestSight | None:
        """Return what the beacons of all processes tell."""
        with _translated():
            return await self._beacons.sight(self._clock.time())

    # --- what the hub and the console are told

    async def drain_seen(self, limit: int) -> SeenLease:
        """Lease contacts, for `seen_lease_seconds`."""
        lease_id, *rows = await self._run(
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
        await self._call("HDEL", self._key("unrep:lease"), lease.lease_id)

    async def release_seen(self, lease: SeenLease) -> None:
        """Take leased contacts back."""
        await self._run(self._scripts.release, lease.lease_id)

    async def counts(self) -> PresenceCounts:
        """Count all agents; the two numbers may be a moment apart."""
        agents, down = await self._pipeline(
            [("ZCARD", self._key("ids")), ("SCARD", self._key("down"))]
        )
        return PresenceCounts(agents=agents, down=down)

    async def company_counts(self) -> dict[str, PresenceCounts]:
        """Count agents by company, in pages; they may be some moments apart."""
        result: dict[str, PresenceCounts] = {}
        cursor = 0
        while True:
            reply_cursor, page = await self._call(
                "SSCAN", self._key("companies"), cursor, "COUNT", _COMPANY_PAGE
            )
            names = [name.decode() for name in page]
            numbers = await self._pipeline(
                [
                    command
                    for name in names
                    for command in (
                        ("ZCARD", self._key(f"ids:{name}")),
                        ("SCARD", self._key(f"down:{name}")),
                    )
                ]
            )
            for name, agents, down in zip(names, numbers[::2], numbers[1::2], strict=True):
                if agents:
                    result[name] = PresenceCounts(agents=agents, down=down)
            cursor = int(reply_cursor)
            if cursor == 0:
                return result

    async def agents(
        self, *, company_id: str | None = None, after: str = "", limit: int = 500
    ) -> list[AgentPresence]:
        """List agents by id."""
        key = self._key("ids" if company_id is None else f"ids:{company_id}")
        rows = await self._run(self._scripts.list, key, after, limit)
        return [shown(row) for row in rows]

    async def ping(self) -> None:
        """Return when Redis takes a write; one that is full, or a replica, only answers."""
        await self._call("SET", self._key("probe"), "1", "EX", _PROBE_SECONDS)

    # --- Redis

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def _run(self, script: Script, *args: str | float) -> Any:
        with _translated():
            return await self._client.run(script, keys=[self._prefix], args=args)

    async def _call(self, *command: str | bytes | float) -> Any:
        with _translated():
            return await self._client.call(*command)

    async def _pipeline(self, commands: Sequence[Sequence[str | bytes | float]]) -> list[Any]:
        if not commands:
            return []
        with _translated():
            return await self._client.pipeline(commands)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise PresenceError(f"presence cannot be asked or told ({error})") from error
