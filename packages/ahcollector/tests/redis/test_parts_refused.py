"""Every part that keeps state in Redis, over one that answers and refuses what is written.

Whichever part it is, its error names Redis' word and the way out, and tells nobody to repair a key.
"""

import itertools
import uuid

import pytest

from ahcollector.alerts import AlertChange, UnitKey
from ahcollector.alerts.redis import RedisAlertStateStore, RedisKeptLists
from ahcollector.budget import SeriesChange, Window
from ahcollector.budget.redis import RedisBudgetStore
from ahcollector.bus._streams import ShardStreams
from ahcollector.departures import Departure
from ahcollector.departures.redis import RedisDepartures
from ahcollector.detector.redis import RedisDetectorTurn
from ahcollector.errors import BusError, CollectorError, PresenceDamagedError
from ahcollector.outbox.redis import RedisLease, RedisOutbox
from ahcollector.presence import AgentRef
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry.redis import RedisRegistry
from ahcollector.testing._contracts.dead_batches import _small
from ahcollector.testing._contracts.outbox import event
from ahcollector.testing._contracts.registry import _record
from ahcollector.worker.redis import RedisDeadBatches

pytestmark = [pytest.mark.service, pytest.mark.anyio, pytest.mark.fault]

NOW = 1_790_000_000.0
STATES = {
    "OOM": (("maxmemory", "1"), "raise maxmemory"),
    "NOREPLICAS": (("min-replicas-to-write", "1"), "lower min-replicas-to-write"),
    "READONLY": (("replica-read-only", "yes"), "name its master"),
}


@pytest.fixture
async def client(private_redis, anyio_backend):
    prefix = f"test-{uuid.uuid4().hex}:"
    config = RedisConfig(port=private_redis.port, prefix=prefix, timeout_seconds=5)
    client = RedisClient(config=config)
    yield client
    await client.aclose()


LEASES = {"outbox lease", "turn"}
SOME = {"presence touch", "alerts lists", "outbox append", "bus publish", "bus publish many"}


def writes(client, number):
    """What each part writes, by name; for another number it is something else."""
    numbers = itertools.count(1)
    presence = RedisPresence(
        client=client, event_ids=lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"
    )
    agent = AgentRef(agent_id="a", company_id="acme", server_id="web-1")
    series = SeriesChange(
        agent_id="a",
        window=Window(start=NOW, first=True, begun=1),
        begun=1,
        hours={b"%016d" % number: 1},
    )
    left = Departure(company_id="acme", server_id="web-1", at=NOW + number, keeps_series=True)
    outbox, lease = RedisOutbox(client=client), RedisLease(client=client)
    streams = ShardStreams(client=client)
    dead, budget = RedisDeadBatches(client=client), RedisBudgetStore(client=client)
    return {
        "presence touch": lambda: presence.touch(agent, NOW + number, 30.0),
        "presence beacon": lambda: presence.beacon(NOW),
        "registry": lambda: RedisRegistry(client=client).put(_record(version=number), now=NOW),
        "registry cursor": lambda: RedisRegistry(client=client).set_cursor("1"),
        "alerts": lambda: _kept(RedisAlertStateStore(client=client)),
        "alerts lists": lambda: RedisKeptLists(client=client).save("rules", []),
        "outbox append": lambda: outbox.append([event(number)], NOW),
        "outbox ack": lambda: outbox.ack([event(1).event_id], None),
        "outbox lease": lease.hold,
        "budget": lambda: budget.take([series], now=NOW),
        "departures": lambda: RedisDepartures(client=client).note(left),
        "turn": RedisDetectorTurn(client=client).hold,
        "bus publish": lambda: streams.add([(3, b"entry")]),
        "bus publish many": lambda: _first_of(streams.add([(3, b"entry"), (4, b"entry")])),
        "bus take": lambda: streams.take("worker", [3], lease_ms=1_000),
        "dead batches": lambda: dead.put(_small(number), "refused", NOW),
    }


async def _kept(store):
    key = UnitKey(shard=3, company_id="acme")
    image = await store.claim(key)
    await store.commit(key, image.epoch, AlertChange(seq=1, base={"rules": "r"}))


async def _first_of(adding):
    failures = await adding
    for error in failures.values():
        assert isinstance(error, BusError)
        raise error


@pytest.mark.parametrize("code", STATES)
async def test_every_part_names_the_cause_and_the_way_out_and_blames_no_key(client, code):
    # Keys are there, as they are where it happens.
    for part, write in writes(client, 1).items():
        if part not in LEASES:
            await write()
    (name, value), way_out = STATES[code]
    if code == "READONLY":
        await client.call("REPLICAOF", "127.0.0.1", "1")
    await client.call("CONFIG", "SET", name, value)
    told = {}
    for part, write in writes(client, 2).items():
        try:
            await write()
        except PresenceDamagedError as error:
            pytest.fail(f"{part}: {error}")
        except CollectorError as error:
            told[part] = str(error)
    # The others may find nothing to write, or free memory first.
    assert set(told) >= SOME
    for part, text in told.items():
        assert code in text, part
        assert way_out in text, part
        assert "RENAME" not in text, part
        assert "delete" not in text, part


@pytest.mark.parametrize("right", ["-hmget", "-xpending"])
async def test_a_right_that_is_taken_away_makes_nothing_damaged_or_gone(
    client, private_redis, right
):
    """A letter that may not be read is not set aside, and a group that may not be asked is kept."""
    dead = RedisDeadBatches(client=client)
    await dead.put(_small(1), "refused", NOW)
    [letter] = await dead.letters()
    streams = ShardStreams(client=client)
    [taken] = await streams.take("worker", [3], lease_ms=60_000)
    await client.call("ACL", "SETUSER", "lim", "reset", "on", ">pw", "~*", "&*", "+@all", right)
    config = RedisConfig(
        port=private_redis.port,
        prefix=client.prefix,
        username="lim",
        password="pw",
    )
    limited = RedisClient(config=config)
    if right == "-hmget":
        with pytest.raises(CollectorError, match="rights of this user"):
            await RedisDeadBatches(client=limited).purge(None)
        assert await dead.read(letter.letter_id) is not None
    else:
        with pytest.raises(BusError, match="rights of this user"):
            await ShardStreams(client=limited).look(
                "worker", wants=[3], lease_ms=60_000, held={3: taken.lease}
            )
        with pytest.raises(BusError, match="rights of this user"):
            await ShardStreams(client=limited).take("worker", [4], lease_ms=60_000)
    look = await streams.look("worker", wants=[3], lease_ms=60_000, held={3: taken.lease})
    assert (look.lost, look.strange) == (frozenset(), ())
    await limited.aclose()
