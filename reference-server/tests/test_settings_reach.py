"""What is set reaches the part that it is for."""

from contextlib import AsyncExitStack

import attrs
import pytest

from ah_server.settings import setting_lines, settings_from
from ah_server.wiring import Seams
from ah_server.wiring._carrier import Carrier
from ah_server.wiring._jetstream import nats_config
from ah_server.wiring._limits import ingest_limits
from ah_server.wiring._redis import redis_config
from ah_server.wiring._samples import Samples, samples_of
from ah_server.wiring._stream import carrier_of, worker_of
from ahcollector.bus import InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.ingest import IngestLimits
from ahcollector.metrics import PrometheusMetrics
from ahcollector.redis import RedisClient
from ahcollector.store import MemoryStore
from ahcollector.worker import MemoryDeadBatches

#: Settings of the ingest door that are no limits.
ELSEWHERE = {"listen", "public_url", "tls_cert", "tls_key", "trusted_proxies"}
LIMITS = [
    line
    for line in setting_lines()
    if line.name.startswith("ingest.") and line.name.removeprefix("ingest.") not in ELSEWHERE
]


def test_nothing_set_means_the_limits_of_the_protocol():
    assert ingest_limits(settings_from({}, {})) == IngestLimits()


def flat(limits):
    """Every limit by its name, those of a batch too."""
    fields = attrs.asdict(limits)
    return {**fields.pop("batch"), **fields}


def words(name):
    return set(name.replace("hours", "seconds").split("_")) - {"max"}


@pytest.mark.parametrize("line", LIMITS, ids=lambda line: line.name)
def test_every_limit_that_is_set_is_the_doors_limit(line):
    least, _ = line.allowed.split(" to ")
    value = (
        float(line.default) - 1
        if float(line.default) - 1 > float(least)
        else float(line.default) + 1
    )
    number = int(value) if "." not in line.default else value
    leaf = line.name.removeprefix("ingest.")
    before, after = (
        flat(ingest_limits(settings_from({"ingest": one}, {}))) for one in ({}, {leaf: number})
    )
    (changed,) = [name for name in before if before[name] != after[name]]
    assert after[changed] == number * (3600 if "hours" in leaf else 1)
    assert words(changed) == words(leaf)


REDIS = {
    "addr": "[::1]:6380",
    "username": "ah",
    "password": "canary",
    "prefix": "{test}:",
    "db": 3,
    "tls": True,
    "tls_ca_file": "/ca.pem",
    "timeout_seconds": 1.5,
}
#: It is of the registry's cache.
NOT_OF_THE_CLIENT = {"cache_ttl_seconds"}


def test_every_setting_of_redis_is_the_clients():
    known = {one.name.partition(".")[2] for one in setting_lines() if one.name.startswith("redis.")}
    assert known == REDIS.keys() | NOT_OF_THE_CLIENT
    settings = settings_from({"redis": REDIS}, {}).redis
    config = attrs.asdict(redis_config(settings, settings.addr))
    config["addr"] = f"[{config.pop('host')}]:{config.pop('port')}"
    config["tls_ca_file"] = str(config["tls_ca_file"])
    assert {name: config[name] for name in REDIS} == REDIS


class MadeError(Exception):
    """What a part was given."""

    def __init__(self, given):
        super().__init__("made")
        self.given = given


@pytest.fixture
def given_to(monkeypatch):
    """What a maker gives to the part of a name: `await given_to("ah_server.….Part", maker)`."""

    async def find(name, make):
        def part(**given):
            raise MadeError(given)

        monkeypatch.setattr(name, part)
        with pytest.raises(MadeError) as made:
            await make()
        return made.value.given

    return find


def names_of(section):
    lines = (one.name.partition(".") for one in setting_lines())
    return {leaf for first, _, leaf in lines if first == section}


TSDB = {
    "url": "https://tsdb.example:8428/a",
    "long_url": "https://long.example",
    "write_protocol": "remote_write",
    "username": "ah",
    "password": "canary",
    "tls_ca_file": "/ca.pem",
    "timeout_seconds": 3.0,
}
#: Of the worker, by its own names.
OF_THE_WORKER = {
    "max_batch_samples": ("flush_samples", 11),
    "max_batch_wait_seconds": ("flush_seconds", 0.7),
    "retry_max_seconds": ("retry_max_seconds", 7.0),
    "durable_after_seconds": ("durable_after_seconds", 8.0),
}


@pytest.mark.anyio
async def test_every_setting_of_tsdb_is_the_clients_or_the_workers(given_to):
    async def client(tsdb):
        async with AsyncExitStack() as stack:
            settings = settings_from({"tsdb": tsdb}, {})
            return await samples_of(settings, Seams(), PrometheusMetrics(), stack)

    name = "ah_server.wiring._samples.VictoriaMetricsStore"
    given = await given_to(name, lambda: client({**TSDB, "retention_days": 40}))
    assert {**given, "tls_ca_file": str(given["tls_ca_file"])}.items() >= TSDB.items()
    assert given["retention_seconds"] == 40 * 86_400
    given = await given_to(name, lambda: client({"url": "http://h", "bearer": "canary"}))
    assert given["bearer"] == "canary"
    assert given["long_url"] is None
    assert names_of("tsdb") == {*TSDB, *OF_THE_WORKER, "retention_days", "bearer"}


BUS = {
    "readers": 3,
    "block_seconds": 0.2,
    "lease_seconds": 7.0,
    "claim_idle_seconds": 9.0,
    "dead_max": 5,
}


@pytest.mark.anyio
@pytest.mark.parametrize(("backend", "part"), [("redis", "RedisBus"), ("inproc", "InProcessBus")])
async def test_every_setting_of_the_bus_is_a_buses(given_to, backend, part):
    bus = {**BUS, "queue_per_shard": 9, "backend": backend}
    settings = settings_from({"redis": {"addr": "127.0.0.1:1"}, "bus": bus}, {})
    redis = RedisClient(config=redis_config(settings.redis, settings.redis.addr))

    async def made():
        async with AsyncExitStack() as stack:
            stack.push_async_callback(redis.aclose)
            return await carrier_of(settings, Seams(), PrometheusMetrics(), redis, stack)

    given = await given_to(f"ah_server.wiring._stream.{part}", made)
    assert given["queue_batches_max"] == 9
    assert given["dead_max"] == 5
    if backend == "redis":
        assert given.items() >= BUS.items()
    assert names_of("bus") == {*bus, "entry_bytes_max"}


NATS = {
    "username": "ah",
    "password": "canary",
    "prefix": "test",
    "tls": True,
    "tls_ca_file": "/ca.pem",
    "timeout_seconds": 1.5,
}
BUFFER = {"buffer_bytes": 1 << 27, "buffer_batches": 300_000, "buffer_shard_batches": 7}


@pytest.mark.anyio
async def test_every_setting_of_nats_is_the_clients_or_the_buses(given_to):
    url = {"url": "nats://a:1,nats://b:2"}
    bus = {"backend": "jetstream", "lease_seconds": 7, "dead_max": 5, "entry_bytes_max": 5000}
    data = {"nats": {**url, **NATS, **BUFFER, "replicas": 3}, "bus": bus}
    settings = settings_from(data, {})
    config = attrs.asdict(nats_config(settings.nats))
    assert {**config, "tls_ca_file": str(config["tls_ca_file"])}.items() >= NATS.items()
    assert config["servers"] == ("nats://a:1", "nats://b:2")
    for name, field in (("token", "token"), ("credentials", "credentials_file")):
        other = settings_from({"nats": {name: "/canary"}}, {}).nats
        assert str(getattr(nats_config(other), field)) == "/canary"

    async def made():
        async with AsyncExitStack() as stack:
            return await carrier_of(settings, Seams(), PrometheusMetrics(), None, stack)

    given = await given_to("ah_server.wiring._jetstream.JetStreamBus", made)
    size = given["size"]
    assert (size.bytes_max, size.batches_max, size.shard_batches_max) == tuple(BUFFER.values())
    assert size.seconds == 7200
    expected = {"lease_seconds": 7, "dead_max": 5, "entry_bytes_max": 5000, "replicas": 3}
    assert given.items() >= expected.items()
    assert names_of("nats") == {"url", "token", "credentials", "replicas", *NATS, *BUFFER}


@pytest.mark.anyio
async def test_every_setting_of_the_worker_is_the_workers(given_to):
    settings = settings_from(
        {
            "redis": {"addr": "127.0.0.1:1"},
            "bus": {"backend": "redis"},
            "tsdb": {"url": "http://h", **{name: one for name, (_, one) in OF_THE_WORKER.items()}},
            "worker": {"shards": "0-2", "shutdown_flush_seconds": 3},
        },
        {},
    )
    store = MemoryStore(clock=SystemClock())
    restarts = object()
    samples = Samples(
        store=store,
        deleter=store,
        shared=True,
        restarts=restarts,
        step_seconds_min=30,
        found="",
        loops=(),
    )
    bus = InProcessBus(clock=SystemClock())
    carrier = Carrier(bus=bus, dead=bus.dead, ping=None, found="")

    async def made(samples=samples):
        worker_of(
            settings,
            Seams(),
            PrometheusMetrics(),
            carrier=carrier,
            samples=samples,
            observer=object(),
            sieve=object(),
            dead_batches=MemoryDeadBatches(),
        )

    given = await given_to("ah_server.wiring._stream.Worker", made)
    expected = dict(OF_THE_WORKER.values()) | {"shards": (0, 1, 2), "shutdown_flush_seconds": 3.0}
    assert given.items() >= expected.items()
    assert given["restarts"] is restarts
    assert names_of("worker") == {"shards", "shutdown_flush_seconds"}
    kept = attrs.evolve(samples, restarts=None)
    given = await given_to("ah_server.wiring._stream.Worker", lambda: made(kept))
    assert given["durable_after_seconds"] == 0
