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


def all_stored(sender, store):
    found = stored(store)
    return sender.taken.items() <= found.items() and found.keys() <= {
        *sender.taken,
        *sender.unknown,
    }


def test_a_server_killed_behind_its_answer_loses_nothing_of_the_bus_on_redis(
    tmp_path, private_redis, store
):
    """The bus keeps what a worker had in its hands, and the next server writes it."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    with (
        Mailbox() as mailbox,
        World(tmp_path, mailbox, **on(redis=private_redis, victoria_metrics=store)) as world,
    ):
        world.start_server()
        sender = Sender.enrolled(world)
        for number in range(2):
            for _ in range(5):
                assert sender.send(1.0 * number, 2.0) in (202, 429)
            time.sleep(rng.uniform(0, 0.6))
            world.kill_server()
            world.start_server()
        wait_until("all is stored", lambda: all_stored(sender, store), seconds=30)
        assert len(sender.taken) >= 10


def test_the_other_server_writes_what_a_killed_one_had_taken(tmp_path, private_redis, store):
    """Its shards go to the other one after a lease."""
    shared = {"redis": private_redis, "victoria_metrics": store}
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
            assert sender.send(1.0, to=second) == 202
            for number in range(6):
                assert sender.send(float(number), to=(first, second)[number % 2]) == 202
            second.kill_server()
            wait_until("all is stored", lambda: all_stored(sender, store), seconds=30)
            first.stop_server()
        first.start_server()
        assert sender.send(7.0) == 202
        wait_until("all is stored", lambda: all_stored(sender, store), seconds=30)
        assert len(sender.taken) == 8
