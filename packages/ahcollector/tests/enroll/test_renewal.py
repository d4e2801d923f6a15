"""A renewal tells its token whatever else fails, and never a token that does not work."""

import hashlib
import random
from datetime import UTC, datetime

import pytest

from ahcollector.enroll import Renewal
from ahcollector.errors import RegistryError, RequestRefusedError
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator
from ahwire.hub import RenewGrant
from ahwire.status import Code

pytestmark = pytest.mark.anyio

AGENT = AgentRef(agent_id="a1", company_id="acme", server_id="s")
OLD = hashlib.sha256(b"old").hexdigest()


class Desk:
    def __init__(self):
        clock = FakeClock()
        self.hub = FakeHub()
        self.registry = MemoryRegistry()
        self.directory = Directory(
            registry=self.registry,
            presence=MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next),
            negative=NegativeCache(),
            clock=clock,
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

    async def broken(record, *, now):
        raise RegistryError("no answer")

    desk.registry.put = broken
    reply = await desk.renewal.renew(AGENT, shown_hash=OLD, request_id="r")
    assert reply.agent_token == "new"
    assert "could not be kept" in caplog.text
