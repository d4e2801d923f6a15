"""What keeps the hub's lists: the newest of each, whoever heard it."""

import pytest

from ahcollector.alerts import FileKeptLists, MemoryKeptLists

pytestmark = pytest.mark.anyio


class Contract:
    async def test_list_is_kept_with_its_time(self):
        kept = self.new()
        assert (await kept.load("rules"), await kept.as_of("rules")) == (None, None)
        await kept.save("rules", [{"a": 1}], as_of=100.123456)
        for one in (kept, self.new()):
            assert await one.load("rules") == [{"a": 1}]
            assert await one.as_of("rules") == 100.123456
            assert await one.as_of("silences") is None

    async def test_newer_list_takes_the_place_of_an_older_one(self):
        kept = self.new()
        for number, as_of in enumerate([100.0, 100.0, 100.0000001, 1e9 + 0.1]):
            await kept.save("rules", [{"a": number}], as_of=as_of)
            assert (await kept.load("rules"), await kept.as_of("rules")) == (
                [{"a": number}],
                as_of,
            )

    async def test_time_that_nobody_knows_is_the_oldest(self):
        kept = self.new()
        await kept.save("rules", [{"a": 1}])
        assert await kept.as_of("rules") == 0.0
        await kept.save("rules", [{"a": 2}], as_of=1.0)
        assert await kept.load("rules") == [{"a": 2}]

    async def test_older_list_takes_the_place_of_none(self):
        """Whoever has it."""
        await self.new().save("rules", [{"a": "new"}], as_of=200.0)
        kept = self.new()
        await kept.save("rules", [{"a": "old"}], as_of=100.0)
        for one in (kept, self.new()):
            assert (await one.load("rules"), await one.as_of("rules")) == ([{"a": "new"}], 200.0)


class TestMemory(Contract):
    @pytest.fixture(autouse=True)
    def _lists(self):
        lists = MemoryKeptLists()
        self.new = lambda: lists


class TestFile(Contract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.new = lambda: FileKeptLists(directory=tmp_path)


@pytest.mark.service
class TestRedis(Contract):
    @pytest.fixture(autouse=True)
    def _client(self, client):
        from ahcollector.alerts.redis import RedisKeptLists

        self.client = client
        self.new = lambda: RedisKeptLists(client=client)

    async def test_time_is_redis_own_and_what_cannot_be_read_is_old(self):
        kept = self.new()
        before = await kept.now()
        assert before <= await kept.now()
        assert before > 1_700_000_000
        await kept.save("rules", [{"a": 1}], as_of=5.0)
        await self.client.call("SET", self.client.key("rules:kept:rules:as_of"), "x")
        assert await kept.as_of("rules") == 0.0
        await self.client.call("DEL", self.client.key("rules:kept:rules"))
        assert await kept.as_of("rules") is None
