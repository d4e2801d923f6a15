"""What the tests of workers that are killed share with the processes they start."""

from contextlib import asynccontextmanager

from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.bus.redis import RedisBus
from ahcollector.nats import NatsClient, NatsConfig
from ahcollector.redis import RedisClient, RedisConfig

SERVERS = [f"server-{n}" for n in range(40)]
# Real times, shortened. One lease has to last over the start of a process on a busy machine.
TIMES = {"lease_seconds": 0.5, "sample_seconds": 0.05, "retry_seconds": 0.02}
SIZE = BufferSize(bytes_max=64 << 20, batches_max=20_000, shard_batches_max=10_000)


def number_of(batch):
    return int(batch.request_id, 16)


def server_of(number):
    return SERVERS[number % len(SERVERS)]


def redis_bus(client, **settings):
    times = {"block_seconds": 0.05, "claim_idle_seconds": 1.0, "queue_batches_max": 100_000}
    return RedisBus(client=client, **(TIMES | times | settings))


def nats_bus(client, **settings):
    sizes = {"size": SIZE, "dead_bytes_max": 8 << 20}
    return JetStreamBus(client=client, **(TIMES | sizes | settings))


@asynccontextmanager
async def bus_of(kind, place, prefix):
    """A bus on the Redis of that port, or on the NATS of that address."""
    if kind == "redis":
        client = RedisClient(
            config=RedisConfig(port=int(place), prefix=f"{prefix}:", timeout_seconds=5.0)
        )
        make = redis_bus
    else:
        client = NatsClient(config=NatsConfig(servers=(place,), prefix=prefix, timeout_seconds=5.0))
        make = nats_bus
    try:
        yield make(client)
    finally:
        await client.aclose()
