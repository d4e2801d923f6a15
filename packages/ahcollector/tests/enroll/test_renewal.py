"""A renewal tells its token whatever else fails, and never a token that does not work."""

import hashlib
import random
from datetime import UTC, datetime

import attrs
import pytest

from ahcollector.enroll import Renewal
from ahcollector.errors import RegistryError, RequestRefusedError
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache, Syncer, Verdict
from ahcollector.testing import FakeClock, FakeHub
from ahwire import AgentRecord, UUID7Generator
from ahwire.hub import AgentState, RenewGrant
from ahwire.status import Code

pytestmark = pytest.mark.anyio

AGENT = AgentRef(agent_id="a1", company_id="acme", server_id="s")
OLD = hashlib.sha256(b"old").hexdigest()


class Desk:
    def __init__(self, *, departures=None):
        clock = FakeClock()
        self.hub = FakeHub()
        self.registry = MemoryRegistry()
        self.directory = Directory(
            registry=self.registry,
            presence=MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next),
            negative=NegativeCache(),
            clock=clock,
            departures=departures,
        )
        self.renewal = Renewal(hub=self.hub, directory=self.directory)

    def grants(self, token_hash):
        self.hub.renewals["a1"] = RenewGrant(
            token_hash=token_hash,
            agent_token="new",
            expires_at=datetime(2027, 1, 2, tzinfo=UTC),
            prev_token_expires_at=datetime(2027, 1, 1, tzinfo=UTC),
            version=2,
        )


async def test_the_new_token_is_told_with_both_ends():
    desk = Desk()
    desk.grants(hashlib.sha256(b"new").hexdigest())
    reply = await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    assert reply.agent_token == "new"
    assert reply.previous_valid_until_ms == 1_798_761_600_000
    assert reply.token_expires_at_ms == 1_798_848_000_000
    entry = await desk.registry.lookup(OLD)
    assert entry.expires_at == datetime(2027, 1, 1, tzinfo=UTC)


async def test_a_token_that_is_not_the_hashed_one_is_never_told():
    desk = Desk()
    desk.grants("0" * 64)
    with pytest.raises(RequestRefusedError) as caught:
        await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    assert caught.value.code is Code.UNAVAILABLE
    assert await desk.registry.lookup(OLD) is None


async def test_a_registry_that_fails_costs_nobody_the_token(caplog):
    desk = Desk()
    desk.grants(hashlib.sha256(b"new").hexdigest())

    async def broken(record, *, now, renewal):
        raise RegistryError("no answer")

    desk.registry.put = broken
    reply = await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    assert reply.agent_token == "new"
    assert "could not be kept" in caplog.text


@pytest.mark.fault
async def test_a_departure_that_cannot_be_noted_costs_nobody_the_token(full_departures, caplog):
    """C18: by the registry the agent is at another server yet."""
    desk = Desk(departures=full_departures)
    await desk.directory.put(desk.hub.active("a1", "old", server_id="before"))
    desk.grants(hashlib.sha256(b"new").hexdigest())
    reply = await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    assert reply.agent_token == "new"
    assert "could not be kept" in caplog.text


class LossyHub(FakeHub):
    """Makes tokens as the hub does: it knows the newest one, not which one was shown."""

    def __init__(self):
        super().__init__()
        self.made = 0

    async def renew(self, agent_id, *, request_id):
        self.made += 1
        token, old = f"token-{self.made}", self.records[agent_id]
        end = datetime(2027, 1, 1, tzinfo=UTC)
        record = attrs.evolve(
            old,
            token_hash=self.hash_of(token),
            prev_token_hash=old.token_hash,
            prev_token_expires_at=end,
            version=old.version + 1,
        )
        self.change(record)
        return RenewGrant(
            token_hash=record.token_hash,
            agent_token=token,
            prev_token_expires_at=end,
            version=record.version,
        )


@pytest.mark.parametrize("sync_first", [False, True])
async def test_however_many_answers_are_lost_the_agents_own_token_stays_good(sync_first):
    desk = Desk()
    desk.hub = LossyHub()
    desk.renewal = Renewal(hub=desk.hub, directory=desk.directory)
    syncer = Syncer(
        hub=desk.hub, registry=desk.registry, directory=desk.directory, clock=FakeClock()
    )
    own = desk.hub.active("a1", "own", server_id="s").token_hash
    await syncer.sync_once()
    now = datetime(2026, 12, 1, tzinfo=UTC)
    for _ in range(5):
        # The answer is lost, and the agent shows its own token again.
        await desk.renewal.renew(AGENT, shown_hash=own, request_id="r")
        await syncer.sync_once()
        assert (await desk.registry.lookup(own)).verdict(now) is Verdict.VALID
    original = desk.directory.put

    async def after_the_sync(record, *, renewal):
        await syncer.sync_once()
        return await original(record, renewal=renewal)

    if sync_first:
        desk.directory.put = after_the_sync
        syncer._directory = Directory(
            registry=desk.registry,
            presence=MemoryPresence(event_ids=UUID7Generator(FakeClock(), random.Random(2)).next),
            negative=NegativeCache(),
            clock=FakeClock(),
        )
    reply = await desk.renewal.renew(AGENT, shown_hash=own, request_id="r")
    await syncer.sync_once()
    for token_hash in (own, desk.hub.hash_of(reply.agent_token)):
        assert (await desk.registry.lookup(token_hash)).verdict(now) is Verdict.VALID
    lost = await desk.registry.lookup(desk.hub.hash_of("token-5"))
    assert lost is None, "nobody ever had it"


async def test_a_renewal_of_an_agent_revoked_meanwhile_revives_nobody(caplog):
    desk = Desk()
    desk.grants(hashlib.sha256(b"new").hexdigest())
    await desk.directory.put(
        AgentRecord(
            agent_id="a1",
            company_id="acme",
            server_id="s",
            state=AgentState.ACTIVE,
            token_hash=OLD,
            version=2,
        )
    )
    await desk.directory.revoke("a1")
    await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    entry = await desk.registry.lookup(OLD)
    assert entry.state is AgentState.REVOKED
    assert "older than what is known" in caplog.text
