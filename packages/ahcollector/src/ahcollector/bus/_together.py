"""What many publishers put on the bus at once goes there in one round trip."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import attrs

from ahcollector.errors import BusError

__all__ = ["Together"]

_ENTRIES_MAX: Final = 100
_BYTES_MAX: Final = 4 << 20


@attrs.define(eq=False)
class _Round:
    """Entries that go together; `news` is set when they went, or when somebody must lead them."""

    entries: list[tuple[int, bytes]] = attrs.field(factory=list[tuple[int, bytes]])
    size_bytes: int = 0
    is_led: bool = False
    is_over: bool = False
    failure: BusError | None = None
    news: anyio.Event = attrs.field(factory=anyio.Event)


class Together:
    """Appends entries of many tasks in rounds: while one round is under way, the next one gathers.

    They go in the order in which they came, so a shard's order is that of the calls. Every task
    waits for its own entry; one of a round leads it, and when that one is cancelled before its
    turn, another one does. A round that began is carried to its end.

    Args:
        add: Appends entries in order; a `BusError` of it reaches every task of the round.
    """

    def __init__(self, *, add: Callable[[Sequence[tuple[int, bytes]]], Awaitable[None]]) -> None:
        self._add = add
        self._turn = anyio.Lock()
        self._open: _Round | None = None

    async def put(self, shard: int, data: bytes) -> None:
        """Return when the entry is on its shard.

        Raises:
            BusError: It may or may not be there.
        """
        mine = self._open
        if mine is None or len(mine.entries) >= _ENTRIES_MAX or mine.size_bytes >= _BYTES_MAX:
            mine = self._open = _Round()
        mine.entries.append((shard, data))
        mine.size_bytes += len(data)
        while not mine.is_over:
            if mine.is_led:
                await mine.news.wait()
            else:
                await self._lead(mine)
        if mine.failure is not None:
            # An error of its own for each task: they all add to its traceback.
            raise BusError(str(mine.failure)) from mine.failure

    async def _lead(self, mine: _Round) -> None:
        mine.is_led = True
        try:
            async with self._turn:
                if self._open is mine:
                    self._open = None
                with anyio.CancelScope(shield=True):
                    await self._carry(mine)
        finally:
            mine.is_led = False
            news, mine.news = mine.news, anyio.Event()
            news.set()

    async def _carry(self, mine: _Round) -> None:
        try:
            await self._add(mine.entries)
        except BusError as error:
            mine.failure = error
        mine.is_over = True
