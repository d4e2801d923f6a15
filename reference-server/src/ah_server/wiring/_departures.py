"""Who left for good: remembered in Redis where one is set, else in a file."""

from ah_server.errors import StateDirectoryError
from ah_server.settings import ServerSettings
from ahcollector.bus import SampleBatch
from ahcollector.clock import AsyncClock
from ahcollector.departures import Departures, FileDepartures, Sieve
from ahcollector.departures.redis import RedisDepartures
from ahcollector.errors import DeparturesError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.redis import RedisClient
from ahcollector.registry import Registry
from ahwire.hub import AgentState

_DAY_SECONDS = 86_400.0
_KEEP_DAYS_MIN = 31.0
_QUIET_SECONDS = 60.0


async def departures_of(
    settings: ServerSettings, metrics: PrometheusMetrics, redis: RedisClient | None
) -> Departures:
    """What remembers who left, for as long as the registry remembers who was revoked.

    At least for a month: dead letters are kept for 30 days, and no bus holds a batch longer.

    Raises:
        StateDirectoryError: the file cannot be used.
    """
    keep_seconds = max(_KEEP_DAYS_MIN, settings.registry.tombstone_ttl_days) * _DAY_SECONDS
    if redis is not None:
        return RedisDepartures(client=redis, keep_seconds=keep_seconds, metrics=metrics)
    try:
        return await FileDepartures.open(
            settings.state_dir / "departures.log", keep_seconds=keep_seconds, metrics=metrics
        )
    except DeparturesError as error:
        raise StateDirectoryError(str(error)) from error


def sieve_of(
    settings: ServerSettings, departures: Departures, registry: Registry, clock: AsyncClock
) -> Sieve:
    """What keeps batches of those who left from the store and the rules."""

    async def is_known(batch: SampleBatch) -> bool:
        entry = await registry.get(batch.agent_id)
        return (
            entry is not None
            and entry.record.state is AgentState.ACTIVE
            and entry.agent.company_id == batch.company_id
            and entry.agent.server_id == batch.server_id
        )

    return Sieve(
        departures=departures,
        is_known=is_known,
        clock=clock,
        # As presence: while a node may believe in the token of an agent that was taken away.
        quiet_seconds=max(_QUIET_SECONDS, 2 * settings.redis.cache_ttl_seconds),
    )
