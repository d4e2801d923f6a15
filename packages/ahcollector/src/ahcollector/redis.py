"""The one way to Redis: a client whose commands are bounded, never repeated, and never left half.

redis-py repeats a command up to ten times when no reply comes, and a write whose reply was lost is
then done twice. Here a command is sent once. Whoever may repeat it says so by calling again.

A command that was sent is waited for even when its task is cancelled, at most `timeout_seconds`:
so no reply is left in a connection for the next command to take as its own, no connection leaks
from the pool, and a script that ran is known to have run. Only the wait for a free connection, and
everything around a command, is cancelled at once.

What changes several keys is one Lua script, so that no crash leaves a half. Scripts take their
time from the caller's clock and compute key names from the prefix; with Redis Cluster the prefix
must hold a hash tag (``{ah}:``), which puts every key in one slot.

This module needs asyncio (redis-py does) and the extra ``[redis]``.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs

from ahcollector._asyncio_only import check_asyncio
from ahcollector._extras import missing_extra
from ahcollector._redis_check import Fitness, Place
from ahcollector._redis_config import RedisConfig
from ahcollector._redis_refusals import Refusal, refusal
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import RedisError, RedisRefusedError

try:
    import redis.asyncio
    import redis.backoff
    import redis.exceptions
    from redis.asyncio.retry import Retry
except ModuleNotFoundError as error:
    raise missing_extra("ahcollector.redis", "redis", error) from error

__all__ = ["RedisClient", "RedisConfig", "Script"]

_log = logging.getLogger("ahcollector.redis")

_LISTEN_PING_SECONDS = 5.0
_LISTEN_DEAD_SECONDS = 15.0
_LISTEN_AGAIN_SECONDS = 0.5


@attrs.frozen(kw_only=True)
class Script:
    """A Lua script.

    Attributes:
        name: For errors and logs.
        body: Its text.
        sha: What Redis calls it.
    """

    name: str
    body: str
    sha: str

    @classmethod
    def load(cls, package: str, name: str, *, after: Sequence[str] = ()) -> Script:
        """Read ``<name>.lua`` from a package's folder ``lua``, behind the files that it builds on.

        It is named by the last part of the package and by its file: ``registry put``.
        """
        texts = [_lua(package, one) for one in (*after, name)]
        return cls.of(f"{package.rpartition('.')[2]} {name}", "\n".join(texts))

    @classmethod
    def of(cls, name: str, body: str) -> Script:
        """Make one of a text."""
        # Redis names a script by this hash; it protects nothing.
        sha = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()
        return cls(name=name, body=body, sha=sha)


@cache
def _lua(package: str, name: str) -> str:
    return (files(package) / "lua" / f"{name}.lua").read_text("utf-8")


class RedisClient:
    """Commands, scripts, pipelines and channels of one Redis. Replies are bytes, ints and lists.

    Every method raises `RedisError` when Redis gives no answer, and `RedisRefusedError`, which is
    one, when the answer is an error. A write that raised may or may not have been done; it was done
    at most once.

    Args:
        config: Where Redis is.
        clock: Time between attempts to listen again.
    """

    def __init__(self, *, config: RedisConfig, clock: AsyncClock | None = None) -> None:
        self.prefix = config.prefix
        self._config = config
        self._clock = clock if clock is not None else SystemClock()
        self._free = anyio.Semaphore(config.connections_max, fast_acquire=True)
        self._redis = _connect(config)
        self._fitness = Fitness(
            call=self.call,
            subscribe=self._listen_once,
            clock=self._clock,
            place=Place(
                where=f"{config.host}:{config.port}",
                user=config.username or "default",
                prefix=config.prefix,
            ),
        )
        # redis-py gives this method no types.
        self._execute: Callable[..., Awaitable[Any]] = self._redis.execute_command

    def key(self, *parts: str) -> str:
        """Return a key: the prefix and the parts, joined by colons."""
        return self.prefix + ":".join(parts)

    def for_blocking(self, *, block_seconds: float, connections_max: int) -> RedisClient:
        """Return a client for commands that wait so long in Redis; it is the caller's to close.

        Its commands have `block_seconds` more than `timeout_seconds` for their replies, and it has
        connections of its own: those who wait keep nobody from a connection.
        """
        config = attrs.evolve(
            self._config,
            timeout_seconds=self._config.timeout_seconds + block_seconds,
            connections_max=connections_max,
        )
        return RedisClient(config=config, clock=self._clock)

    async def call(self, *command: str | bytes | float) -> Any:
        """Run one command and return its reply."""
        return await self._settled(str(command[0]), lambda: self._execute(*command))

    async def run(
        self, script: Script, *, keys: Sequence[str] = (), args: Sequence[str | bytes | float] = ()
    ) -> Any:
        """Run a script, which Redis is taught when it does not know it, and return its reply."""

        async def evaluate() -> Any:
            try:
                return await self._execute("EVALSHA", script.sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                # Nothing was run, so this is no repetition.
                return await self._execute("EVAL", script.body, len(keys), *keys, *args)

        return await self._settled(script.name, evaluate)

    async def pipeline(self, commands: Sequence[Sequence[str | bytes | float]]) -> list[Any]:
        """Run commands in one round trip, not as one step; the first error among them is raised."""

        async def execute() -> list[Any]:
            async with self._redis.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                # Raised by redis-py, an error would be told behind the whole command.
                replies = await pipe.execute(raise_on_error=False)
            for command, reply in zip(commands, replies, strict=True):
                if isinstance(reply, redis.exceptions.RedisError):
                    what = " ".join(map(_shown, command[:2]))
                    with _translated(f"{what} in a pipeline", self._config):
                        raise reply
            return replies

        return cast("list[Any]", await self._settled("pipeline", execute))

    async def publish(self, channel: str, message: str) -> None:
        """Tell those who listen to a channel now; the name gets the prefix."""
        await self.call("PUBLISH", self.key(channel), message)

    async def listen(
        self, channel: str, *, heard: Callable[[str], None], connected: Callable[[], None]
    ) -> None:
        """Call `heard` with each message of a channel until cancelled, through every outage.

        Messages sent while nobody listened are lost, so `connected` is called each time the
        subscription stands (again): what was built on messages is to be doubted then.
        """
        trouble = Trouble(_log, "Redis channel cannot be heard", "Redis channel is heard again")
        while True:
            try:
                async with self._subscribed(self.key(channel)) as subscription:
                    connected()
                    trouble.is_over()
                    await self._hear(subscription, heard)
            except RedisError as error:
                trouble.goes_on(self._clock.monotonic(), {"channel": channel, "error": str(error)})
            await self._clock.sleep(_LISTEN_AGAIN_SECONDS)

    async def time(self) -> float:
        """Return what Redis' clock says, Unix seconds."""
        seconds, micros = await self.call("TIME")
        return int(seconds) + int(micros) / 1e6

    async def ping(self) -> None:
        """Return when Redis answers, and drops no keys as far as `check` and `watch` saw.

        Raises:
            RedisSettingsError: It drops keys by now; from then on each ping looks whether it does.
            RedisError: It gives no answer.
        """
        await self._fitness.confirm()
        await self.call("PING")

    async def check(self) -> tuple[str, ...]:
        """Return when this Redis may be trusted with state: warnings of what could not be seen.

        A key is written, read and deleted, a script run, and a channel spoken and listened to,
        all under names that nobody else uses; what is left of them is gone after 10 s.

        Raises:
            RedisSettingsError: It is set to evict keys when memory is short: it would silently
                forget agents and transitions. Or it is a replica, or this user lacks a right.
            RedisError: It gives no answer, or is full.
        """
        return await self._fitness.check()

    @property
    def policy(self) -> str | None:
        """maxmemory-policy as it was seen last; None: nobody looked, or could see it."""
        return self._fitness.policy

    async def watch(self, *, interval_seconds: float = 180.0) -> None:
        """Look at maxmemory-policy each interval until cancelled; the log tells when it changed."""
        await self._fitness.watch(interval_seconds=interval_seconds)

    async def aclose(self) -> None:
        """Close all connections."""
        with anyio.CancelScope(shield=True), _translated("close", self._config):
            await self._redis.aclose()

    async def _listen_once(self, channel: str) -> None:
        async with self._subscribed(channel):
            pass

    async def _settled(self, what: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Do what `send` does to its end, on a connection that is free by then."""
        # Nothing below can be cancelled where a connection is free: a task that only sends commands
        # would go on for ever.
        await anyio.lowlevel.checkpoint_if_cancelled()
        check_asyncio("the client of Redis")
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait_for_one(what)
        try:
            with anyio.CancelScope(shield=True), _translated(what, self._config):
                return await send()
        finally:
            self._free.release()

    async def _wait_for_one(self, what: str) -> None:
        try:
            with anyio.fail_after(self._config.timeout_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise RedisError(
                f"Redis: all {self._config.connections_max} connections are busy for "
                f"{self._config.timeout_seconds:g} s ({what}): it is slow, or "
                f"connections_max is low"
            ) from None

    @asynccontextmanager
    async def _subscribed(self, channel: str) -> AsyncIterator[Any]:
        subscription = self._redis.pubsub(ignore_subscribe_messages=False)
        try:
            with (
                _translated("SUBSCRIBE", self._config),
                anyio.fail_after(2 * self._config.timeout_seconds),
            ):
                await subscription.subscribe(channel)
                # The reply is a message of its own; before it nothing is heard.
                await subscription.get_message(timeout=self._config.timeout_seconds)
            yield subscription
        finally:
            with anyio.CancelScope(shield=True), _translated("close", self._config):
                await subscription.aclose()  # type: ignore[no-untyped-call]  # redis-py has none

    async def _hear(self, subscription: Any, heard: Callable[[str], None]) -> None:
        """Hear messages until the connection is dead: a ping a few seconds is to be answered."""
        silent_since = self._clock.monotonic()
        pinged_at = silent_since
        while True:
            with _translated("listen", self._config):
                message = await subscription.get_message(timeout=_LISTEN_PING_SECONDS / 2)
            now = self._clock.monotonic()
            if message is not None:
                silent_since = now
                if message["type"] == "message":
                    heard(message["data"].decode("utf-8", "replace"))
            elif now - silent_since > _LISTEN_DEAD_SECONDS:
                raise RedisError("Redis: a subscription is not answered any more")
            if now - pinged_at >= _LISTEN_PING_SECONDS:
                pinged_at = now
                with _translated("listen", self._config):
                    await subscription.ping()


def _shown(part: str | bytes | float) -> str:
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)


def _connect(config: RedisConfig) -> redis.asyncio.Redis:
    tls: dict[str, Any] = {}
    if config.tls:
        tls = {
            "ssl": True,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
            "ssl_ca_certs": None if config.tls_ca_file is None else str(config.tls_ca_file),
        }
    return redis.asyncio.Redis(
        host=config.host,
        port=config.port,
        username=config.username or None,
        password=config.password or None,
        db=config.db,
        # One more than the limiter lets in, and the subscriptions: the pool itself never refuses.
        max_connections=2 * config.connections_max + 16,
        socket_timeout=config.timeout_seconds,
        socket_connect_timeout=config.timeout_seconds,
        socket_keepalive=True,
        retry=Retry(redis.backoff.NoBackoff(), 0),
        protocol=2,
        **tls,
    )


@contextmanager
def _translated(what: str, config: RedisConfig) -> Iterator[None]:
    """Turn what redis-py and the socket raise into `RedisError`."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise RedisError(
            f"Redis at {config.host}:{config.port} refuses the login ({error}): check username "
            "and password"
        ) from error
    except redis.exceptions.ResponseError as error:
        refused = _refusal(error)
        raise RedisRefusedError(
            f"Redis at {config.host}:{config.port} refuses {what}: {refused.text}",
            code=refused.code,
            is_of_server=refused.is_of_server,
        ) from error
    except (redis.exceptions.RedisError, OSError, TimeoutError) as error:
        raise RedisError(
            f"Redis at {config.host}:{config.port} gave no answer to {what}: "
            f"{str(error) or type(error).__name__}"
        ) from error


_CODES = (
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    # Before the one that it is a kind of.
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
)
"""The words that redis-py takes off the text, as far as somebody asks for them."""


def _refusal(error: redis.exceptions.ResponseError) -> Refusal:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return refusal(f"{code} {error}", code=code)
    return refusal(str(error))
