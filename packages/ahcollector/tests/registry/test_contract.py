"""Every registry of the package keeps the contract: memory, snapshot, Redis, and cached ones."""

import pytest

from ahcollector.registry import CachedRegistry, MemoryRegistry, NegativeCache
from ahcollector.registry.snapshot import decode, encode
from ahcollector.testing import FakeClock
from ahcollector.testing.contracts import RegistryContract


class SnapshotRegistry(MemoryRegistry):
    """Goes through its file after every change."""

    async def put(self, record, *, now, renewal=False):
        put = await super().put(record, now=now, renewal=renewal)
        self.reopen()
        return put

    async def revoke(self, agent_id, *, now):
        entry = await super().revoke(agent_id, now=now)
        self.reopen()
        return entry

    def reopen(self):
        if len(self._agents) > 40:
            # Each time costs as much as there are agents.
            return
        image, damaged = decode(b"".join(encode(self.image())))
        assert damaged == ()
        self.restore(image)


def cached(registry, feed=None):
    return CachedRegistry(registry=registry, negative=NegativeCache(), clock=FakeClock(), feed=feed)


class Warm(CachedRegistry):
    """Looks everything up before each change, so that what is cached is what may be wrong."""

    words = tuple(f"{kind}{number}" for kind in ("t", "w") for number in range(12))

    async def warm(self, *, often=True):
        self.warmed = getattr(self, "warmed", 0) + often
        if often and self.warmed > 40:
            return
        from ahcollector.testing._contracts.registry import _hash

        for word in (*self.words, "t", "old", "new", "zero", "five"):
            await self.lookup(_hash(word))

    async def put(self, record, *, now, renewal=False):
        await self.warm()
        return await super().put(record, now=now, renewal=renewal)

    async def revoke(self, agent_id, *, now):
        await self.warm()
        return await super().revoke(agent_id, now=now)

    async def sweep(self, *, revoked_before):
        await self.warm(often=False)
        return await super().sweep(revoked_before=revoked_before)

    async def delete_company(self, company_id):
        await self.warm(often=False)
        return await super().delete_company(company_id)

    async def delete_server(self, company_id, server_id):
        await self.warm(often=False)
        return await super().delete_server(company_id, server_id)

    async def delete_agent(self, agent_id, *, newest_version):
        await self.warm(often=False)
        return await super().delete_agent(agent_id, newest_version=newest_version)


def warm(registry):
    return Warm(registry=registry, negative=NegativeCache(), clock=FakeClock())


@pytest.mark.anyio
class TestMemoryRegistry(RegistryContract):
    async def new(self):
        return MemoryRegistry()


@pytest.mark.anyio
class TestSnapshotRegistry(RegistryContract):
    async def new(self):
        return SnapshotRegistry()


@pytest.mark.anyio
class TestCachedMemoryRegistry(RegistryContract):
    async def new(self):
        return warm(MemoryRegistry())


@pytest.mark.anyio
@pytest.mark.service
class TestRedisRegistry(RegistryContract):
    @pytest.fixture(autouse=True)
    def _redis(self, client):
        self.client = client

    async def new(self):
        from ahcollector.registry.redis import RedisRegistry

        return RedisRegistry(client=self.client)


class TestCachedRedisRegistry(TestRedisRegistry):
    async def new(self):
        return warm(await super().new())


class TestRedisRegistryInSmallSteps(TestRedisRegistry):
    async def new(self):
        from ahcollector.registry.redis import RedisRegistry

        return RedisRegistry(client=self.client, step_agents_max=1)
