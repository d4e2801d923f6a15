"""The beacons of several processes, as one string in Redis."""

from __future__ import annotations

from typing import Final

from ahcollector.errors import PresenceError
from ahcollector.presence._witnesses import after_witness, decode, encode
from ahcollector.presence.base import IngestSight
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisBeacons"]

_SWAPS_MAX: Final = 20


class RedisBeacons:
    """Reads the ledger of beacons, decides here what follows, and writes it if nobody else did.

    What cannot be read as a ledger counts as none: then nobody knows how long it was dark.

    Args:
        client: The Redis.
        key: Where the ledger is.
        swap: The script that replaces a value if it is still the one that was read.
        life: Names this life of the process.
        name: Names the process in all its lives.
        max_age_seconds: How long a beacon is good for.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        key: str,
        swap: Script,
        life: str,
        name: str,
        max_age_seconds: float,
    ) -> None:
        self._client = client
        self._key = key
        self._swap = swap
        self._life = life
        self._name = name
        self._max_age_seconds = max_age_seconds
        self._last: float | None = None

    async def write(self, now: float) -> None:
        """Note that this process could hear agents. Raises RedisError, PresenceError."""
        for _ in range(_SWAPS_MAX):
            before: bytes | None = await self._client.call("GET", self._key)
            after = after_witness(
                None if before is None else decode(before),
                life=self._life,
                name=self._name,
                now=now,
                last=self._last,
                max_age_seconds=self._max_age_seconds,
            )
            if await self._client.run(
                self._swap, keys=[self._key], args=[before or b"", encode(after)]
            ):
                self._last = now
                return
        raise PresenceError(
            f"the beacon was not written: other processes wrote theirs {_SWAPS_MAX} times "
            "meanwhile; too many share this Redis prefix"
        )

    async def sight(self, now: float) -> IngestSight | None:
        """Return what the beacons tell a reader whose clock shows `now`. Raises RedisError."""
        data: bytes | None = await self._client.call("GET", self._key)
        ledger = None if data is None else decode(data)
        return None if ledger is None else ledger.sight(now)
