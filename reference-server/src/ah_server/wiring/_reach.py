"""Reaching each service by itself, for a check that goes on where the first one failed."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack

from ah_server.errors import ServerError
from ah_server.settings import ServerSettings
from ah_server.wiring._redis import found_of_redis, shared_redis
from ah_server.wiring._samples import samples_of
from ah_server.wiring._seams import Seams
from ahcollector.metrics import PrometheusMetrics


async def reach_each(
    settings: ServerSettings, seams: Seams, stack: AsyncExitStack, *, beyond: Collection[str]
) -> list[tuple[str, ServerError | None]]:
    """Reaches Redis, VictoriaMetrics and NATS, those that are set, each whatever the others do.

    Args:
        settings: where they are.
        seams: the clock, and whether to wait.
        stack: closes what was opened.
        beyond: settings that ended the composition. It reaches one service after the other, so
            those up to the one that is named here were tried.

    Returns:
        Of each what was found, and None; or nothing, and why it cannot be used.
    """
    services: dict[str, Callable[[], Awaitable[str]]] = {}

    async def redis() -> str:
        return found_of_redis(settings.redis, await shared_redis(settings.redis, seams, stack))

    async def samples() -> str:
        return (await samples_of(settings, seams, PrometheusMetrics(), stack)).found

    async def nats() -> str:
        # Imported only where it is used: it brings the NATS library with it.
        from ah_server.wiring._jetstream import jetstream_of  # noqa: PLC0415  # see above

        return (await jetstream_of(settings, seams, PrometheusMetrics(), stack)).found

    if settings.redis.addr is not None:
        services["redis"] = redis
    if settings.tsdb.url:
        services["tsdb"] = samples
    if settings.bus_backend == "jetstream":
        services["nats"] = nats
    tried = [name for name in services if any(one.startswith(f"{name}.") for one in beyond)]
    order = list(services)
    reached: list[tuple[str, ServerError | None]] = []
    for name in order[order.index(tried[-1]) + 1 :] if tried else order:
        try:
            reached.append((await services[name](), None))
        except ServerError as error:
            reached.append(("", error))
    return reached
