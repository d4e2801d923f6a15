"""Settings of the bus, the worker and the stores: what they mean together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ah_server.errors import SettingsError
from ah_server.settings import Shards, load_settings, settings_from
from ahcollector.bus import SHARDS

REDIS = {"addr": "127.0.0.1:6379"}
NATS = {"url": "nats://127.0.0.1:4222"}
TSDB = {"url": "http://127.0.0.1:8428"}


def problems(data, environment=None):
    with pytest.raises(SettingsError) as caught:
        settings_from(data, environment or {})
    return caught.value.problems


@pytest.mark.parametrize(
    ("data", "backend"),
    [
        ({}, "inproc"),
        ({"tsdb": TSDB}, "inproc"),
        # A worker would write what came by another server into its own embedded store.
        ({"redis": REDIS}, "inproc"),
        ({"redis": REDIS, "tsdb": TSDB}, "redis"),
        ({"redis": REDIS, "tsdb": TSDB, "bus": {"backend": "inproc"}}, "inproc"),
        ({"redis": REDIS, "bus": {"backend": "redis"}}, "redis"),
        ({"nats": NATS, "bus": {"backend": "jetstream"}}, "jetstream"),
        ({"nats": NATS, "redis": REDIS, "bus": {"backend": "redis"}}, "redis"),
    ],
)
def test_auto_shares_the_bus_where_the_store_is_shared(data, backend):
    assert settings_from(data, {}).bus_backend == backend


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"bus": {"backend": "redis"}}, "bus.backend: redis needs redis.addr; set that"),
        ({"bus": {"backend": "jetstream"}}, "bus.backend: jetstream needs nats.url; set that"),
        ({"nats": NATS}, "bus.backend: auto does not use the NATS of nats.url; set it to"),
        ({"nats": {"username": "u"}}, "nats.password: required with nats.username"),
        ({"nats": {"password": "canary"}}, "nats.username: required with nats.password"),
        (
            {"nats": {"username": "u", "password": "canary", "token": "canary"}},
            "nats.token: works only without nats.username and nats.password",
        ),
        (
            {"nats": {"credentials": "/c.creds", "token": "canary"}},
            "nats.credentials: works only without nats.token",
        ),
        ({"nats": {"tls_ca_file": "/ca.pem"}}, "nats.tls_ca_file: works only with nats.tls"),
        ({"nats": {"prefix": "a.b"}}, "expected 1 to 64 letters, digits, _ and - only"),
        (
            {"nats": {"buffer_batches": 64}},
            "nats.buffer_batches: 64 is under nats.buffer_shard_batches (200000)",
        ),
        (
            {"bus": {"claim_idle_seconds": 4, "block_seconds": 2}},
            "bus.claim_idle_seconds: 4 is not over twice bus.block_seconds (2)",
        ),
        (
            {"bus": {"lease_seconds": 4, "block_seconds": 1}},
            "bus.lease_seconds: 4 is not over four times bus.block_seconds (1)",
        ),
        ({"worker": {"shards": "0-31"}}, "worker.shards: 0-31 leaves shards that nobody else"),
        (
            {"worker": {"shards": "0-31"}, "redis": REDIS},
            "worker.shards: 0-31 leaves shards that nobody else",
        ),
        ({"tsdb": {"long_url": "http://h"}}, "tsdb.url: required with tsdb.long_url"),
        ({"tsdb": {**TSDB, "username": "u"}}, "tsdb.password: required with tsdb.username"),
        ({"tsdb": {**TSDB, "password": "p"}}, "tsdb.username: required with tsdb.password"),
        (
            {"tsdb": {**TSDB, "username": "u", "password": "p", "bearer": "b"}},
            "tsdb.bearer: works only without tsdb.username and tsdb.password",
        ),
        ({"tsdb": {"username": "a:b", "password": "p"}}, "tsdb.username: 'a:b' cannot be used"),
        ({"tsdb": {**TSDB, "tls_ca_file": "/ca.pem"}}, "tsdb.tls_ca_file: works only with an"),
        ({"tsdb": {**TSDB, "write_protocol": "influx"}}, "expected one of import, remote_write"),
        (
            {"tsdb": {**TSDB, "retention_days": 7}, "ingest": {"point_age_hours_max": 167}},
            "ingest.point_age_hours_max: 167, and 2 more that a batch may wait on the bus, is over",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_way_out(data, told):
    (found,) = problems(data)
    assert told in found
    assert "canary" not in found


@pytest.mark.parametrize(
    ("data", "example"),
    [
        ({"redis": {"addr": "nowhere"}}, "host:port, as in 127.0.0.1:6379"),
        ({"redis": {"addr": 6379}}, "host:port, as in 127.0.0.1:6379"),
        ({"redis": {"addr": "::1:1"}}, "in brackets, as in [::1]:6379"),
        ({"ingest": {"listen": "::1:1"}}, "in brackets, as in [::1]:8420"),
        ({"tsdb": {"url": "victoria:8428"}}, "with a host, as in http://127.0.0.1:8428"),
        ({"tsdb": {"url": "http://a", "long_url": "b"}}, "as in http://127.0.0.1:8428"),
        ({"hub": {"base_url": "hub"}}, "with a host, as in https://hub.example.com"),
    ],
)
def test_an_example_is_one_of_that_setting(data, example):
    [found] = problems(data)
    assert found.endswith(example)


def test_what_contradicts_itself_is_told_beside_other_problems():
    found = problems(
        {"bus": {"backend": "redis"}, "tsdb": {"retention_days": 0}, "log": {"level": "loud"}}
    )
    names = {one.partition(":")[0] for one in found}
    assert len(found) == 3
    assert names == {"tsdb.retention_days", "log.level", "bus.backend"}


@pytest.mark.parametrize(
    ("data", "environment", "told"),
    [
        ({"bus": {"backend": "redis"}, "redis": {"addr": "nowhere"}}, {}, "redis.addr"),
        ({"bus": {"backend": "redis"}, "redis": {"adr": "a:1"}}, {}, "redis.adr"),
        ({"bus": {"backend": "redis"}, "redis": "a:1"}, {}, "redis"),
        ({"bus": {"backend": "redis"}}, {"AHC_REDIS_ADR": "a:1"}, "AHC_REDIS_ADR"),
        ({"bus": {"backend": "redis"}, "rediss": {"addr": "a:1"}}, {}, "rediss"),
        ({"worker": {"shards": "0-31"}, "redis": {"addr": "nowhere"}}, {}, "redis.addr"),
        ({"worker": {"shards": "0-31"}, "bus": {"backend": "rediss"}}, {}, "bus.backend"),
        ({"tsdb": {"username": "u", "password": 1}}, {}, "tsdb.password"),
    ],
)
def test_what_another_problem_may_mend_is_not_told_as_a_contradiction(data, environment, told):
    [found] = problems(data, environment)
    assert found.startswith(f"{told}: ")


def test_what_is_read_from_a_file_is_read_from_variables(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text(
        "redis: {addr: '127.0.0.1:6379'}\n"
        "bus: {backend: redis, block_seconds: 0.2, lease_seconds: 3, claim_idle_seconds: 5}\n"
        "worker: {shards: [1, 2, 3, 40-63]}\n"
        "tsdb: {url: 'https://tsdb.example', username: u, password: p, retry_max_seconds: 20}"
    )
    variables = {
        "AHC_REDIS_ADDR": "127.0.0.1:6379",
        "AHC_BUS_BACKEND": "redis",
        "AHC_BUS_BLOCK_SECONDS": "0.2",
        "AHC_BUS_LEASE_SECONDS": "3",
        "AHC_BUS_CLAIM_IDLE_SECONDS": "5",
        "AHC_WORKER_SHARDS": "1-3,40-63",
        "AHC_TSDB_URL": "https://tsdb.example",
        "AHC_TSDB_USERNAME": "u",
        "AHC_TSDB_PASSWORD": "p",
        "AHC_TSDB_RETRY_MAX_SECONDS": "20",
    }
    assert load_settings(path, {}) == settings_from({}, variables)


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:4222", "http://h:4222", "nats://h", "nats://h:0", "nats://h:1/", "nats://"),
        *("nats://h:1,", "nats://h:1,,nats://h:2", "nats://h:1 ,nats://h:2", "nats://h:1?a"),
        *("nats://u:canary@h:1", "nats://h:99999", "nats://[::1:1", "nats://h:1,h:2"),
    ],
)
def test_what_is_no_address_of_nats_is_refused_without_a_login(url):
    (found,) = problems({"nats": {"url": url}, "bus": {"backend": "jetstream"}})
    assert found.startswith("nats.url: ")
    assert "canary" not in found
    assert len(found) < 300


@given(numbers=st.sets(st.integers(0, SHARDS - 1), min_size=1))
def test_shards_are_read_as_they_are_written(numbers):
    shards = Shards(tuple(sorted(numbers)))
    assert Shards.parse(str(shards)) == shards
    data = {"worker": {"shards": sorted(numbers)}, "redis": REDIS, "bus": {"backend": "redis"}}
    assert settings_from(data, {}).worker.shards == shards


def test_all_shards_are_all():
    assert settings_from({}, {}).worker.shards == Shards.parse("0-63") == Shards.every()


NO_SHARDS = [
    *("", "64", "-1", "3-1", "0-", "1,,2", "one", "0-9999", "1" * 5000, "0," * 1000 + "0", "٣"),
    *(1.5, True, [[]], [None], {}, 10**5000, -1),
]


@pytest.mark.parametrize("given", NO_SHARDS, ids=lambda value: type(value).__name__)
def test_what_are_no_shards_is_refused_in_a_short_sentence(given):
    (found,) = problems({"worker": {"shards": given}})
    assert found.startswith("worker.shards: ")
    assert "0-31,40" in found
    assert len(found) < 300
