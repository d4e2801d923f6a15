"""Settings of what samples and state are kept in: Redis, the bus, the worker, the two stores."""

from pathlib import Path

import attrs

from ah_server.settings._checks import (
    check_key_prefix,
    check_nats_prefix,
    check_nats_urls,
    check_service_address,
    check_store_url,
    check_token,
    check_user_name,
)
from ah_server.settings._fields import NO_SECRET, Address, Secret, Shards, setting
from ahcollector.bus.base import SHARDS

HELD_HOURS_MAX = 2
"""So long a shared bus is meant to carry batches while the store is away."""


@attrs.frozen(kw_only=True)
class RedisSettings:
    """Where state that several processes share is kept; without `addr` there is none."""

    addr: Address | None = setting(
        None,
        "host:port of the Redis that holds the shared state; empty: everything embedded",
        check=check_service_address,
    )
    username: str = setting("", "login name; empty: Redis' default user")
    password: Secret = setting(NO_SECRET, "login password; empty: none")
    prefix: str = setting(
        "ah:",
        "what every key begins with; with Redis Cluster it holds a hash tag, as in {ah}:",
        check=check_key_prefix,
    )
    db: int = setting(0, "number of the database; Redis Cluster has 0 only", between=(0, 1023))
    tls: bool = setting(default=False, doc="whether the connection is TLS")
    tls_ca_file: Path | None = setting(
        None, "PEM certificates that Redis is checked against; empty: the system's"
    )
    cache_ttl_seconds: float = setting(
        15.0,
        "a token looked up is known at this process so long; a revocation whose push was lost"
        " shows by then",
        between=(0.1, 300),
    )
    timeout_seconds: float = setting(
        0.5,
        "an answer must have come by then; a blocking read adds its own time",
        between=(0.05, 30),
    )


@attrs.frozen(kw_only=True)
class BusSettings:
    """What carries batches from the ingest door to the workers."""

    backend: str = setting(
        "auto",
        "inproc: in this process, lost with it; redis: the Redis of redis.addr, shared; jetstream:"
        " the NATS of nats.url, shared, a buffer of two hours; auto: redis where redis.addr and"
        " tsdb.url are set, else inproc",
        one_of=("auto", "inproc", "redis", "jetstream"),
    )
    queue_per_shard: int = setting(
        256,
        "batches a shard holds before agents are told to wait; not with jetstream, which has"
        " nats.buffer_*",
        between=(1, 100_000),
    )
    readers: int = setting(
        8, "connections on which a process waits for batches in Redis", between=(1, SHARDS)
    )
    block_seconds: float = setting(
        0.5, "how long each of them waits in Redis before it asks anew", between=(0.05, 10)
    )
    lease_seconds: float = setting(
        15.0,
        "a shard of a worker that shows no life goes to another one after this time",
        between=(0.5, 300),
    )
    claim_idle_seconds: float = setting(
        30.0,
        "a batch that was read from Redis and that no owner of its shard knows is handed over after"
        " this time",
        between=(0.5, 3600),
    )
    dead_max: int = setting(
        1000, "dead letters kept; the oldest go, counted", between=(1, 1_000_000)
    )
    entry_bytes_max: int = setting(
        900_000,
        "larger batches are split on their way to NATS, whose max_payload is a MiB unless set",
        between=(4096, 64 << 20),
    )


@attrs.frozen(kw_only=True)
class NatsSettings:
    """Where the bus is with `bus.backend: jetstream`."""

    url: str = setting(
        "",
        "nats://host:port of the NATS that carries batches, or several of one cluster with commas"
        " between; used with bus.backend jetstream alone",
        check=check_nats_urls,
    )
    username: str = setting("", "login name; empty: none")
    password: Secret = setting(NO_SECRET, "login password")
    token: Secret = setting(NO_SECRET, "token in place of name and password")
    credentials: Path | None = setting(
        None, "file of a JWT and its seed (.creds) in place of a login; needs the package nkeys"
    )
    prefix: str = setting(
        "ah",
        "what names of streams and subjects begin with: letters, digits, _ and -",
        check=check_nats_prefix,
    )
    tls: bool = setting(default=False, doc="whether the connection is TLS")
    tls_ca_file: Path | None = setting(
        None, "PEM certificates that NATS is checked against; empty: the system's"
    )
    timeout_seconds: float = setting(2.0, "an answer must have come by then", between=(0.1, 30))
    replicas: int = setting(
        1, "servers of a cluster that keep each stream, when it is made", between=(1, 5)
    )
    buffer_bytes: int = setting(
        4 << 30,
        "disk that the batches of all shards may take; JetStream must have so much and 320 MiB"
        " more (max_file_store), for dead letters and leases",
        between=(64 << 20, 1 << 44),
    )
    buffer_batches: int = setting(
        2_000_000, "batches of all shards that may wait", between=(64, 1_000_000_000)
    )
    buffer_shard_batches: int = setting(
        200_000, "batches of one shard that may wait", between=(1, 1_000_000_000)
    )


@attrs.frozen(kw_only=True)
class WorkerSettings:
    """What writes batches from the bus to the store."""

    shards: Shards = setting(
        Shards.every(),
        "the shards of the bus that this process writes: all, or numbers and ranges from 0 to 63,"
        " as in 0-31,40; the other ones must be another process's",
    )
    shutdown_flush_seconds: float = setting(
        10.0, "time to write what is left at the stop", between=(0, 60)
    )


@attrs.frozen(kw_only=True)
class TsdbSettings:
    """Where samples are stored; without `url` in this process. `max_batch_*` hold there too."""

    url: str = setting(
        "",
        "address of the VictoriaMetrics that keeps samples; empty: the embedded store",
        check=check_store_url,
    )
    long_url: str = setting(
        "",
        "address of a second one that keeps rollups of an hour; empty: the same",
        check=check_store_url,
    )
    write_protocol: str = setting(
        "import",
        "how samples are written; remote_write is for proxies that take nothing else",
        one_of=("import", "remote_write"),
    )
    username: str = setting("", "name for basic authentication; empty: none", check=check_user_name)
    password: Secret = setting(NO_SECRET, "its password")
    bearer: Secret = setting(
        NO_SECRET, "token to show instead of name and password", check=check_token
    )
    tls_ca_file: Path | None = setting(
        None, "PEM certificates that it is checked against; empty: the system's"
    )
    timeout_seconds: float = setting(10.0, "an answer must have come by then", between=(0.1, 300))
    retention_days: float = setting(
        31.0,
        "what its -retentionPeriod says (31 days unless that is set); older samples are counted"
        " and left out",
        between=(1, 36_600),
    )
    durable_after_seconds: float = setting(
        15.0,
        "what is written is acknowledged to the bus after this time, when a kill of VictoriaMetrics"
        " cannot lose it any more; until then it is written again after one; 0: at once",
        between=(0, 300),
    )
    max_batch_samples: int = setting(5000, "samples that make a write due", between=(1, 100_000))
    max_batch_wait_seconds: float = setting(
        0.5, "age of the oldest sample that makes a write due", between=(0.01, 60)
    )
    retry_max_seconds: float = setting(
        30.0, "longest wait between two tries while it takes no samples", between=(0.2, 600)
    )


@attrs.frozen(kw_only=True)
class StoreSettings:
    retention_hours: float = setting(
        168.0, "age at which the embedded store forgets a sample", between=(0.1, 24 * 366)
    )
    snapshot_seconds: float = setting(
        30.0, "time between two snapshots of the embedded store", between=(1, 3600)
    )
    points_max: int = setting(
        5_000_000,
        "points the embedded store holds; the oldest go first",
        between=(1000, 1_000_000_000),
    )
