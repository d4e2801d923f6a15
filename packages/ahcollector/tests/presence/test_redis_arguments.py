"""What is refused without a Redis: settings that make no sense, and a ledger that is never free."""

import pytest

from ahcollector.errors import PresenceError
from ahcollector.presence._shared_beacons import RedisBeacons
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig, Script

pytestmark = pytest.mark.anyio
T0 = 1_700_000_000.0


@pytest.mark.parametrize("items", [0, -1, 1_001])
async def test_a_group_of_contacts_that_no_script_can_take_is_refused(items):
    client = RedisClient(config=RedisConfig(port=1))
    with pytest.raises(ValueError, match=f"touch_items_max is {items}"):
        RedisPresence(client=client, event_ids=str, touch_items_max=items)
    await client.aclose()


class NeverFree:
    """A ledger that somebody else has always just written."""

    def __init__(self, tries):
        self.tries = tries

    async def call(self, *command):
        return None

    async def run(self, script, *, keys, args):
        self.tries -= 1
        return int(self.tries <= 0)


def beacons(client):
    swap = Script.of("swap", "return 0")
    return RedisBeacons(client=client, key="k", swap=swap, life="l", name="n", max_age_seconds=15.0)


async def test_a_ledger_that_others_write_meanwhile_is_tried_again():
    client = NeverFree(tries=20)
    await beacons(client).write(T0)
    assert client.tries == 0


async def test_a_ledger_that_is_never_free_is_an_error_in_bounded_time():
    client = NeverFree(tries=1_000)
    with pytest.raises(PresenceError, match="20 times"):
        await beacons(client).write(T0)
    assert client.tries == 980
