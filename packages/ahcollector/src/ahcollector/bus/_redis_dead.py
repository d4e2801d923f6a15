"""The dead letters of the bus on Redis: a stream, bounded by their number."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from ahcollector.bus._entries import decode
from ahcollector.bus._streams import ShardStreams
from ahcollector.bus.base import SHARDS, BusDeadLetter, SampleBatch, shard_for
from ahcollector.errors import BusError, BusFull

__all__ = ["RedisBusDeadLetters"]

_ID: Final = re.compile(r"[0-9]{1,19}-[0-9]{1,19}", re.ASCII)
_PAGE: Final = 100
_PURGE_MAX: Final = 1_000


class RedisBusDeadLetters:
    """`BusDeadLetters` in Redis, shared by all processes.

    A letter that is replayed leaves the dead letters in the step that puts it on its shard, so here
    no crash publishes it twice.

    Args:
        streams: The streams.
        admit: Raises when a shard takes nothing now.
        added: Told of a shard that gets an entry.
    """

    def __init__(
        self,
        *,
        streams: ShardStreams,
        admit: Callable[[int], Awaitable[None]],
        added: Callable[[int], None],
    ) -> None:
        self._streams = streams
        self._admit = admit
        self._added = added

    async def letters(self, *, after: str = "", limit: int = 100) -> list[BusDeadLetter]:
        """Return a page. An `after` that is no name of a letter is the beginning."""
        if limit < 1:
            return []
        begin = f"({after}" if _ID.fullmatch(after) else "-"
        rows = await self._streams.letters(begin=begin, limit=limit)
        return [_letter(letter_id, fields) for letter_id, fields in rows]

    async def replay(self, letter_ids: Collection[str] | None) -> int:
        """Publish letters again as far as there is room.

        Raises:
            BusError: There is no room for the first of them, the bus is closed, or Redis gives no
                answer.
        """
        replayed = 0
        after = ""
        while True:
            if letter_ids is None:
                page = await self.letters(after=after, limit=_PAGE)
            else:
                page = await self._named(letter_ids)
            for letter in page:
                after = letter.letter_id
                if letter.batch is None:
                    continue
                shard = shard_for(letter.batch.server_id)
                try:
                    await self._admit(shard)
                except BusFull:
                    if not replayed:
                        raise
                    return replayed
                self._added(shard)
                replayed += await self._streams.replay(letter.letter_id, shard)
            if letter_ids is not None or len(page) < _PAGE:
                return replayed

    async def _named(self, letter_ids: Collection[str]) -> list[BusDeadLetter]:
        found: list[BusDeadLetter] = []
        for letter_id in _in_order(letter_ids):
            rows = await self._streams.letters(begin=letter_id, limit=1)
            found += [_letter(name, fields) for name, fields in rows if name == letter_id]
        return found

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters."""
        if letter_ids is None:
            return await self._streams.purge([])
        names = _in_order(letter_ids)
        purged = 0
        for begin in range(0, len(names), _PURGE_MAX):
            purged += await self._streams.purge(names[begin : begin + _PURGE_MAX])
        return purged

    async def count(self) -> int:
        """Return how many there are."""
        return await self._streams.count()


def _in_order(letter_ids: Collection[str]) -> list[str]:
    names = {one for one in letter_ids if _ID.fullmatch(one)}
    return sorted(names, key=lambda name: tuple(map(int, name.split("-"))))


def _letter(letter_id: str, fields: dict[bytes, bytes]) -> BusDeadLetter:
    shard = fields.get(b"shard", b"")
    batch: SampleBatch | None
    try:
        batch = decode(fields.get(b"b", b""))
    except BusError:
        batch = None
    return BusDeadLetter(
        letter_id=letter_id,
        batch=batch,
        shard=int(shard) if shard.isdigit() and int(shard) < SHARDS else None,
        reason=fields.get(b"reason", b"").decode("utf-8", "replace"),
        dead_at=_seconds(fields.get(b"at", b"")),
    )


def _seconds(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
