"""A server that is started while Redis is full or hangs: it answers, and it can be stopped."""

import time
from contextlib import contextmanager

import httpx
import pytest
import redis
from backends import Sender
from world import DOORS, Mailbox, World, wait_until

from testkit import NatsServer, RedisServer, VictoriaMetricsServer

pytestmark = [pytest.mark.fault, pytest.mark.service]

#: What a container's runtime waits for by default before it kills.
STOP_SECONDS_MAX = 10.0


@pytest.fixture
def world(tmp_path, private_redis):
    with (
        Mailbox() as mailbox,
        World(tmp_path, mailbox, redis={"addr": f"127.0.0.1:{private_redis.port}"}) as world,
    ):
        yield world


@pytest.fixture
def full(private_redis):
    with redis.Redis(port=private_redis.port) as client:
        client.config_set("maxmemory", "1")
        yield client


@pytest.fixture
def hanging(private_redis):
    private_redis.pause()
    yield private_redis
    private_redis.resume()


def answer(world, door, path, method="GET"):
    return httpx.request(method, world.url(door, path), trust_env=False, timeout=2)


def answers(world):
    try:
        return answer(world, "ingest", "/healthz").status_code
    except httpx.TransportError:
        return None


def stopped(world):
    began = time.monotonic()
    world.stop_server()
    return time.monotonic() - began


def looked_at_while_it_waits(world):
    """Starts the server, and looks at what all doors answer before it is ready."""
    world.begin_server()
    wait_until("somebody answers", lambda: answers(world), seconds=20)
    for door in DOORS:
        assert answer(world, door, "/healthz").status_code == 200, door
        ready = answer(world, door, "/readyz")
        assert ready.status_code == 503, door
        assert ready.json()["status"] == "not ready"
        for path in ("/", "/agent/v1/ping", "/admin/v1/companies", "/metrics"):
            refused = answer(world, door, path)
            assert refused.status_code == 503, (door, path)
            assert int(refused.headers["Retry-After"]) > 0
            assert refused.headers["X-AH-Code"] == "unavailable"
            assert refused.json()["code"] == "unavailable"
    sent = httpx.post(
        world.url("ingest", "/agent/v1/metrics"), content=b"x" * 900_000, trust_env=False
    )
    assert sent.status_code == 503


def why(world):
    return answer(world, "admin", "/readyz").json()["checks"]["redis"]


def test_started_while_redis_is_full_it_says_so_and_serves_once_it_is_not(world, full):
    """B2-16: doors that accept and never answer, probes included."""
    looked_at_while_it_waits(world)
    wait_until("the cause is named", lambda: "maxmemory" in why(world), seconds=20)
    full.config_set("maxmemory", "0")
    wait_until(
        "it is ready", lambda: answer(world, "admin", "/readyz").status_code == 200, seconds=20
    )
    wait_until("agents may come", world._is_up, seconds=20)
    assert stopped(world) < STOP_SECONDS_MAX


def test_started_while_redis_is_full_it_can_be_stopped(world, full):
    """B2-16: it is stopped in the midst of waiting."""
    looked_at_while_it_waits(world)
    assert stopped(world) < STOP_SECONDS_MAX / 2


def test_started_while_redis_hangs_it_answers_and_can_be_stopped(world, hanging):
    """B2-16: the same for a Redis that takes connections and answers nothing."""
    looked_at_while_it_waits(world)
    wait_until("the cause is named", lambda: "gave no answer" in why(world), seconds=20)
    assert stopped(world) < STOP_SECONDS_MAX / 2


#: What `/readyz` calls a service, what makes it, and the settings that name it.
SERVICES = {
    "redis": (RedisServer, lambda one: {"redis": {"addr": f"127.0.0.1:{one.port}"}}),
    "tsdb": (VictoriaMetricsServer, lambda one: {"tsdb": {"url": one.url} | KEPT}),
    "bus": (
        NatsServer,
        lambda one: {
            "bus": {"backend": "jetstream"},
            "nats": {"url": one.url, "buffer_bytes": 64 << 20},
        },
    ),
}
#: testkit starts it to keep samples for 100 years.
KEPT = {"retention_days": 36_500}


def with_services(folder, mailbox, start_service, *names):
    services, settings = {}, {}
    for name in names:
        make, named = SERVICES[name]
        services[name] = start_service(make)
        settings |= named(services[name])
    return services, World(folder, mailbox, **settings)


@contextmanager
def paused(service):
    service.pause()
    try:
        yield
    finally:
        service.resume()


def names(world, service):
    ready = answer(world, "ingest", "/readyz")
    checks = ready.json()["checks"]
    assert ready.status_code == 503
    return checks.get(service, "ok") != "ok" and service in checks["start"]


@pytest.mark.parametrize("name", ["tsdb", "bus"])
def test_started_while_another_service_hangs_it_names_it_and_can_be_stopped(
    tmp_path, start_service, name
):
    """B2-16, the same kind: VictoriaMetrics and NATS are waited for too."""
    with Mailbox() as mailbox:
        services, world = with_services(tmp_path, mailbox, start_service, name)
        with world, paused(services[name]):
            world.begin_server()
            wait_until("somebody answers", lambda: answers(world), seconds=20)
            wait_until("it is named", lambda: names(world, name), seconds=20)
            assert answer(world, "ingest", "/agent/v1/ping").status_code == 503
            assert stopped(world) < STOP_SECONDS_MAX / 2


@pytest.mark.parametrize(
    ("names", "hanging_one"),
    [
        (("redis", "tsdb"), "redis"),
        (("redis", "tsdb"), "tsdb"),
        (("redis", "tsdb", "bus"), "redis"),
        (("redis", "tsdb", "bus"), "bus"),
    ],
)
def test_stopped_while_a_service_hangs_it_ends_in_time(tmp_path, start_service, names, hanging_one):
    """B2, observed: SIGTERM while Redis hangs took 14 s, while VictoriaMetrics does 11 s."""
    with Mailbox() as mailbox:
        services, world = with_services(tmp_path, mailbox, start_service, *names)
        with world:
            world.start_server()
            sender = Sender.enrolled(world)
            assert sender.send(1.0) == 202
            with paused(services[hanging_one]):
                for value in (2.0, 3.0, 4.0):
                    sender.send(value)
                    time.sleep(0.3)
                assert stopped(world) < STOP_SECONDS_MAX
