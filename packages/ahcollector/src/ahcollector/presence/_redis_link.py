"""What the parts of the Redis presence share: its keys, and errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ahcollector.errors import (
    PresenceDamagedError,
    PresenceError,
    RedisError,
    RedisRefusedError,
)
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisLink"]

# What a command says of a key of another type, and a script of a value that makes no sense.
_DAMAGED: Final = re.compile(
    r"WRONGTYPE|DAMAGED|: user_script:|Error running script|is not an integer"
)


class RedisLink:
    """Commands and scripts behind the prefix of presence.

    Every method raises `PresenceError`; `PresenceDamagedError` when Redis answers, and a key holds
    what presence never wrote.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self.client = client
        self._prefix = client.key("pres", "")

    def key(self, name: str) -> str:
        """Return the whole name of a key."""
        return self._prefix + name

    async def run(self, script: Script, *args: str | float) -> Any:
        """Run a script of presence."""
        with self.translated():
            return await self.client.run(script, keys=[self._prefix], args=args)

    async def call(self, *command: str | bytes | float) -> Any:
        """Run one command on a key."""
        with self.translated(f" ({command[0]!s} {command[1]!s})"):
            return await self.client.call(*command)

    async def pipeline(self, commands: Sequence[Sequence[str | bytes | float]]) -> list[Any]:
        """Run commands in one round trip."""
        if not commands:
            return []
        with self.translated():
            return await self.client.pipeline(commands)

    @contextmanager
    def translated(self, where: str = "") -> Iterator[None]:
        """Turn the client's error into one of presence."""
        try:
            yield
        except RedisError as error:
            if _is_damage(error):
                raise self._damaged(f"{error}{where}") from error
            raise PresenceError(f"presence cannot be asked or told ({error})") from error

    @contextmanager
    def reading(self, place: str) -> Iterator[None]:
        """Turn what a value that makes no sense raises into an error that says where it is."""
        try:
            yield
        except (ValueError, TypeError) as error:
            raise self._damaged(f"{error} ({place})") from error

    def _damaged(self, what: str) -> PresenceDamagedError:
        return PresenceDamagedError(
            f"a key of presence in Redis holds what presence never wrote ({what}): "
            f"move it away with RENAME, and let nothing else write to {self._prefix}*"
        )


def _is_damage(error: RedisError) -> bool:
    """Whether a key is at fault; a Redis that is full, or a replica, names the same lines."""
    is_of_a_key = isinstance(error, RedisRefusedError) and not error.is_of_server
    return is_of_a_key and _DAMAGED.search(str(error)) is not None
