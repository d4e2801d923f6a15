"""Two servers on one Redis: a silence is told once, whoever is killed; a token has one meaning."""

import random
import time

import httpx
import pytest
from backends import PROTO, enrol
from world import Mailbox, World, wait_until

from ahwire.agent_pb2 import MetricsBatch

pytestmark = [pytest.mark.fault, pytest.mark.service]
ROUNDS = 3


class Pair:
    """The first server plays the hub; the second one shares its Redis and its hub."""

    def __init__(self, folder, mailbox, redis):
        shared = {"addr": f"127.0.0.1:{redis.port}", "cache_ttl_seconds": 2}
        self.first = World(folder / "first", mailbox, collector_id="first", redis=shared)
        self.first.start_server()
        hub = {"base_url": self.first.url("hub", ""), "token": self.first.hub_token}
        self.second = World(
            folder / "second", mailbox, collector_id="second", redis=shared, hub=hub
        )
        self.second.start_server()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for world in (self.second, self.first):
            world.__exit__()


@pytest.fixture
def pair(tmp_path, private_redis):
    with Mailbox() as mailbox, Pair(tmp_path, mailbox, private_redis) as pair:
        yield pair


def heartbeat(world, token):
    return httpx.post(
        world.url("ingest", "/agent/v1/metrics"),
        content=MetricsBatch(seq=1).SerializeToString(),
        headers={**PROTO, "Authorization": f"Bearer {token}"},
        trust_env=False,
    ).status_code


def test_a_silence_is_told_once_whoever_is_killed(pair, private_redis):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    first, second = pair.first, pair.second
    first.set_up()
    for number in range(1, ROUNDS + 1):
        first.start_agent()
        wait_until("the agent is heard", first.is_heard, seconds=60)
        first.kill_agent()
        # Both look for silence; one of them, or Redis, dies around the moment it is noticed.
        time.sleep(rng.uniform(3.5, 5.5))
        if number % 2:
            second.kill_server()
            second.start_server()
        else:
            private_redis.kill()
            private_redis.start()
        wait_until("the down", lambda: first.events()[-1:] == ["agent.down"], seconds=60)
        wait_until("nothing is under way", lambda: not first.is_heard(), seconds=60)
    time.sleep(2)
    # On a machine that is slow enough an agent falls silent between two rounds too; that is told
    # like any other silence. Told twice, or an up before its down, would break the row.
    events = first.events()
    assert events == ["agent.down", "agent.up"] * (len(events) // 2) + ["agent.down"]
    assert len(events) >= 2 * ROUNDS - 1


def test_what_one_server_revokes_the_other_refuses_within_a_second(pair):
    first, second = pair.first, pair.second
    agent_id, token = enrol(first)
    assert heartbeat(second, token) == 202
    assert heartbeat(second, token) == 202
    reply = httpx.delete(
        first.url("admin", f"/admin/v1/agents/{agent_id}"),
        headers={"Authorization": f"Bearer {first.admin_token}"},
        trust_env=False,
    )
    assert reply.status_code == 200
    began = time.monotonic()
    wait_until("the refusal", lambda: heartbeat(second, token) == 403, seconds=3)
    print("refused after", round(time.monotonic() - began, 3), "s")


def test_an_outage_of_redis_makes_no_token_unknown(pair, private_redis):
    first, second = pair.first, pair.second
    _, token = enrol(first)
    assert heartbeat(second, token) == 202
    private_redis.kill()
    statuses = set()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        statuses |= {heartbeat(first, token), heartbeat(second, token)}
        time.sleep(0.1)
    # The rate of batches may say 429; nobody may say 401 or 403.
    assert statuses <= {202, 429, 503}
    private_redis.start()
    wait_until("it goes on", lambda: heartbeat(second, token) == 202, seconds=30)
