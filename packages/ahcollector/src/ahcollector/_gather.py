"""What many tasks want written, written together."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import anyio

from ahcollector.errors import CollectorError

__all__ = ["Gather"]

T = TypeVar("T")


class Gather(Generic[T]):
    """Writes items of many tasks in groups: while one group is written, the next one gathers.

    Items are written in the order in which they came, one group at a time. One of the tasks that
    wait for a group writes it, after those before it; when it is cancelled before its turn, another
    one of them does, and once the writing began it is carried to its end. So no cancellation harms
    another task's item, and an item whose task was cancelled may still be written.

    Args:
        write: Writes a group; what it raises as `CollectorError` reaches every task of it. It
            returns the errors of the places (from 0) whose item alone could not be written.
        items_max: Items in a group at most.
        size_of: How large an item is, in any unit.
        size_max: A group that is as large takes no further item.
    """

    def __init__(
        self,
        *,
        write: Callable[[Sequence[T]], Awaitable[Mapping[int, CollectorError]]],
        items_max: int,
        size_of: Callable[[T], int] = lambda _: 0,
        size_max: int = 1,
    ) -> None:
        if items_max < 1:
            raise ValueError(f"items_max is {items_max}; it must be at least 1")
        self._write = write
        self._items_max = items_max
        self._size_of = size_of
        self._size_max = size_max
        self._turn = anyio.Lock()
        # Those whose writing has not begun, in order; the last one gathers.
        self._groups: deque[_Group[T]] = deque()

    async def put(self, item: T) -> None:
        """Return when the item is written.

        Raises:
            CollectorError: It may or may not be written.
        """
        group = self._gathering()
        place = len(group.items)
        group.items.append(item)
        group.size += self._size_of(item)
        while not group.written:
            if group.led:
                await group.news.wait()
            else:
                await self._lead(group)
        failure = group.failures.get(place, group.failure)
        if failure is not None:
            # An error of its own for each task: they all add to its traceback.
            raise type(failure)(str(failure)) from failure

    def _gathering(self) -> _Group[T]:
        if self._groups:
            last = self._groups[-1]
            if len(last.items) < self._items_max and last.size < self._size_max:
                return last
        self._groups.append(_Group())
        return self._groups[-1]

    async def _lead(self, group: _Group[T]) -> None:
        group.led = True
        try:
            async with self._turn:
                # Who led a group before it may have been cancelled, and its next leader stand
                # behind this one.
                while not group.written:
                    with anyio.CancelScope(shield=True):
                        await self._write_first()
        finally:
            group.led = False
            group.tell()

    async def _write_first(self) -> None:
        group = self._groups.popleft()
        try:
            group.failures = await self._write(group.items)
            group.failure = None
        except CollectorError as error:
            group.failure = error
        finally:
            group.written = True
            group.tell()


class _Group(Generic[T]):
    """Items that are written together; `news` is set when it is written or needs a leader."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.size = 0
        self.led = False
        self.written = False
        # Until the write returned nobody may take it for done, whatever ends it.
        self.failure: CollectorError | None = CollectorError("the write ended without an outcome")
        self.failures: Mapping[int, CollectorError] = {}
        self.news = anyio.Event()

    def tell(self) -> None:
        news, self.news = self.news, anyio.Event()
        news.set()
