"""A hub in memory, which does what a test says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import anyio
import attrs

from ahcollector.errors import HubError, PermanentHubError
from ahcollector.hub.base import RulesReply, SettingsReply, SilencesReply
from ahrules import RuleError, SilenceError
from ahwire import AgentRecord, Event
from ahwire.agent_pb2 import EnrollRequest, Inventory
from ahwire.hub import (
    AgentPage,
    AgentState,
    CompanySettings,
    EnrollGrant,
    EventsReply,
    Heartbeat,
    RenewGrant,
    SeenReport,
    Silence,
    ThresholdRule,
)

__all__ = ["FakeHub"]


class FakeHub:
    """`Hub` in memory.

    Attributes:
        records: Agents by id; `change` also puts them in the stream that pages are read from.
        fails: Raised by every call while it is set.
        holds: Every call waits for it while it is set.
        calls: Name of each call, in order.
        grants: Answers to enrolments by license; an unknown license is refused with 404.
        renewals: Answers to renewals by agent id.
        company: Settings by company id.
        events: Events taken, in order.
        threshold_rules: Answer to `rules`, beside `refused_rules`.
        company_silences: Answer to `silences`, beside `refused_silences`.
    """

    def __init__(self) -> None:
        self.records: dict[str, AgentRecord] = {}
        self.fails: HubError | None = None
        self.holds: anyio.Event | None = None
        self.calls: list[str] = []
        self.grants: dict[str, EnrollGrant] = {}
        self.renewals: dict[str, RenewGrant] = {}
        self.company: dict[str, CompanySettings] = {}
        self.events: list[Event] = []
        self.fences: list[int | None] = []
        self.seen: list[SeenReport] = []
        self.beats: list[Heartbeat] = []
        self.inventories: list[tuple[str, Inventory]] = []
        self.enrolled_from: list[str] = []
        self.threshold_rules: tuple[ThresholdRule, ...] = ()
        self.refused_rules: tuple[RuleError, ...] = ()
        self.company_silences: tuple[Silence, ...] = ()
        self.refused_silences: tuple[SilenceError, ...] = ()
        self._stream: list[AgentRecord] = []

    def change(self, record: AgentRecord) -> None:
        """Make or change an agent."""
        self.records[record.agent_id] = record
        self._stream.append(record)

    def forget(self, agent_id: str) -> None:
        """List an agent no more, as if there had never been one."""
        self.records.pop(agent_id, None)
        self._stream = [record for record in self._stream if record.agent_id != agent_id]

    @staticmethod
    def hash_of(token: str) -> str:
        """Return the hash by which a token is known."""
        return hashlib.sha256(token.encode()).hexdigest()

    async def enroll(
        self, request: EnrollRequest, *, client_ip: str, request_id: str
    ) -> EnrollGrant:
        """Exchange a license of `grants`."""
        del request_id
        await self._call("enroll")
        self.enrolled_from.append(client_ip)
        grant = self.grants.get(request.license)
        if grant is None:
            raise PermanentHubError("unknown license", status=404, code="license_unknown")
        return grant

    async def renew(self, agent_id: str, *, request_id: str) -> RenewGrant:
        """Answer from `renewals`."""
        del request_id
        await self._call("renew")
        if agent_id not in self.renewals:
            raise PermanentHubError("unknown agent", status=404, code="not_found")
        return self.renewals[agent_id]

    async def agent_by_token_hash(self, token_hash: str) -> AgentRecord | None:
        """Find a record by either of its hashes."""
        await self._call("agent_by_token_hash")
        for record in self.records.values():
            if token_hash in {record.token_hash, record.prev_token_hash}:
                return record
        return None

    async def agents_since(self, cursor: str, limit: int) -> AgentPage:
        """Read the stream of changes; a cursor is a position in it."""
        await self._call("agents_since")
        start = int(cursor or "0")
        page = self._stream[start : start + limit]
        end = start + len(page)
        return AgentPage(agents=tuple(page), more=end < len(self._stream), next_since=str(end))

    async def send_events(self, events: Sequence[Event], fence: int | None = None) -> EventsReply:
        """Take events, each id once."""
        await self._call("send_events")
        known = {event.event_id for event in self.events}
        self.events += [event for event in events if event.event_id not in known]
        self.fences.append(fence)
        return EventsReply(accepted=tuple(event.event_id for event in events), rejected=())

    async def send_seen(self, report: SeenReport) -> None:
        """Take a report."""
        await self._call("send_seen")
        self.seen.append(report)

    async def send_inventory(self, agent_id: str, inventory: Inventory, *, request_id: str) -> None:
        """Take an inventory."""
        del request_id
        await self._call("send_inventory")
        self.inventories.append((agent_id, inventory))

    async def heartbeat(self, beat: Heartbeat) -> None:
        """Take a heartbeat."""
        await self._call("heartbeat")
        self.beats.append(beat)

    async def settings(self, company_id: str, *, etag: str | None) -> SettingsReply:
        """Answer from `company`; a company without settings has the defaults."""
        await self._call("settings")
        settings = self.company.get(company_id, CompanySettings())
        own = hashlib.sha256(settings.to_json()).hexdigest()[:8]
        return SettingsReply(settings=None if etag == own else settings, etag=own)

    async def rules(self, etag: str | None) -> RulesReply:
        """Answer with `threshold_rules`."""
        await self._call("rules")
        own = _etag((self.threshold_rules, self.refused_rules))
        if etag == own:
            return RulesReply(rules=None, etag=own)
        return RulesReply(rules=self.threshold_rules, refused=self.refused_rules, etag=own)

    async def silences(self, etag: str | None) -> SilencesReply:
        """Answer with `company_silences`."""
        await self._call("silences")
        own = _etag((self.company_silences, self.refused_silences))
        if etag == own:
            return SilencesReply(silences=None, etag=own)
        return SilencesReply(
            silences=self.company_silences, refused=self.refused_silences, etag=own
        )

    def active(
        self, agent_id: str, token: str, *, company_id: str = "acme", server_id: str = "web-1"
    ) -> AgentRecord:
        """Make an active agent of version 1 and return its record."""
        record = AgentRecord(
            agent_id=agent_id,
            company_id=company_id,
            server_id=server_id,
            state=AgentState.ACTIVE,
            token_hash=self.hash_of(token),
            version=1,
        )
        self.change(record)
        return record

    def revoke(self, agent_id: str) -> AgentRecord:
        """Revoke an agent under its next version."""
        old = self.records[agent_id]
        record = attrs.evolve(old, state=AgentState.REVOKED, version=old.version + 1)
        self.change(record)
        return record

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.holds is not None:
            await self.holds.wait()
        if self.fails is not None:
            raise self.fails


def _etag(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]
