"""The Redis that several processes share: opened before all that keeps its state there."""

import logging
from contextlib import AsyncExitStack

from ah_server.errors import DependencyError
from ah_server.parts import Loop, Part
from ah_server.settings import Address, RedisSettings
from ah_server.wiring._patience import reached
from ah_server.wiring._seams import Seams
from ahcollector.errors import (
    CollectorError,
    RedisError,
    RedisRefusedError,
    RedisSettingsError,
)
from ahcollector.redis import RedisClient, RedisConfig

_log = logging.getLogger("ah_server.wiring")


async def shared_redis(
    settings: RedisSettings, seams: Seams, stack: AsyncExitStack
) -> RedisClient | None:
    """The client of the Redis that is set, found fit to keep state; None when none is set.

    Args:
        settings: where it is.
        seams: the clock, and whether to wait a minute for a Redis that does not answer yet.
        stack: closes the client.

    Raises:
        DependencyError: it does not answer, loses state, or takes none from this user.
    """
    if settings.addr is None:
        return None
    client = RedisClient(config=redis_config(settings, settings.addr), clock=seams.clock)
    stack.push_async_callback(client.aclose)
    try:
        warnings = await reached("Redis", client.check, seams, name="redis", away=is_redis_away)
    except RedisSettingsError as error:
        raise DependencyError(f"redis.addr: {error}") from error
    except RedisError as error:
        raise _unusable(settings.addr, error) from error
    for warning in warnings:
        _log.warning("%s", warning)
    return client


def is_redis_away(error: CollectorError) -> bool:
    """Whether an error is that Redis gave no answer, or none that helps now."""
    return isinstance(error, RedisError) or isinstance(error.__cause__, RedisError)


def redis_config(settings: RedisSettings, addr: Address) -> RedisConfig:
    """How the Redis at `addr` is spoken to."""
    return RedisConfig(
        host=addr.host,
        port=addr.port,
        username=settings.username,
        password=settings.password.reveal(),
        db=settings.db,
        prefix=settings.prefix,
        tls=settings.tls,
        tls_ca_file=settings.tls_ca_file,
        timeout_seconds=settings.timeout_seconds,
    )


def found_of_redis(settings: RedisSettings, redis: RedisClient | None) -> str:
    """What the check of Redis found, as a line; empty where none is set."""
    if redis is None:
        return ""
    keeps = (
        "does not tell its maxmemory-policy: see that it is noeviction"
        if redis.policy is None
        else "evicts nothing"
    )
    return f"redis {settings.addr} takes what is written and {keeps}"


def redis_loops(redis: RedisClient | None) -> tuple[Part, ...]:
    """What looks whether a Redis that was found fit stays so."""
    return () if redis is None else (Loop(name="redis policy", body=redis.watch),)


def _unusable(addr: Address, error: RedisError) -> DependencyError:
    if isinstance(error, RedisRefusedError):
        return DependencyError(f"redis.addr: {error}")
    return DependencyError(
        f"redis.addr: {addr} cannot be used ({error}); start it, or correct redis.addr"
    )
