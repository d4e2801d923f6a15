"""The detector's turn on a real Redis."""

import time
import uuid

import anyio
import pytest

from ahcollector.detector.redis import RedisDetectorTurn
from ahcollector.errors import AlertStateError
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.testing import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.service]


@pytest.fixture
async def turns(redis_server, anyio_backend):
    """Make turns that share one Redis: `turns(lease_seconds=…)`."""
    prefix, clients = f"test-{uuid.uuid4().hex}:", []

    def make(port=redis_server.port, **settings):
        client = RedisClient(config=RedisConfig(port=port, prefix=prefix, timeout_seconds=1.0))
        clients.append(client)
        return RedisDetectorTurn(client=client, **settings)

    yield make
    for client in clients:
        await client.aclose()


async def test_one_has_it_until_it_gives_it_up(turns):
    first, second = turns(), turns()
    tenure = await first.hold()
    assert tenure is not None
    assert await second.hold() is None
    assert await first.hold() == tenure
    await first.drop()
    assert await second.hold() is not None
    assert await first.hold() is None
    await first.drop()  # which is not its own any more
    assert await first.hold() is None


async def test_another_has_it_within_the_lease_of_one_that_shows_no_life(turns):
    first, second = turns(lease_seconds=0.3), turns(lease_seconds=0.3)
    before = await first.hold()
    began = time.monotonic()
    with anyio.fail_after(5):
        while await second.hold() is None:
            await anyio.sleep(0.01)
    assert 0.2 < time.monotonic() - began < 1.3
    assert await first.hold() is None
    await second.drop()
    assert await first.hold() > before, "another tenure: somebody had it in between"


async def test_a_tenure_lasts_while_it_is_renewed(turns):
    turn = turns(lease_seconds=0.3)
    tenure = await turn.hold()
    for _ in range(12):
        await anyio.sleep(0.05)
        assert await turn.hold() == tenure


async def test_a_tenure_that_was_over_is_another_one_though_nobody_had_it(turns):
    turn = turns(lease_seconds=0.1)
    tenure = await turn.hold()
    await anyio.sleep(0.2)
    assert await turn.hold() == tenure + 1


async def test_without_redis_it_is_held_until_it_is_over(turns, private_redis):
    clock = FakeClock()
    turn = turns(private_redis.port, lease_seconds=15.0, clock=clock)
    tenure = await turn.hold()
    private_redis.kill()
    clock.advance(6.0)
    assert await turn.hold() == tenure
    clock.advance(9.1)
    with pytest.raises(AlertStateError, match=r"whose turn .* Redis"):
        await turn.hold()
    private_redis.start()


async def test_a_lease_under_a_tenth_of_a_second_is_refused(turns):
    with pytest.raises(ValueError, match=r"lease_seconds is 0\.05; it must be at least 0\.1"):
        turns(lease_seconds=0.05)
