"""What an agent was told is accepted is stored, whoever is killed in the next moment."""

import random
import time

import pytest
from backends import Sender, on, stored
from world import Mailbox, World, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.service]


@pytest.fixture
def store(start_service):
    from testkit import VictoriaMetricsServer

    return start_service(VictoriaMetricsServer)


def shared_by(bus, redis, store, start_service):
    """What `on` is told: who may send is in Redis either way."""
    from testkit import NatsServer

    made = {"redis": redis, "victoria_metrics": store}
    return made if bus == "redis" else {**made, "nats": start_service(NatsServer)}


def all_stored(sender, store):
    found = stored(store)
    return sender.taken.items() <= found.items() and found.keys() <= {
        *sender.taken,
        *sender.unknown,
    }


@pytest.mark.parametrize("bus", ["redis", "jetstream"])
def test_a_server_killed_behind_its_answer_loses_nothing(
    tmp_path, private_redis, store, start_service, bus
):
    """The bus keeps what a worker had in its hands, and the next server writes it."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    shared = shared_by(bus, private_redis, store, start_service)
    with Mailbox() as mailbox, World(tmp_path, mailbox, **on(**shared)) as world:
        world.start_server()
        sender = Sender.enrolled(world)
        for number in range(8):
            assert sender.send(float(number), 2.0) in (202, 429)
        time.sleep(random.Random(seed).uniform(0, 0.6))
        world.kill_server()
        world.start_server()
        wait_until("all is stored", lambda: all_stored(sender, store), seconds=60)
        assert len(sender.taken) >= 10


@pytest.mark.parametrize("bus", ["redis", pytest.param("jetstream", marks=pytest.mark.nightly)])
def test_the_other_server_writes_what_a_killed_one_had_taken(
    tmp_path, private_redis, store, start_service, bus
):
    """Its shards go to the other one after a lease."""
    shared = shared_by(bus, private_redis, store, start_service)
    with (
        Mailbox() as mailbox,
        World(tmp_path / "a", mailbox, **on(**shared, collector_id="a")) as first,
    ):
        first.start_server()
        sender = Sender.enrolled(first)
        with World(
            tmp_path / "b", mailbox, **on(**shared, collector_id="b", hub_of=first)
        ) as second:
            second.start_server()
            for number in range(7):
                assert sender.send(float(number), to=(second, first)[number % 2]) == 202
            second.kill_server()
            wait_until("all is stored", lambda: all_stored(sender, store), seconds=60)
        assert len(sender.taken) == 7
