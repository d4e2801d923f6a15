"""Dead letters in pages that are bounded by what they hold, on a real Redis and a real NATS."""

import pytest

from ahcollector.bus import _letter_page, _redis_dead
from ahcollector.bus._entries import encode
from ahcollector.bus._letter_page import LetterPage
from ahcollector.bus.base import BusDeadLetter
from ahcollector.testing._contracts.bus import batch_of

pytestmark = pytest.mark.anyio
COUNT = 7
FOUR = 4 * len(encode(batch_of(0))) - 1


class OnRedis:
    """Puts letters, and has the bus do something at each that is replayed."""

    def __init__(self, bus):
        self.bus = bus
        self.client = bus._client

    async def put(self, number):
        fields = ("shard", 7, "reason", "x", "at", "1.0", "b", encode(batch_of(number)))
        await self.client.call("XADD", self.client.key("bus", "dead"), "*", *fields)

    def at_each_replay(self, do):
        admit = self.bus.dead._admit

        async def admits(shard):
            await do()
            await admit(shard)

        self.bus.dead._admit = admits


class OnNats(OnRedis):
    """The same."""

    def __init__(self, bus):
        self.bus = bus

    async def put(self, number):
        await self.bus.check()
        data = encode(batch_of(number))
        await self.bus.dead.bury(
            shard=7, seq=number, data=data, reason="x", now=1.0, dead_max=1_000
        )


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.service),
        pytest.param("nats", marks=pytest.mark.service),
    ]
)
def graveyard(request):
    if request.param == "redis":
        return OnRedis(request.getfixturevalue("buses")())
    return OnNats(request.getfixturevalue("nats_buses")())


async def pages(dead, *, limit):
    found, after = [], ""
    while page := await dead.letters(after=after, limit=limit):
        found.append([int(one.batch.request_id, 16) for one in page])
        after = page[-1].letter_id
    return found


async def test_a_page_ends_where_it_is_large_enough(graveyard, monkeypatch):
    """But for one letter; nothing is left out, and a smaller limit holds too."""
    for number in range(COUNT):
        await graveyard.put(number)
    dead = graveyard.bus.dead
    assert await pages(dead, limit=500) == [list(range(COUNT))]
    assert await dead.letters(limit=0) == []
    for most in (1, FOUR):
        monkeypatch.setattr(_letter_page, "PAGE_BYTES", most)
        monkeypatch.setattr(_redis_dead, "PAGE_BYTES", most)
        found = await pages(dead, limit=500)
        assert [number for page in found for number in page] == list(range(COUNT))
        assert [len(page) for page in found[:-1]] == [1 if most == 1 else 4] * (len(found) - 1)
        assert max(map(len, await pages(dead, limit=3))) == min(3, len(found[0]))
    # In pages as small as these, all is replayed all the same.
    assert await dead.replay(None) == COUNT
    assert await dead.count() == 0


async def test_a_page_ends_where_it_has_many_samples(graveyard, monkeypatch):
    for number in range(COUNT):
        await graveyard.put(number)
    monkeypatch.setattr(_letter_page, "_PAGE_SAMPLES", 2 * batch_of(0).samples)
    found = await pages(graveyard.bus.dead, limit=500)
    assert found == [[0, 1], [2, 3], [4, 5], [6]]


async def test_a_replay_of_all_ends_although_letters_go_on_coming(graveyard):
    """As where each that is replayed is refused again: those that come behind are for later."""
    for number in range(3):
        await graveyard.put(number)
    coming = iter(range(3, 100))

    async def comes_back():
        await graveyard.put(next(coming))

    graveyard.at_each_replay(comes_back)
    assert await graveyard.bus.dead.replay(None) == 3
    assert await graveyard.bus.dead.count() == 3


def test_a_letter_that_cannot_be_read_counts_by_its_bytes():
    page = LetterPage(limit=10)
    letter = BusDeadLetter(letter_id="1", batch=None, shard=None, reason="x", dead_at=1.0)
    page.add(letter, entry_bytes=_letter_page.PAGE_BYTES - 1)
    assert not page.is_full()
    page.add(letter, entry_bytes=1)
    assert page.is_full()
