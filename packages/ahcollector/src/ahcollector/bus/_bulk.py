"""How much of Redis the bus reads at a time: replies are bounded by what entries weigh.

A reply that does not come within its time is lost, and what it held is to be read once more. Where
entries are large, a number of them that is right for small ones is too much, each time again. So
commands ask for about so many bytes, by what entries had of late, and for less after one failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio

from ahcollector.bus._hand_over import Read
from ahcollector.bus._streams import Fetched, ShardStreams
from ahcollector.errors import BusError
from ahcollector.redis import RedisClient

__all__ = ["BULK_CONNECTIONS", "READ_BYTES", "READ_ENTRIES", "Bulk", "Ration", "Turns"]

READ_ENTRIES: Final = 32
"""How many entries of a shard one command reads at most, and about how many wait in memory."""

READ_BYTES: Final = 2 << 20
"""About how many bytes one reply has, and the entries of a shard that wait in memory."""

BULK_CONNECTIONS: Final = 4
"""How many read for one shard each at the same time, beside those who wait for entries."""

_READ_BYTES_MIN: Final = 256 << 10
# What the server's door lets in has about so many.
_LARGE_BYTES: Final = 1 << 20


class Ration:
    """What a command may ask for.

    It takes entries for large until it saw others, and again when a command failed: whether that
    was because of them, nobody knows.
    """

    def __init__(self) -> None:
        self._bytes = float(READ_BYTES)
        self._entry_bytes = float(_LARGE_BYTES)

    @property
    def bytes_max(self) -> int:
        """About how many bytes a reply may have."""
        return int(self._bytes)

    @property
    def entries(self) -> int:
        """How many entries a reply may have, one at least, of all shards together."""
        return max(1, int(self._bytes / self._entry_bytes))

    @property
    def of_one(self) -> int:
        """How many of them one shard may have."""
        return min(READ_ENTRIES, self.entries)

    def came(self, reads: Collection[Read]) -> None:
        """Note what a reply held."""
        if reads:
            mean = sum(len(one.data) for one in reads) / len(reads)
            # At once for more, and step by step for less: small ones may stand between large ones.
            self._entry_bytes = max(1.0, mean, self._entry_bytes / 2)
            self._bytes = min(READ_BYTES, self._bytes * 1.25)

    def failed(self) -> None:
        """Note that a reply did not come."""
        self._bytes = max(_READ_BYTES_MIN, self._bytes / 2)
        self._entry_bytes = max(self._entry_bytes, _LARGE_BYTES)


class Turns:
    """Which shards of one reader the next command reads.

    Those all, unless a reply has no room for an entry of each. Then some after the others, without
    waiting; and all again, waiting, when nothing was found in any.
    """

    def __init__(self, ration: Ration) -> None:
        self._ration = ration
        self._number = 0
        self._last: dict[int, int] = {}
        self._in_vain = 0

    def next(self, ready: Sequence[int]) -> tuple[list[int], int, bool]:
        """Return shards, how many entries of each are read, and whether to wait for them."""
        entries = self._ration.entries
        if entries >= len(ready):
            return list(ready), min(READ_ENTRIES, entries // len(ready)), True
        if self._in_vain >= len(ready):
            return list(ready), 1, True
        some = sorted(ready, key=lambda shard: self._last.get(shard, 0))[:entries]
        self._number += 1
        self._last.update(dict.fromkeys(some, self._number))
        return some, 1, False

    def came(self, shards: Collection[int], *, is_any: bool) -> None:
        """Note whether anything was found in some shards."""
        self._in_vain = 0 if is_any else self._in_vain + len(shards)


class Bulk:
    """Reads entries, on connections that nothing else needs. Methods may raise `BusError`.

    Args:
        client: Has a connection for each reader, and `BULK_CONNECTIONS` more.

    Attributes:
        ration: What it asks for.
    """

    def __init__(self, *, client: RedisClient) -> None:
        self.ration = Ration()
        self._streams = ShardStreams(client=client)
        self._free = anyio.Semaphore(BULK_CONNECTIONS, fast_acquire=True)

    async def read(
        self, shards: Collection[int], *, count: int, block_ms: int | None
    ) -> dict[int, list[Read]]:
        """Read so many new entries of each shard, waiting for the first so long."""
        with self._failing():
            found = await self._streams.read(shards, count=count, block_ms=block_ms)
        self.ration.came([read for reads in found.values() for read in reads])
        return found

    async def read_alone(self, shard: int, *, is_valid: Callable[[], bool]) -> list[Read]:
        """Read new entries of one shard without waiting for them; none if it is not valid then."""
        async with self._free:
            if not is_valid():
                return []
            found = await self.read([shard], count=self.ration.of_one, block_ms=None)
            return found.get(shard, [])

    async def fetch(self, shard: int, lease: str, ids: Sequence[bytes]) -> Fetched | None:
        """Read the first of some pending entries; None: the lease is lost."""
        async with self._free:
            with self._failing():
                found = await self._streams.fetch(
                    shard, lease, ids, bytes_max=self.ration.bytes_max
                )
            if found is not None:
                self.ration.came(found.reads)
            return found

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BusError:
            self.ration.failed()
            raise
