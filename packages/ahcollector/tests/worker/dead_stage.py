"""What the tests of dead batches in Redis share."""

import uuid

from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker.redis import RedisDeadBatches

T0 = 1_790_000_000.0


def fresh_prefix():
    return f"{uuid.uuid4().hex}:"


def client_of(port, prefix=None, **more):
    settings = {"timeout_seconds": 5.0} | more
    return RedisClient(config=RedisConfig(port=port, prefix=prefix or fresh_prefix(), **settings))


async def put(dead, *numbers, now=T0):
    for number in numbers:
        await dead.put(batch_of(number), f"no {number}", now)


async def numbers(dead):
    """The numbers of all batches, each read; what cannot be read is None."""
    batches = [await dead.read(letter.letter_id) for letter in await dead.letters(limit=10_000)]
    return [batch if batch is None else int(batch.request_id, 16) for batch in batches]


async def check_whole(client):
    """Fail unless the keys agree with each other: order, letters, fingerprints, bytes."""
    dead = RedisDeadBatches(client=client)
    letters = await dead.letters(limit=100_000)
    assert dead.damaged == 0
    ids = {letter.letter_id.encode() for letter in letters}
    state = client.key("wk", "dead", "state")
    assert int(await client.call("HGET", state, "bytes") or 0) == sum(
        letter.size_bytes for letter in letters
    )
    index = await client.call("HVALS", client.key("wk", "dead", "by"))
    assert sorted(index) == sorted(ids)
    hashes = await client.call("KEYS", client.key("wk", "dead", "l", "*"))
    assert {key.rpartition(b":")[2] for key in hashes} == ids
    assert all([await dead.read(letter.letter_id) for letter in letters])
