"""What many tasks want written, written together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import anyio

from ahcollector.errors import PresenceError

__all__ = ["Gather"]

T = TypeVar("T")


class Gather(Generic[T]):
    """Writes items of many tasks in groups: while one group is written, the next one gathers.

    Items are written in the order in which they came, one group at a time. One of the tasks that
    wait for a group writes it; when it is cancelled before its turn, another one of them does, and
    once the writing began it is carried to its end. So no cancellation harms another task's item.

    There is no more memory in it than tasks that wait.

    Args:
        write: Writes a group; what it raises as `PresenceError` reaches every task of it. It
            returns the errors of the places (from 0) whose item alone could not be written.
        items_max: Items in a group at most.
    """

    def __init__(
        self,
        *,
        write: Callable[[Sequence[T]], Awaitable[Mapping[int, PresenceError]]],
        items_max: int,
    ) -> None:
        if items_max < 1:
            raise ValueError(f"items_max is {items_max}; it must be at least 1")
        self._write = write
        self._items_max = items_max
        self._turn = anyio.Lock()
        self._open: _Group[T] | None = None

    async def put(self, item: T) -> None:
        """Return when the item is written.

        Raises:
            PresenceError: It may or may not be written.
        """
        group = self._open
        if group is None or len(group.items) >= self._items_max:
            group = self._open = _Group()
        place = len(group.items)
        group.items.append(item)
        while not group.written:
            if group.led:
                await group.news.wait()
            else:
                await self._lead(group)
        failure = group.failures.get(place, group.failure)
        if failure is not None:
            # An error of its own for each task: they all add to its traceback.
            raise type(failure)(str(failure)) from failure

    async def _lead(self, group: _Group[T]) -> None:
        group.led = True
        try:
            async with self._turn:
                if self._open is group:
                    self._open = None
                with anyio.CancelScope(shield=True):
                    await self._write_group(group)
        finally:
            group.led = False
            news, group.news = group.news, anyio.Event()
            news.set()

    async def _write_group(self, group: _Group[T]) -> None:
        try:
            group.failures = await self._write(group.items)
        except PresenceError as error:
            group.failure = error
        group.written = True


class _Group(Generic[T]):
    """Items that are written together; `news` is set when it is written or needs a leader."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.led = False
        self.written = False
        self.failure: PresenceError | None = None
        self.failures: Mapping[int, PresenceError] = {}
        self.news = anyio.Event()
