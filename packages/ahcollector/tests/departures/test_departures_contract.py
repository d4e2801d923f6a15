"""Memory, file and Redis keep the contract of departures."""

import pytest

from ahcollector.departures import FileDepartures, MemoryDepartures
from ahcollector.testing.contracts import DeparturesContract


@pytest.mark.anyio
class TestMemoryDepartures(DeparturesContract):
    async def new(self, **bounds):
        return MemoryDepartures(**bounds)

    async def reopen(self, departures):
        return departures


@pytest.mark.anyio
class TestFileDepartures(DeparturesContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_path):
        self.path = tmp_path / "state" / "departures.log"

    async def new(self, **bounds):
        return await FileDepartures.open(self.path, **bounds)

    async def reopen(self, departures):
        return await FileDepartures.open(self.path)


@pytest.mark.service
@pytest.mark.anyio
class TestRedisDepartures(DeparturesContract):
    @pytest.fixture(autouse=True)
    def _client(self, client):
        self.client = client

    async def new(self, **bounds):
        from ahcollector.departures.redis import RedisDepartures

        return RedisDepartures(client=self.client, **bounds)

    async def reopen(self, departures):
        return await self.new()


@pytest.mark.fault
@pytest.mark.service
@pytest.mark.anyio
class TestKilledRedisDepartures(DeparturesContract):
    """C18: Redis is killed before two of the calls of each test."""

    @pytest.fixture(autouse=True)
    async def _mortal(self, mortal, client_of, killed, anyio_backend):
        self.client, self.mortal, self.killed = client_of(mortal.port), mortal, killed
        yield
        await self.client.aclose()

    async def new(self, **bounds):
        from ahcollector.departures.redis import RedisDepartures
        from ahcollector.errors import DeparturesError

        departures = RedisDepartures(client=self.client, **bounds)
        return self.killed(departures, self.mortal, failure=DeparturesError, kill_at={2, 5})

    async def reopen(self, departures):
        return await self.new()
