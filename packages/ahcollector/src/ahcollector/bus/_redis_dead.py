"""The dead letters of the bus on Redis: a stream, bounded by their number."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Final

from ahcollector.bus._letter_page import PAGE_BYTES, LetterPage, letter_of
from ahcollector.bus._streams import ShardStreams
from ahcollector.bus.base import BusDeadLetter, shard_for
from ahcollector.errors import BusFull

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
        page = LetterPage(limit=limit)
        if page.is_full():
            return []
        begin = f"({after}" if _ID.fullmatch(after) else "-"
        rows = await self._streams.letters(begin=begin, limit=limit, bytes_max=PAGE_BYTES)
        for letter_id, fields in rows:
            # Before it is read: what is over would be in memory, too.
            if page.is_full():
                break
            page.add(_letter(letter_id, fields), entry_bytes=sum(map(len, fields.values())))
        return page.letters

    async def replay(self, letter_ids: Collection[str] | None) -> int:
        """Publish letters again as far as there is room.

        Without names it ends after as many letters as there are when it begins.

        Raises:
            BusError: There is no room for the first of them, the bus is closed, or Redis gives no
                answer.
        """
        replayed = 0
        async with aclosing(self._chosen(letter_ids)) as chosen:
            async for letter in chosen:
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
        return replayed

    async def _chosen(
        self, letter_ids: Collection[str] | None
    ) -> AsyncGenerator[BusDeadLetter, None]:
        """Yield letters, oldest first; a page is in memory at a time."""
        if letter_ids is not None:
            for letter_id in _in_order(letter_ids):
                rows = await self._streams.letters(begin=letter_id, limit=1, bytes_max=PAGE_BYTES)
                for name, fields in rows:
                    if name == letter_id:
                        yield _letter(name, fields)
            return
        # What comes meanwhile comes behind: without a number, what fails each time would be
        # replayed for ever.
        left, after = await self.count(), ""
        while left > 0 and (page := await self.letters(after=after, limit=min(left, _PAGE))):
            left -= len(page)
            after = page[-1].letter_id
            for letter in page:
                yield letter

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
    shard, reason, at = (
        fields.get(name, b"").decode("utf-8", "replace") for name in (b"shard", b"reason", b"at")
    )
    return letter_of(letter_id, fields.get(b"b", b""), shard=shard, reason=reason, at=at)
