"""Who may pass: token, state, sign of life, protocol, rate, in this order."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import attrs
from starlette.datastructures import Headers

from ahcollector._buckets import Buckets
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import HubUnavailableError, PresenceError, RequestRefusedError
from ahcollector.ingest._headers import check_protocol, ip_key, token_hash
from ahcollector.ingest._toll import Toll, refuse_over_rate
from ahcollector.ingest.limits import IngestLimits
from ahcollector.presence.base import AgentRef, Presence
from ahcollector.registry.base import TokenEntry, Verdict
from ahcollector.registry.resolver import Resolver
from ahcollector.registry.settings import CompanySettingsCache
from ahwire.limits import metrics_per_minute
from ahwire.status import Code

__all__ = ["Gate", "Pass"]

_log = logging.getLogger("ahcollector.ingest")

# The answers after which an agent keeps its batch and backs off.
_COMES_LATER = frozenset(
    {
        Code.TIMEOUT,
        Code.UPGRADE_REQUIRED,
        Code.RATE_LIMITED,
        Code.SERVER_ERROR,
        Code.UNAVAILABLE,
    }
)


@attrs.frozen(kw_only=True)
class Pass:
    """A request whose token was found good.

    Attributes:
        agent: Whose it is, by the registry and nothing else.
        token: What the token leads to.
        token_hash: The token's SHA-256; at most 8 characters of it may be logged.
    """

    agent: AgentRef
    token: TokenEntry
    token_hash: str = attrs.field(repr=False)


def judge(entry: TokenEntry | None, now: datetime) -> TokenEntry:
    """Return the entry of a token that is good at `now`, else refuse.

    Raises:
        RequestRefusedError: unauthorized, or agent_revoked.
    """
    verdict = Verdict.UNUSABLE if entry is None else entry.verdict(now)
    if verdict is Verdict.REVOKED:
        raise RequestRefusedError(Code.AGENT_REVOKED, "this agent was revoked: enrol it again")
    if entry is None or verdict is Verdict.UNUSABLE:
        raise RequestRefusedError(
            Code.UNAUTHORIZED, "token unknown, pending or expired: renew it or enrol again"
        )
    return entry


class Gate:
    """Lets requests of agents in.

    Args:
        resolver: Knows tokens.
        presence: Told of every request to a metrics door, whatever becomes of it.
        settings: What is set for each company: its cycle, and how its agents are watched.
        clock: Time.
        limits: Rates and cycles.
        agents_max: How many agents' cycles and rates are remembered.
    """

    def __init__(
        self,
        *,
        resolver: Resolver,
        presence: Presence,
        settings: CompanySettingsCache,
        clock: AsyncClock,
        limits: IngestLimits,
        agents_max: int = 200_000,
    ) -> None:
        self._resolver = resolver
        self._presence = presence
        self._settings = settings
        self._clock = clock
        self._limits = limits
        self._agents_max = agents_max
        self._presence_trouble = Trouble(
            _log,
            "signs of life cannot be kept",
            "signs of life are kept again",
            level=logging.ERROR,
        )
        self._intervals: OrderedDict[str, float] = OrderedDict()
        self._metrics_rate: Buckets[str] = Buckets(entries_max=agents_max)
        self._points_rate: Buckets[str] = Buckets(entries_max=agents_max)
        self._slow_rate: Buckets[tuple[str, str]] = Buckets(entries_max=agents_max)
        self._enroll_rate: Buckets[str] = Buckets(entries_max=agents_max)

    async def metrics(self, headers: Headers) -> Pass:
        """Admit a request to a metrics door; the agent has shown a sign of life from here on.

        Raises:
            RequestRefusedError: The answer to the agent.
        """
        passed = await self._authenticate(headers)
        await self.touch(passed.agent, self._intervals.get(passed.agent.agent_id))
        async with self.answered(passed.agent):
            check_protocol(headers.get("x-ah-proto"))
            interval = self._interval(passed.agent)
            wait = self._metrics_rate.take(
                passed.agent.agent_id,
                now=self._clock.monotonic(),
                per_second=max(self._limits.metrics_per_minute_min, metrics_per_minute(interval))
                / 60.0,
                burst=self._limits.metrics_burst,
            )
            refuse_over_rate(wait, "batches")
        return passed

    @asynccontextmanager
    async def answered(self, agent: AgentRef) -> AsyncIterator[None]:
        """Surround what becomes of an admitted request at a metrics door.

        Whoever is told to come later, or gets no readable answer, keeps its batch and backs off, up
        to `backoff_seconds_max`: longer than its silence may last. Presence is told so, or a full
        bus would make living agents count as down.
        """
        try:
            yield
        except Exception as error:
            if not isinstance(error, RequestRefusedError) or error.code in _COMES_LATER:
                interval = self._intervals.get(agent.agent_id)
                await self.touch(agent, interval, waits_seconds=self._limits.backoff_seconds_max)
            raise

    async def foreign(self, headers: Headers) -> Pass:
        """Admit a request to a metrics door of another protocol, which knows none of our headers.

        It is a sign of life too. What it takes from the agent's rate is known when its body is
        read: see `toll`.
        """
        passed = await self._authenticate(headers)
        await self.touch(passed.agent, self._intervals.get(passed.agent.agent_id))
        return passed

    def toll(self, agent: AgentRef) -> Toll:
        """Return what takes from an agent's rate at the doors of other protocols."""
        return Toll(
            rate=self._points_rate,
            agent_id=agent.agent_id,
            clock=self._clock,
            limits=self._limits,
        )

    async def other(self, headers: Headers, door: str) -> Pass:
        """Admit a request to another door of agents, each with a slow rate of its own."""
        passed = await self._authenticate(headers)
        check_protocol(headers.get("x-ah-proto"))
        rate = self._limits.config_per_minute
        wait = self._slow_rate.take(
            (passed.agent.agent_id, door),
            now=self._clock.monotonic(),
            per_second=rate / 60.0,
            burst=max(1.0, rate),
        )
        refuse_over_rate(wait, f"requests to {door}")
        return passed

    def stranger(self, headers: Headers, address: str) -> None:
        """Admit an enrolment from an address."""
        check_protocol(headers.get("x-ah-proto"))
        rate = self._limits.enroll_per_minute
        wait = self._enroll_rate.take(
            ip_key(address),
            now=self._clock.monotonic(),
            per_second=rate / 60.0,
            burst=max(1.0, rate),
        )
        refuse_over_rate(wait, "enrolments from this address")

    async def heard_interval(self, agent: AgentRef, seconds: float | None) -> None:
        """Note the cycle that a batch names, when it is another than the one last known."""
        if seconds is None:
            return
        interval = self._limits.clamp_interval(seconds)
        if interval == self._intervals.get(agent.agent_id):
            return
        self._intervals[agent.agent_id] = interval
        self._intervals.move_to_end(agent.agent_id)
        if len(self._intervals) > self._agents_max:
            self._intervals.popitem(last=False)
        await self.touch(agent, interval)

    async def touch(
        self, agent: AgentRef, interval_seconds: float | None, *, waits_seconds: float = 0.0
    ) -> None:
        """Tell presence of a sign of life; its failure costs no data, so it is only noted."""
        try:
            await self._presence.touch(
                agent,
                self._clock.time(),
                interval_seconds,
                waits_seconds=waits_seconds,
                rule=self._settings.watch_rule(agent.company_id),
            )
        except PresenceError as error:
            self._presence_trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
        else:
            self._presence_trouble.is_over()

    def _interval(self, agent: AgentRef) -> float:
        """Return an agent's cycle: its own word, else its company's, else the setting."""
        told = self._intervals.get(agent.agent_id)
        if told is not None:
            return told
        company = self._settings.watch_rule(agent.company_id).interval_seconds
        return self._limits.clamp_interval(company or self._limits.interval_seconds)

    async def _authenticate(self, headers: Headers) -> Pass:
        hashed = token_hash(headers.get("authorization"))
        try:
            found = await self._resolver.resolve(hashed)
        except HubUnavailableError as error:
            # The cause is in our log; a stranger need not know what our hub answered.
            raise RequestRefusedError(
                Code.UNAVAILABLE,
                "the token cannot be checked now: try again later",
                retry_after_seconds=error.retry_after_seconds,
            ) from error
        entry = judge(found, datetime.fromtimestamp(self._clock.time(), UTC))
        return Pass(agent=entry.agent, token=entry, token_hash=hashed)
