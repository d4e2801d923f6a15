"""From a token's hash to whose it is, asking the hub when the registry does not know."""

from __future__ import annotations

import logging

from ahcollector._buckets import Buckets
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import (
    HubError,
    HubUnavailableError,
    RegistryError,
)
from ahcollector.hub.base import AgentsHub
from ahcollector.metrics import (
    REGISTRY_LOOKUPS,
    REGISTRY_PUT_FAILURES,
    Metrics,
    NullMetrics,
)
from ahcollector.registry._flight import SingleFlight
from ahcollector.registry.base import Registry, TokenEntry, ref_of, token_entries
from ahcollector.registry.cache import CachedRegistry
from ahcollector.registry.directory import NOT_FOLLOWED, Directory, NegativeCache
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = ["Resolver"]

_log = logging.getLogger("ahcollector.registry")

_HITS_SECONDS = 1.0


def entry_in(record: AgentRecord, token_hash: str) -> TokenEntry | None:
    """Return what a record, which the hub gave for this hash, says of it.

    A record that is not active may leave its hash out; an active one must name it, or the hub
    answered for another token.
    """
    entry = token_entries(record).get(token_hash)
    if entry is None and record.state is not AgentState.ACTIVE:
        return TokenEntry(
            agent=ref_of(record), state=record.state, expires_at=None, version=record.version
        )
    return entry


class Resolver:
    """Looks tokens up: registry, negative cache, then the hub, limited and one call a hash.

    A registry that gives no answer (Redis is down) says nothing about a token: it may hold agents
    that the hub never had, those that the admin door was given. Then only what the hub knows
    counts. What it does not know, without a hub too, ends in `HubUnavailableError`, never in "no
    such token", and is not remembered. What a `CachedRegistry` remembers is good to the end of its
    time and no longer, so that no outage makes a revoked token last.

    Args:
        registry: Asked first. When it gives no answer the hub is asked, and a metric says so.
        directory: Takes what the hub told.
        hub: Asked for tokens the registry does not know; None: unknown is unknown.
        negative: Shared with `directory`.
        clock: Time.
        lookups_per_second: How many questions the hub gets from this process, in bursts of as many.
        metrics: Counts ``ahc_registry_lookups_total``, result ``cache`` (a second's at once) for
            what a `CachedRegistry` remembered, and ``ahc_registry_put_failures_total``.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        directory: Directory,
        hub: AgentsHub | None,
        negative: NegativeCache,
        clock: AsyncClock,
        lookups_per_second: float = 50.0,
        metrics: Metrics | None = None,
    ) -> None:
        self._registry = registry
        self._cache = registry if isinstance(registry, CachedRegistry) else None
        self._directory = directory
        self._hub = hub
        self._negative = negative
        self._clock = clock
        self._lookups_per_second = lookups_per_second
        self._limiter: Buckets[str] = Buckets(entries_max=1)
        self._flights: SingleFlight[str, TokenEntry | None] = SingleFlight()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._hits = 0
        self._hits_due = float("-inf")
        self._trouble = Trouble(
            _log, "registry cannot be read, the hub is asked", "registry is read again"
        )
        self._asking = Trouble(
            _log, "hub cannot tell whose token this is", "hub tells whose tokens are"
        )
        self._keeping = Trouble(
            _log,
            "what the hub told could not be kept; it is used all the same",
            "what the hub tells is kept again",
        )

    async def resolve(self, token_hash: str) -> TokenEntry | None:
        """Return what a token hash (64 lower hex) leads to.

        None: no such token, by the word of the registry and of the hub.

        Raises:
            HubUnavailableError: Nobody can tell now. It says nothing about the token.
        """
        if self._cache is not None:
            now = self._clock.monotonic()
            entry = self._cache.cached(token_hash, now=now)
            if entry is not None:
                # Counting costs twice what this look-up does, so it is done for many at once.
                self._hits += 1
                if now >= self._hits_due:
                    self._metrics.inc(REGISTRY_LOOKUPS, self._hits, result="cache")
                    self._hits, self._hits_due = 0, now + _HITS_SECONDS
                return entry
        answered = True
        try:
            entry = await self._registry.lookup(token_hash)
        except RegistryError as error:
            self._count("error")
            self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
            entry, answered = None, False
        else:
            self._trouble.is_over()
        if entry is not None:
            self._count("store")
            return entry
        if self._hub is None:
            if not answered:
                raise HubUnavailableError(
                    "the registry gives no answer, and there is no hub to ask"
                )
            self._count("miss")
            return None
        if answered and self._negative.holds(token_hash, now=self._clock.monotonic()):
            self._count("negative")
            return None
        hub = self._hub
        entry = await self._flights.do(token_hash, lambda: self._ask(hub, token_hash, answered))
        if entry is None and not answered:
            raise HubUnavailableError(
                "the hub does not know this token, and the registry, which may, gives no answer"
            )
        return entry

    async def _ask(self, hub: AgentsHub, token_hash: str, answered: bool) -> TokenEntry | None:
        """Return what the hub says; `answered` is whether the registry did not know the token.

        Those who share this call may differ in that: each judges by what it was told itself.
        """
        wait = self._limiter.take(
            "hub",
            now=self._clock.monotonic(),
            per_second=self._lookups_per_second,
            burst=max(1.0, self._lookups_per_second),
        )
        if wait:
            self._count("limited")
            raise HubUnavailableError("look-ups at the hub are limited now: try again later")
        read_at = self._clock.monotonic()
        mark = 0 if self._cache is None else self._cache.mark()
        try:
            record = await hub.agent_by_token_hash(token_hash)
        except HubError as error:
            self._count("error")
            self._asking.goes_on(
                self._clock.monotonic(), {"token_hash": token_hash[:8], "error": str(error)}
            )
            raise HubUnavailableError(
                f"the hub cannot tell whose token this is: {error}"
            ) from error
        self._asking.is_over()
        if record is None:
            if answered:
                self._negative.add(token_hash, now=self._clock.monotonic())
                self._count("miss")
            return None
        entry = entry_in(record, token_hash)
        if entry is None:
            self._count("error")
            raise HubUnavailableError(
                f"the hub answered with agent {record.agent_id}, which has not the token asked for"
            )
        self._count("hub")
        current = self._cache is not None and self._cache.is_current(token_hash, entry, mark=mark)
        return await self._take(record, entry, token_hash, read_at if current else None)

    async def _take(
        self, record: AgentRecord, entry: TokenEntry, token_hash: str, read_at: float | None
    ) -> TokenEntry | None:
        """Keep what the hub told, and return what holds now; a failure to keep it is only noted.

        `read_at` is when the hub was asked, None when that is in doubt or nothing is cached.
        """
        try:
            put = await self._directory.put(record)
            known = await self._registry.lookup(token_hash)
        except NOT_FOLLOWED as error:
            self._metrics.inc(REGISTRY_PUT_FAILURES)
            self._keeping.goes_on(
                self._clock.monotonic(), {"agent_id": record.agent_id, "error": str(error)}
            )
            if isinstance(error, RegistryError) and read_at is not None:
                self._remember(token_hash, entry, read_at)
            return entry
        self._keeping.is_over()
        if known is not None:
            return known
        if not put.applied:
            # The registry is ahead of what the hub told: the token was replaced meanwhile.
            raise HubUnavailableError(
                f"agent {record.agent_id} changed during the look-up: try again"
            )
        return entry

    def _remember(self, token_hash: str, entry: TokenEntry, read_at: float) -> None:
        """Keep the hub's word at this node, so that an outage of the registry costs one question.

        The put that just failed has made the cache forget this agent, so its mark is taken now. No
        other node's change can have been missed by that: they come through the registry.
        """
        if self._cache is not None:
            self._cache.remember(token_hash, entry, read_at=read_at, mark=self._cache.mark())

    def _count(self, result: str) -> None:
        self._metrics.inc(REGISTRY_LOOKUPS, result=result)
