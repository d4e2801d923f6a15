"""What is set reaches the part that it is for."""

import attrs
import pytest

from ah_server.settings import setting_lines, settings_from
from ah_server.wiring._door import _limits
from ah_server.wiring._redis import redis_config
from ahcollector.ingest import IngestLimits

#: Settings of the ingest door that are no limits.
ELSEWHERE = {"listen", "public_url", "tls_cert", "tls_key", "trusted_proxies"}
LIMITS = [
    line
    for line in setting_lines()
    if line.name.startswith("ingest.") and line.name.removeprefix("ingest.") not in ELSEWHERE
]


def test_nothing_set_means_the_limits_of_the_protocol():
    assert _limits(settings_from({}, {})) == IngestLimits()


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
        flat(_limits(settings_from({"ingest": one}, {}))) for one in ({}, {leaf: number})
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
