"""Whether a Redis may be trusted with state: that it drops no keys, and that this user may write.

A Redis that drops keys when memory is short, a replica, or a user without rights answers a PING as
any other does. Each shows only when something is to be kept, which is too late; so the rights are
used once, on a key that ends by itself, before anything relies on them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs

from ahcollector.clock import AsyncClock
from ahcollector.errors import RedisError, RedisRefusedError, RedisSettingsError

__all__ = ["Fitness", "Place"]

_log = logging.getLogger("ahcollector.redis")

_KEEPS_ALL: Final = "noeviction"
"""The one policy under which no key is dropped."""

_PROBE_SECONDS: Final = 10

Call = Callable[..., Awaitable[Any]]
"""Runs one command and returns its reply, as `RedisClient.call`."""


@attrs.frozen(kw_only=True)
class Place:
    """Who is checked, for the texts of errors.

    Attributes:
        where: host:port.
        user: The ACL user.
        prefix: Before every key and channel.
    """

    where: str
    user: str
    prefix: str


@attrs.frozen(kw_only=True)
class _Step:
    """One right that is tried.

    Attributes:
        doing: What it lets one do.
        right: How an ACL names it, without its keys or channels.
        on: Of what: ``~`` for keys, ``&`` for channels.
        send: Tries it.
        expected: The reply that shows it; None: any.
    """

    doing: str
    right: str
    on: str
    send: Callable[[], Awaitable[Any]]
    expected: bytes | None = None


class Fitness:
    """Whether one Redis keeps what it is given, as it was seen last.

    Args:
        call: Runs a command, as `RedisClient.call`; raises RedisError.
        subscribe: Listens to a channel for a moment; raises RedisError.
        clock: Time between two looks.
        place: What is checked.
    """

    def __init__(
        self,
        *,
        call: Call,
        subscribe: Callable[[str], Awaitable[None]],
        clock: AsyncClock,
        place: Place,
    ) -> None:
        self._call = call
        self._subscribe = subscribe
        self._clock = clock
        self._place = place
        self.policy: str | None = None

    async def check(self) -> tuple[str, ...]:
        """See `RedisClient.check`."""
        await self._look()
        self._refuse_eviction()
        for step in self._steps(secrets.token_hex(8)):
            await self._try(step)
        if self.policy is not None:
            return ()
        told = (
            f"Redis at {self._place.where} does not tell its maxmemory-policy: see that it is "
            f"{_KEEPS_ALL}, or let user {self._place.user} look at it, +config|get or +info"
        )
        return (told,)

    async def confirm(self) -> None:
        """Raise RedisSettingsError while the policy is a wrong one; a wrong one is read anew."""
        if self._drops_keys():
            await self._look()
        self._refuse_eviction()

    async def watch(self, *, interval_seconds: float) -> None:
        """See `RedisClient.watch`."""
        while True:
            await self._clock.sleep(interval_seconds)
            # Whoever needs an answer tells of a Redis that gives none.
            with suppress(RedisError):
                await self._look()

    async def _look(self) -> None:
        """Read the policy; one that cannot be seen now stays what it was."""
        policy = await _policy_of(self._call)
        before, dropped = self.policy, self._drops_keys()
        if policy is None or policy == before:
            return
        self.policy = policy
        if self._drops_keys():
            if before is not None:
                _log.error(
                    "Redis was set to drop keys: agents and transitions will be lost",
                    extra={"before": before, "error": str(self._evicting(policy))},
                )
        elif dropped:
            _log.info("Redis drops no keys any more", extra={"before": before})

    def _drops_keys(self) -> bool:
        return self.policy not in (None, _KEEPS_ALL)

    def _refuse_eviction(self) -> None:
        if self.policy is not None and self._drops_keys():
            raise self._evicting(self.policy)

    def _evicting(self, policy: str) -> RedisSettingsError:
        return RedisSettingsError(
            f"Redis at {self._place.where} has maxmemory-policy {policy}, "
            f"which drops keys without a word: set it to {_KEEPS_ALL}"
        )

    def _steps(self, name: str) -> tuple[_Step, ...]:
        """Return what is tried, in order; `name` is one that nobody else uses."""
        channel = f"{self._place.prefix}probe"
        key = f"{channel}:{name}"
        call = partial(partial, self._call)
        exists = "return redis.call('EXISTS', KEYS[1])"
        write = call("SET", key, name, "EX", _PROBE_SECONDS)
        return (
            _Step(doing="write keys", right="+@write", on="~", send=write),
            _Step(
                doing="read keys",
                right="+@read",
                on="~",
                send=call("GET", key),
                expected=name.encode(),
            ),
            _Step(
                doing="run scripts",
                right="+@scripting",
                on="~",
                send=call("EVAL", exists, 1, key),
            ),
            _Step(doing="delete keys", right="+@write", on="~", send=call("DEL", key)),
            _Step(
                doing="publish on channels",
                right="+publish",
                on="&",
                send=call("PUBLISH", channel, name),
            ),
            _Step(
                doing="listen to channels",
                right="+subscribe +unsubscribe",
                on="&",
                send=partial(self._subscribe, channel),
            ),
        )

    async def _try(self, step: _Step) -> None:
        where, user = self._place.where, self._place.user
        try:
            reply = await step.send()
        except RedisRefusedError as error:
            if error.code == "READONLY":
                raise RedisSettingsError(f"Redis at {where} is a replica ({error})") from error
            if error.code == "NOPERM":
                raise RedisSettingsError(
                    f"Redis at {where} does not let user {user} {step.doing} ({error}): give the "
                    f"right, ACL SETUSER {user} {step.right} {step.on}{self._place.prefix}*"
                ) from error
            raise
        if step.expected is not None and reply != step.expected:
            raise RedisSettingsError(
                f"Redis at {where} does not show what was written just before: it, or a proxy "
                "before it, reads from a replica; name the master"
            )


async def _policy_of(call: Call) -> str | None:
    """Return maxmemory-policy; None when Redis does not tell, as some that are managed."""
    try:
        reply = await call("CONFIG", "GET", "maxmemory-policy")
    except RedisRefusedError:
        reply = None
    if reply:
        return _text(reply[1])
    try:
        return _in_info(await call("INFO", "memory"))
    except RedisRefusedError:
        return None


def _in_info(reply: Any) -> str | None:
    """Return the policy in INFO: redis-py makes a dict of it, other versions leave the text."""
    if isinstance(reply, dict):
        told = reply.get("maxmemory_policy")
        return None if told is None else str(told)
    for line in _text(reply).splitlines():
        name, _, value = line.partition(":")
        if name == "maxmemory_policy":
            return value.strip()
    return None


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
