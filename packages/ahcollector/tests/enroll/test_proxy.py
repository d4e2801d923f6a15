"""An enrolment whose answer was lost is made again, and locks nobody out."""

import hashlib
import random

import pytest

from ahcollector.enroll import EnrollProxy
from ahcollector.presence import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache, Resolver
from ahcollector.testing import FakeClock, FakeHub
from ahwire import AgentRecord, UUID7Generator
from ahwire.agent_pb2 import EnrollRequest
from ahwire.hub import AgentState, EnrollGrant

pytestmark = pytest.mark.anyio


def hash_of(token):
    return hashlib.sha256(token.encode()).hexdigest()


class AgainHub(FakeHub):
    """Answers one license within its ten minutes again: the same agent, a new token."""

    def __init__(self, *, versions):
        super().__init__()
        self.versions = versions
        self.made = 0

    async def enroll(self, request, *, client_ip, request_id):
        self.made += 1
        token = f"token-{self.made}"
        record = AgentRecord(
            agent_id="a1",
            company_id="acme",
            server_id="s",
            state=AgentState.ACTIVE,
            token_hash=hash_of(token),
            version=self.made,
        )
        self.change(record)
        return EnrollGrant(
            agent_id="a1",
            company_id="acme",
            server_id="s",
            token_hash=hash_of(token),
            agent_token=token,
            version=self.made if self.versions else 0,
        )


class Desk:
    def __init__(self, *, versions=True, departures=None):
        clock = FakeClock()
        self.hub = AgainHub(versions=versions)
        self.registry = MemoryRegistry()
        negative = NegativeCache()
        self.directory = Directory(
            registry=self.registry,
            presence=MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next),
            negative=negative,
            clock=clock,
            departures=departures,
        )
        self.resolver = Resolver(
            registry=self.registry,
            directory=self.directory,
            hub=self.hub,
            negative=negative,
            clock=clock,
        )
        self.proxy = EnrollProxy(hub=self.hub, directory=self.directory)

    async def enroll(self):
        request = EnrollRequest(license="l")
        return await self.proxy.enroll(request, client_ip="192.0.2.1", request_id="r")


@pytest.mark.parametrize("versions", [True, False], ids=["versions", "no versions"])
async def test_after_a_lost_answer_the_second_one_counts(versions):
    desk = Desk(versions=versions)
    await desk.enroll()
    reply = await desk.enroll()
    entry = await desk.resolver.resolve(hash_of(reply.agent_token))
    assert entry.agent.agent_id == "a1"
    assert (await desk.registry.count()).active == 1


@pytest.mark.parametrize("versions", [True, False], ids=["versions", "no versions"])
async def test_answers_that_overtake_each_other_leave_the_newest_token_good(versions):
    """The first enrolment's process was slow: its record comes after the second one's."""
    desk = Desk(versions=versions)
    original, slow = desk.directory.put, []

    async def kept_back(record):
        slow.append(record)
        return await original(record)

    desk.directory.put = kept_back
    await desk.enroll()
    reply = await desk.enroll()
    await original(slow[0])
    entry = await desk.resolver.resolve(hash_of(reply.agent_token))
    assert entry.agent.agent_id == "a1", "without versions by the hub's word on the token"


@pytest.mark.fault
async def test_a_departure_that_cannot_be_noted_costs_nobody_the_token(full_departures, caplog):
    """C18: the agent leaves its old server, and that cannot be kept; its token is told."""
    desk = Desk(departures=full_departures)
    await desk.directory.put(desk.hub.active("a1", "old", server_id="before"))
    desk.hub.made = 1
    reply = await desk.enroll()
    assert reply.agent_token == "token-2"
    assert "no space left" in caplog.records[-1].error
    assert (await desk.resolver.resolve(hash_of("token-2"))).agent.server_id == "s"


async def test_a_hub_that_enrols_a_revoked_agent_without_a_version_is_told(caplog):
    desk = Desk(versions=False)
    await desk.enroll()
    await desk.directory.revoke("a1")
    reply = await desk.enroll()
    assert reply.agent_token == "token-2"
    assert "does not count any more" in caplog.text
    assert (await desk.registry.get("a1")).record.state is AgentState.REVOKED
    assert "token-2" not in caplog.text
